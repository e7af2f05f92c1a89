"""A plan's parameters, or the optimiser's state, in every process: each gets from the others what its own devices lack.

    layout      stage 0 on device 0, of rank 0; stage 1 on device 1, of rank 1
    rank 0      has stage 0 ──► rank 1
    rank 1      has stage 1 ──► rank 0

It is a collective between processes, on arrays of the host, whose schedule follows from the plan's layout.
"""

import numpy as np

from ..cluster.exchange import Exchange
from ..cluster.part import part_of
from ..collectives import Transfer
from ..collectives.program import compile_schedule


def share(arrays, name, plan, everybody):
    """Flat host arrays, one for each stage, in which each process has what its own devices hold: all of them whole.

    ``name``: of what a `Part` says who holds it, "params" or "state". All processes of the `Cluster` call it.
    """
    ranks, rank, device = tuple(range(everybody.size)), everybody.rank, everybody.mine[0]
    program = compile_schedule(_schedule(plan, name, everybody.owners, ranks), len(ranks))
    places, whole = [everybody.places[everybody.owners.index(r)] for r in ranks], np.concatenate(arrays)
    part, communicator = part_of(program, ranks, rank), everybody.communicator([device])
    device.submit(_Sharing(name, part, places, {rank: device}, {rank: whole}, {}, communicator).run).result()
    return np.split(whole, np.cumsum([len(array) for array in arrays])[:-1])


def _schedule(plan, name, owners, ranks):
    """Between processes, of all stages' elements, one stage after the other: from the first device that has them."""
    transfers, begin = [], 0
    for s, stage in enumerate(plan.stages):
        parts = [
            (getattr(part, name), owners[i]) for i, own in enumerate(plan.layout) for part in own if part.stage == s
        ]
        edges = sorted({0, stage.params, *(edge for bounds, _ in parts for edge in bounds)})
        for start, stop in zip(edges, edges[1:], strict=False):
            have = [rank for (first, last), rank in parts if first <= start and stop <= last]
            lack = [rank for rank in ranks if rank not in have]
            transfers += [Transfer(have[0], rank, begin + start, begin + stop, "copy") for rank in lack]
        begin += stage.params
    return [transfers]


class _Sharing(Exchange):
    def where(self, device):
        """As of `Exchange`."""
        return f"the sharing of {self.name}"
