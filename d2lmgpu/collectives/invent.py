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

from ..arguments import check_name, check_whole, plain, plain_numbers
from ..language.actions import MOST_ELEMENTS, Transfer, chunk_bound, chunk_bounds
from ..language.goals import GOALS
from ..language.prove import prove
from .algorithms import ALGORITHMS
from .along import ring_along
from .bounds import bound, cuts_of
from .ring import all_gather, reduce_scatter
from .search import Search, backwards, forwards
from .simulate import simulate

PARTS = (1, 2, 4, 8, 16, 32)
"""The numbers of chunks per device to try, in this order."""

MISSES = 2
"""We try no larger numbers of chunks after this many in a row that were no better."""

TRIES, MESSAGES = 20, 200_000
"""How often we search with the best way to cut the array, and the most messages that all searches may find."""


class Invented(list):
    """The fastest of the schedules that were considered: a list of steps, like all schedules, which has been proved.

    ``name``: "invented", or the name of a known schedule. ``seconds``: its simulated time. ``bound``: the seconds that
    no schedule can beat (bounds.py). ``proof``: a `Proof`. ``considered``: a dict of the seconds of each schedule, by
    name.
    """

    def __init__(self, steps, name, considered, bound, proof):
        super().__init__(steps)
        self.name, self.considered, self.bound, self.proof = name, considered, bound, proof
        self.seconds = considered[name]

    @property
    def gap(self):
        """How much slower the schedule is than the bound, as a fraction of the bound."""
        return self.seconds / self.bound - 1 if self.bound else 0.0

    def __repr__(self):
        times = f"{1e6 * self.seconds:.4g} µs simulated, {self.gap:.1%} above what no schedule can beat"
        return f"<{self.name}: {len(self)} steps, {times}>"


def invent(network, n, goal="allreduce", itemsize=4, root=0):
    """The fastest schedule, known or found, on a `Network` for n elements of ``itemsize`` bytes: an `Invented`.

    ``goal``: one of `goals.GOALS`; ``root``: the device where a broadcast begins. The same arguments give the same
    schedule. Raises ValueError for anything but a network, or for numbers out of range.
    """
    check_name("goal", goal, GOALS)
    n = check_whole("n, the number of elements,", n, least=0, most=MOST_ELEMENTS)
    cuts, itemsize = cuts_of(network), plain(itemsize)
    root = check_whole("root", root, least=0, most=cuts.k - 1)
    found = _found(cuts, n, goal, itemsize, root) if cuts.k > 1 and n else ()
    schedules, seconds = {}, {}
    for name, schedule in itertools.chain(_known(network, n, goal, root), (("invented", each) for each in found)):
        time = simulate(schedule, network, itemsize).seconds
        if time < seconds.get(name, np.inf):
            schedules[name], seconds[name] = schedule, time
    best = min(seconds, key=seconds.get)
    proof = prove(schedules[best], cuts.k, n, goal, root)
    return Invented(schedules[best], best, seconds, bound(network, n, goal, itemsize, root), proof)


def invented(network):
    """A function of k and n, like those in `ALGORITHMS`, that invents an allreduce for a network of k devices."""

    found = functools.cache(functools.partial(invent, network))

    @plain_numbers
    def invented(k, n):
        check_whole(f"k, the number of devices on {network.name},", k, least=network.k, most=network.k)
        return found(n)

    return invented


def _known(network, n, goal, root):
    """Yield pairs (name, schedule) of the known schedules for the goal."""
    k = network.k
    if goal == "allreduce":
        for name, algorithm in ALGORITHMS.items():
            if name != "none":
                yield name, algorithm(k, n)
        yield "ring along", ring_along(network)(k, n)
        yield "both rings along", ring_along(network, both_ways=True)(k, n)
    elif goal == "broadcast":
        yield "one to each", [[Transfer(root, i, 0, n, "copy") for i in range(k) if i != root]]
    elif goal == "all_to_all":
        blocks = [[(i, j, *chunk_bound(n, k * k, i * k + j)) for i in range(k)] for j in range(k)]
        yield "each to each", [[Transfer(*to, "copy") for to in row if to[0] != to[1]] for row in blocks]
    else:
        yield "ring", {"all_gather": all_gather, "reduce_scatter": reduce_scatter}[goal](k, n)


