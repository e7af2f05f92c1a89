"""Invent a schedule for a network: the best of the known schedules and of those that a search finds.

    network ──► choose owners ──► spread what is owned (search.py) ──► all_gather
                                  the same backwards, adding       ──► reduce_scatter     one after the other:
                                                                                          an allreduce

An allreduce is half done when each element's sum is complete on the device that owns it. We may choose how much each
device owns: equal parts, more for badly connected devices (`Cuts.owned`), or, for short arrays, everything for one
central device. Long arrays need many chunks, which keep all wires busy; for short ones, as few messages as possible
should follow one another.

Sources: Won et al. 2024, "TACOS"; Cai et al. 2021, "SCCL", for the question; and the sources of search.py and
bounds.py.
"""

import functools
import itertools

import numpy as np

from ...base.arguments import check_whole, plain, plain_numbers
from ..actions import MAX_ELEMENTS, apportioned, chunk_bounds
from ..algorithms import ALGORITHMS
from ..bounds import bound, cuts_of
from ..prove import prove
from ..simulate import simulate
from .along import ring_along
from .search import Search, backwards, forwards

_PARTS = (1, 2, 4, 8, 16, 32)
"""The numbers of chunks per device to try, in this order."""

MISSES = 2
"""We try no larger numbers of chunks after this many in a row that were no better."""

_TRIES, _MESSAGES = 20, 200_000
"""How often we search with the best way to cut the array, and the most messages that all searches may find."""


class Invented(list):
    """The fastest of the schedules that were considered: a list of steps, like all schedules, which has been proved.

    ``name``: "invented", or the name of a known schedule. ``seconds``: its simulated time. ``bound``: the seconds that
    no schedule can beat (bounds.py). ``considered``: a dict of the seconds of each schedule, by name.
    """

    def __init__(self, steps, name, considered, bound):
        super().__init__(steps)
        self.name, self.considered, self.bound = name, considered, bound
        self.seconds = considered[name]

    def __repr__(self):
        gap = self.seconds / self.bound - 1 if self.bound else 0.0
        times = f"{1e6 * self.seconds:.4g} µs simulated, {gap:.1%} above what no schedule can beat"
        return f"<{self.name}: {len(self)} steps, {times}>"


def invent(network, n, itemsize=4):
    """The fastest allreduce, known or found, on a `Topology` for n elements of ``itemsize`` bytes: an `Invented`.

    The same arguments give the same schedule. Raises ValueError for anything but a network, or for numbers out of
    range.
    """
    n = check_whole("n, the number of elements,", n, least=0, most=MAX_ELEMENTS)
    cuts, itemsize = cuts_of(network), plain(itemsize)
    found = _found(cuts, n, itemsize) if cuts.k > 1 and n else ()
    schedules, seconds = {}, {}
    known = ((name, make(network.k, n)) for name, make in known_on(network).items())
    for name, schedule in itertools.chain(known, (("invented", each) for each in found)):
        time = simulate(schedule, network, itemsize).seconds
        if time < seconds.get(name, np.inf):
            schedules[name], seconds[name] = schedule, time
    best = min(seconds, key=seconds.get)
    prove(schedules[best], cuts.k, n)
    return Invented(schedules[best], best, seconds, bound(network, n, itemsize))


def invented(network):
    """A function of k and n, like those in `ALGORITHMS`, that invents an allreduce for a network of k devices."""

    found = functools.cache(functools.partial(invent, network))

    @plain_numbers
    def invented(k, n):
        check_whole(f"k, the number of devices on {network.name},", k, least=network.k, most=network.k)
        return found(n)

    return invented


def known_on(network):
    """The allreduces that need no search, by name: functions of k and n; two of them follow the network's wires."""
    along = {"ring along": ring_along(network), "both rings along": ring_along(network, both_ways=True)}
    return {name: make for name, make in ALGORITHMS.items() if name != "none"} | along


def _found(cuts, n, itemsize):
    """Yield the best schedule that searches find for each choice of owners, or none if there is too much to search."""
    directions = dict.fromkeys([cuts.mirror, cuts])  # one if all wires are the same both ways
    left = _MESSAGES
    for ways_to_cut in _cut(cuts, n):
        best, misses = (np.inf, [], None), 0
        for owners, bounds in ways_to_cut:
            nbytes = max(stop - start for start, stop in bounds) * itemsize
            found = [_first(Search(each, owners, nbytes), left) for each in directions]
            left -= sum(messages for *_, messages in found)
            here = sum(seconds for seconds, *_ in found), found, bounds
            best, misses = (here, 0) if here[0] < best[0] else (best, misses + 1)
            if misses == MISSES:
                break
        _, found, bounds = best
        if found:
            steps = [_again(*each) for each in found]
            yield backwards(steps[0], bounds) + forwards(steps[-1], bounds)


def _first(search, left):
    """Search once with every window: the best (seconds, steps, function to search so again), and all messages found.

    Searches that might find more than ``left`` messages in all are left out.
    """
    best, messages = (np.inf, None, None), 0
    for window, patient in itertools.product(search.windows, (False, True)[: 1 + search.has_choice]):
        if messages + search.messages <= left:
            steps, seconds = search.run(window, patient=patient)
            messages += sum(map(len, steps))
            again = functools.partial(search.run, window, patient=patient)
            best = min(best, (seconds, steps, again), key=lambda each: each[0])
    return *best, messages


def _again(seconds, steps, run, _):
    """The best steps after some more searches in the same way; the arguments are the four results of `_first`."""
    for seed in range(1, min(_TRIES, _MESSAGES // 10 // max(1, sum(map(len, steps))))):
        again, less = run(seed=seed)
        if less < seconds:
            steps, seconds = again, less
    return steps


def _cut(cuts, n):
    """For each choice of owners (see above), a list of ways to cut the array into more and more chunks.

    Each way is a pair of lists: the chunks' owners, and their (start, stop).
    """
    k = cuts.k
    far = cuts.far(cuts.network.latency(cuts.sources, cuts.destinations))
    equal, owned = np.full(k, 1 / k), cuts.owned()
    shares = [np.eye(k)[np.argmin(far.max(axis=1))], equal]
    if not np.allclose(owned, equal):
        shares.append(owned)
    return [[_chunks(share, n, parts) for parts in _PARTS if parts == 1 or parts * k <= n] for share in shares]


def _chunks(share, n, parts):
    """One way to cut, with ``parts`` chunks per owner on average; ``share``: the fraction that each device owns."""
    k = len(share)
    counts = apportioned(share, parts * (1 if share.max() == 1 else k))
    bounds = chunk_bounds(n, sum(counts))
    if (share == share[0]).all():  # equal parts of what `chunk_bounds(n, k)` gives to each device
        bounds = [(a + x, a + y) for a, b in chunk_bounds(n, k) for x, y in chunk_bounds(b - a, parts)]
    full = [i for i, (start, stop) in enumerate(bounds) if start < stop]  # empty chunks are left out
    return np.repeat(np.arange(k), counts)[full], [bounds[i] for i in full]
