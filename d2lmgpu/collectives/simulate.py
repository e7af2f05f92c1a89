"""Simulate how long a schedule would take on a network that you describe.

When actions begin and end is decided by a `Clock`, which plans use, too (plans/simulate.py).

An action waits only for the values that it reads or overwrites. A transfer begins when its source has the value, its
destination has the old value, and nothing reads that old value any more. A computation begins when its device has
finished the computation before, its inputs are there, and nothing still reads what it overwrites. Transfers do not keep
a device from computing. Parameters, however, are not fetched before the device has finished its computations of earlier
steps, because they would take up memory too soon. The rules for the network are:

    a link finishes the transfers of earlier steps, then shares its bandwidth fairly among those of the next step:
        it is done with these at   max(when they begin, when it is free) + Σ bytes / bandwidth + messages · occupancy
    a transfer ends α after the last link on its route is done; if its elements are added, γ · bytes later

So no link carries more than its bandwidth. Within a step, this is the model from which the formulas in the literature
are derived (Hockney 1994; Thakur, Rabenseifner and Gropp 2005), but with contention: transfers share the bandwidth of
the links that they have in common. In the literature, however, all devices wait for each other after each step; here,
as on real devices, some may begin a step while others are still in the previous one.
"""

import collections
import functools
from dataclasses import dataclass, field

import numpy as np

from ..base.arguments import plain
from .bounds import bound
from .columns import check_steps
from .topology import NO_LINK, check_topology


class Clock:
    """The times on ``k`` devices joined by a ``network``; without a network, transfers take no time.

    ``bytes_of(value)``: the bytes of an element. ``end``: when everything so far is done. ``link_bytes``: the bytes
    that each link has carried; None without a network.
    """

    def __init__(self, k, network, bytes_of):
        self.network, self.bytes_of, self.end, self.link_bytes = network, bytes_of, 0.0, None
        if network is not None:
            check_topology(network)
            if network.k < k:
                raise ValueError(f"the network {network.name} has {network.k} devices, and the plan {k}")
            self.end, self.link_bytes = float(network.startup), np.zeros(len(network.links))
            self.free = np.full(len(network.links), self.end)
        self.computed = np.full(k, self.end)
        start = self.end
        self.times = collections.defaultdict(lambda: np.full((2, k), start))  # by value: when it is written, read

    def step(self, moves, computes=(), costs=()):
        """Time the next step: return two lists of pairs (begin, end), for its transfers and for its computations.

        ``costs``: the seconds that each computation takes on a device that does nothing else.
        """
        computed = [self._compute(compute, cost) for compute, cost in zip(computes, costs, strict=True)]
        moved = self._move(moves)
        for each, (_, ends) in zip(moves, moved, strict=True):
            np.maximum.at(self.times[each.target][0], each.destination, ends)
            np.maximum.at(self.times[each.value][1], each.source, ends)
            self.end = max(self.end, float(ends.max(initial=0)))
        for compute, (_, end) in zip(computes, computed, strict=True):
            device = compute.device
            self.computed[device], self.end = end, max(self.end, end)
            reads, makes, adds = compute.uses
            for value in makes + adds:
                self.times[value][0, device] = end
            for value in reads + adds:
                self.times[value][1, device] = max(self.times[value][1, device], end)
        return moved, computed

    def _compute(self, compute, cost):
        begin, device = self.computed[compute.device], compute.device
        reads, makes, adds = compute.uses
        for value in reads + makes + adds:
            begin = max(begin, self.times[value][0, device])
        for value in makes + adds:
            begin = max(begin, self.times[value][1, device])
        return float(begin), float(begin + cost)

    def _move(self, moves):
        """When a step's transfers begin and end: a pair of arrays for each of the `TransferColumns`."""
        begins = []
        for each in moves:
            written, read = self.times[each.target]
            there = np.maximum(written[each.destination], read[each.destination])
            if each.target[0] == "params":
                there = np.maximum(there, self.computed[each.destination])
            begins.append(np.maximum(self.times[each.value][0, each.source], there))
        if self.network is None or not moves:
            return [(begin, begin) for begin in begins]
        edges = np.cumsum([len(begin) for begin in begins])[:-1]
        carried, arrived = self._carried(moves, np.concatenate(begins))
        return list(zip(np.split(carried, edges), np.split(arrived, edges), strict=True))

    def _carried(self, moves, begin):
        """When transfers that are ready at the times ``begin`` start on their routes, and when they end."""
        network, k = self.network, self.network.k
        sources = np.concatenate([each.source for each in moves]).astype(np.intp)
        destinations = np.concatenate([each.destination for each in moves]).astype(np.intp)
        nbytes = np.concatenate([each.size * float(self.bytes_of(each.value)) for each in moves])
        travels = (nbytes > 0) & (sources != destinations)
        ways = network.route(sources, destinations)
        used = (ways != NO_LINK) & travels[:, None]
        of_each = np.broadcast_to(nbytes[:, None], ways.shape)
        links = len(network.links)
        load = np.bincount(ways[used], of_each[used], links)
        self.link_bytes += load
        busy = load / network.bandwidth + np.bincount(ways[used], minlength=links) * network.occupancy
        links_free = np.where(used, self.free[ways], begin[:, None]).max(axis=1, initial=0)
        through = self.free.copy()
        np.maximum.at(through, ways[used], np.broadcast_to(begin[:, None], ways.shape)[used])
        through[busy > 0] += busy[busy > 0]
        self.free = np.where(busy > 0, through, self.free)
        arrived = np.where(used, through[ways], begin[:, None]).max(axis=1, initial=0)
        arrived = np.maximum(begin, arrived) + np.where(travels, network.latency(sources, destinations), 0.0)
        adds = np.concatenate([np.full(len(each.start), each.op == "add") for each in moves])
        added = np.bincount(destinations, nbytes * adds * travels, k) * network.reduce_seconds_per_byte
        return np.maximum(begin, links_free), arrived + added[destinations]


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
    first, last, named = np.inf, 0, 0  # the range of the elements, and how many devices the schedule names
    clock, ends, times = Clock(network.k, network, lambda value: plain(itemsize)), [network.startup], []
    for _, moves in check_steps(schedule):
        ends_of_ways = [end for each in moves for end in (each.source, each.destination)]
        if any(end.min() < 0 or end.max() >= network.k for end in ends_of_ways):
            raise ValueError(f"simulate: the schedule has more devices than the {network.k} of {network.name}")
        named = max([named, *(int(end.max()) + 1 for end in ends_of_ways)])
        for each in moves:
            first, last = min(first, each.start.min()), max(last, each.stop.max())
        moved, _ = clock.step(moves)
        times.append(tuple(np.concatenate([pair[i] for pair in moved] or [np.zeros(0)]) for i in (0, 1)))
        ends.append(clock.end)
    n = max(0, int(last - min(first, last)))
    find = functools.partial(bound, network, n, itemsize) if named in (0, network.k) else lambda: None
    return Simulation(clock.end, np.diff(ends), clock.link_bytes, times, find)