def _found(cuts, n, goal, itemsize, root):
    """Yield the best schedule that searches find for each choice of owners, or none if there is too much to search."""
    reduces, spreads = goal in ("allreduce", "reduce_scatter"), goal != "reduce_scatter"
    directions = dict.fromkeys([cuts.mirror] * reduces + [cuts] * spreads)  # one if all wires are the same both ways
    left = MESSAGES
    for ways_to_cut in _cut(cuts, n, goal, root):
        best, misses = (np.inf, [], None), 0
        for owners, bounds, homes in ways_to_cut:
            nbytes = max(stop - start for start, stop in bounds) * itemsize
            found = [_first(Search(each, owners, nbytes, homes), left) for each in directions]
            left -= sum(messages for *_, messages in found)
            here = sum(seconds for seconds, *_ in found), found, bounds
            best, misses = (here, 0) if here[0] < best[0] else (best, misses + 1)
            if misses == MISSES:
                break
        _, found, bounds = best
        if found:
            steps = [_again(*each) for each in found]
            yield (backwards(steps[0], bounds) if reduces else []) + (forwards(steps[-1], bounds) if spreads else [])


def _first(search, left):
    """Search with every window: the best seconds and steps, how to search again, and the number of messages in all.

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
    """The best steps after some more searches in the same way."""
    for seed in range(1, min(TRIES, MESSAGES // 10 // max(1, sum(map(len, steps))))):
        again, less = run(seed=seed)
        if less < seconds:
            steps, seconds = again, less
    return steps


def _cut(cuts, n, goal, root):
    """The ways to cut the array: for each, a list of versions with more and more chunks.

    A version consists of the owners, the (start, stop) and the destinations of its chunks, or None for the destinations
    if chunks go to all devices.
    """
    k = cuts.k
    equal = np.full(k, 1 / k)
    if goal == "all_to_all":
        owners, homes = np.divmod(np.arange(k * k), k)
        return [[_filled(owners, chunk_bounds(n, k * k), homes)]]
    if goal == "broadcast":
        shares = [np.eye(k)[root]]
    elif goal == "allreduce":
        far = cuts.far(cuts.network.latency(cuts.sources, cuts.destinations))
        owned = cuts.owned()
        shares = [np.eye(k)[np.argmin(far.max(axis=1))], equal, *([] if np.allclose(owned, equal) else [owned])]
    else:
        shares = [equal]
    return [[_chunks(share, n, parts) for parts in PARTS if parts == 1 or parts * k <= n] for share in shares]


def _chunks(share, n, parts):
    """A version with ``parts`` chunks per owner, on average; ``share``: the fraction that each device owns."""
    k = len(share)
    counts = _apportioned(share, parts * (1 if share.max() == 1 else k))
    bounds = chunk_bounds(n, sum(counts))
    if (share == share[0]).all():  # as for the other goals: chunk i belongs to device i
        own = [chunk_bound(n, k, i) for i in range(k)]
        bounds = [(a + x, a + y) for a, b in own for x, y in chunk_bounds(b - a, parts)]
    return _filled(np.repeat(np.arange(k), counts), bounds)


def _filled(owners, bounds, homes=None):
    """The version without its empty chunks."""
    full = [i for i, (start, stop) in enumerate(bounds) if start < stop]
    return owners[full], [bounds[i] for i in full], homes if homes is None else homes[full]


def _apportioned(shares, count):
    """How many of ``count`` each share gets, by the method of largest remainders."""
    exact = np.asarray(shares, float) * count
    counts = np.floor(exact + 1e-9).astype(int)
    for i in np.argsort(counts - exact, kind="stable")[: count - counts.sum()]:
        counts[i] += 1
    return counts.tolist()
