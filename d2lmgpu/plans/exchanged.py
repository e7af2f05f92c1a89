"""What a collective of a plan works on: arrays that come into being by the work before it, and a schedule's program."""

import functools

from ..collectives.program import compile_schedule


class Exchanged:
    """The plain arrays of a collective's devices: looked up when one is asked for."""

    def __init__(self, step, stores, action):
        self.step, self.stores, self.action = step, stores, action

    def __getitem__(self, i):
        if self.step.execution.error is not None:  # there may be none
            raise self.step.execution.error
        return self.stores[i].exchanged(self.action.value)


@functools.lru_cache(maxsize=256)
def compiled(schedule, k, staged, first, unit):
    """The program of a schedule of arrays that begin with its element ``first``, and have ``unit`` for each."""
    placed = tuple(
        tuple(t._replace(start=(t.start - first) * unit, stop=(t.stop - first) * unit) for t in step)
        for step in schedule
    )
    return compile_schedule(placed, k, staged)
