"""Simulate how long a schedule would take on a network that you describe, by the rules of clock.py."""

import functools
from dataclasses import dataclass, field

import numpy as np

from ..base.arguments import plain
from .bounds import bound
from .clock import Clock
from .columns import check_steps
from .topology import check_topology


@dataclass
class Simulation:
    """The times of a schedule on a network: ``seconds`` in all, with the network's startup.

    ``step_seconds``: for each step, the seconds from the end of the steps before it to its own end. ``link_bytes``: the
    bytes over each link. ``times``: for each step, two arrays with the times when its transfers begin and end.
    ``bound``: the seconds that no allreduce of the same number of elements can beat on the network (bounds.py); None if
    the schedule does not use all devices of the network.
    """

    seconds: float
    step_seconds: np.ndarray
    link_bytes: np.ndarray
    times: list
    _find_bound: object = field(repr=False)

    @functools.cached_property
    def bound(self):
        return self._find_bound()


def simulate(schedule, network, itemsize=4):
    """Time a schedule on a network; elements have ``itemsize`` bytes. Returns a `Simulation`.

    ``schedule`` may be any iterable of steps. Raises ValueError if it names a device that the network does not have.
    """
    check_topology(network)
    first, last, named = np.inf, 0, 0
    clock, ends, times = Clock(network.k, network, lambda value: plain(itemsize)), [network.startup], []
    for _, moves in check_steps(schedule):
        ends_of_ways = [end for each in moves for end in (each.source, each.destination)]
        if any(end.min() < 0 or end.max() >= network.k for end in ends_of_ways):
            raise ValueError(f"simulate: the schedule has more devices than the {network.k} of {network.name}")
        named = max(named, *(int(end.max()) + 1 for end in ends_of_ways), 0)
        for each in moves:
            first, last = min(first, each.start.min()), max(last, each.stop.max())
        moved, _ = clock.step(moves)
        times.append(tuple(np.concatenate([pair[i] for pair in moved] or [np.zeros(0)]) for i in (0, 1)))
        ends.append(clock.end)
    n = max(0, int(last - min(first, last)))
    find = functools.partial(bound, network, n, itemsize) if named in (0, network.k) else lambda: None
    return Simulation(clock.end, np.diff(ends), clock.link_bytes, times, find)
