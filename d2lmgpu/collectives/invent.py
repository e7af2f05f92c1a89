"""Invent a schedule for a network: the best of those that are known, and of those that a search finds.

    network ──► who owns what ──► spread what is owned (search.py) ──► all_gather
                                  the same backwards, adding       ──► reduce_scatter     one after the other:
                                                                                          an allreduce

An allreduce has its half-time when each element's sum is complete on the device that owns it. Who owns how much may be
chosen: equal parts, more for those who are badly connected (`Cuts.owned`), or, for short arrays, all for one device in
the middle. Long arrays want many chunks, so that all wires are busy; short ones want few messages one after the other.

Sources: Won et al. 2024, "TACOS"; Cai et al. 2021, "SCCL", for the question; search.py and bounds.py.
"""

import functools
import itertools

import numpy as np

from ..arguments import check_name, check_whole
from ..language.actions import MOST_ELEMENTS, Transfer, chunk_bound, chunk_bounds
from ..language.goals import GOALS
from ..language.prove import prove
from .algorithms import ALGORITHMS
from .along import ring_along
from .bounds import bound, cuts_of
from .ring import all_gather, reduce_scatter
from .search import Search, backwards, forwards
from .simulate import simulate

PARTS = (1, 2, 4, 8)
"""Chunks for each device."""

TRIES, MESSAGES = 20, 200_000
"""So often the best way to cut the array is searched again; all searches find no more messages than that."""


class Invented(list):
    """A schedule, proved, that is the fastest of those that were considered: a list of steps, as all schedules are.

    ``name``: "invented", or that of a known one. ``seconds``: simulated. ``bound``: seconds that no schedule can beat
    (bounds.py); ``gap``: by which part of it this one is slower. ``proof``: a `Proof`. ``considered``: the seconds of
    each by name.
    """

    def __init__(self, steps, name, considered, bound, proof):
        super().__init__(steps)
        self.name, self.considered, self.seconds, self.bound, self.proof = (
            name,
            considered,
            considered[name],
            bound,
            proof,
        )

    @property
    def gap(self):
        return self.seconds / self.bound - 1 if self.bound else 0.0

    def __repr__(self):
        times = f"{1e6 * self.seconds:.4g} µs simulated, {self.gap:.1%} above what no schedule can beat"
        return f"<{self.name}: {len(self)} steps, {times}>"


def invent(network, n, goal="allreduce", itemsize=4, root=0):
    """The fastest schedule that is known, or found, on a `Network`, for n elements of ``itemsize`` bytes: `Invented`.

    ``goal``: one of `goals.GOALS`; ``root``: the device that a broadcast begins at. The same arguments give the same
    schedule. Raises ValueError for a network that is none, or numbers out of range.
    """
    check_name("goal", goal, GOALS)
    check_whole("n, the number of elements,", n, least=0, most=MOST_ELEMENTS)
    cuts = cuts_of(network)
    check_whole("root", root, least=0, most=cuts.k - 1)
    schedules = dict(_known(network, n, goal, root))
    if cuts.k > 1 and n:
        schedules["invented"] = _found(cuts, n, goal, itemsize, root)
    seconds = {name: simulate(schedule, network, itemsize).seconds for name, schedule in schedules.items()}
    best = min(seconds, key=seconds.get)
    proof = prove(schedules[best], cuts.k, n, goal, root)
    return Invented(schedules[best], best, seconds, bound(network, n, goal, itemsize, root), proof)


def invented(network):
    """A function of k and n, as those in `ALGORITHMS`, that invents an allreduce for a network of k devices."""

    @functools.cache
    def invented(k, n):
        check_whole(f"k, the number of devices on {network.name},", k, least=network.k, most=network.k)
        return invent(network, n)

    return invented


def _known(network, n, goal, root):
    """Pairs of a name and a schedule."""
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
    """The best schedule of those that searches find."""
    reduces, spreads = goal in ("allreduce", "reduce_scatter"), goal != "reduce_scatter"
    directions = dict.fromkeys([cuts.mirror] * reduces + [cuts] * spreads)  # one, where all wires are alike both ways
    best, messages = (np.inf, None, None), 0
    for owners, bounds, homes in sorted(_cut(cuts, n, goal, root), key=lambda each: len(each[0])):
        found = []
        for each in directions:
            search = Search(each, owners, max(stop - start for start, stop in bounds) * itemsize, homes)
            fastest = np.inf, None, None
            ways = itertools.product(search.windows, (False, True)[: 1 + (search.is_uneven and homes is None)])
            for window, patient in ways:
                if messages + len(owners) * cuts.k > MESSAGES and best[1]:
                    continue
                steps, seconds = search.run(window, patient=patient)
                messages += sum(map(len, steps))
                if seconds < fastest[0]:
                    fastest = seconds, steps, functools.partial(search.run, window, patient=patient)
            found.append(fastest)
        seconds = sum(each[0] for each in found)
        if seconds < best[0]:
            best = seconds, found, bounds
    _, found, bounds = best
    found = [_again(*each, len(bounds) * cuts.k) for each in found]
    reduce = backwards(found[0], bounds) if reduces else []
    return reduce + (forwards(found[-1], bounds) if spreads else [])


def _again(seconds, steps, run, messages):
    """The best steps of some more searches, of so many messages each."""
    for seed in range(1, min(TRIES, MESSAGES // 10 // messages)):
        again, less = run(seed=seed)
        if less < seconds:
            steps, seconds = again, less
    return steps


def _cut(cuts, n, goal, root):
    """Ways to cut the array: the owner of each chunk, its (start, stop), and the homes of chunks that have any."""
    k = cuts.k
    if goal == "all_to_all":
        owners, homes = np.divmod(np.arange(k * k), k)
        yield _filled(owners, chunk_bounds(n, k * k), homes)
        return
    equal = np.full(k, 1 / k)
    if goal == "broadcast":
        shares = [np.arange(k) == root]
    elif goal == "allreduce":
        far = cuts.far(cuts.network.latency(cuts.sources, cuts.destinations))
        shares = [equal, cuts.owned(), np.arange(k) == np.argmin(far.max(axis=1))]
    else:
        shares = [equal]
    seen = set()
    for share in shares:
        for parts in PARTS:
            chunks = parts * (1 if share.max() == 1 else k)
            counts = _apportioned(share, chunks)
            if (chunks <= n or parts == 1 and share is equal) and counts not in seen:
                seen.add(counts)
                bounds = chunk_bounds(n, chunks)
                if share is equal:  # as the goal has it: chunk i is device i's
                    own = [chunk_bound(n, k, i) for i in range(k)]
                    bounds = [(a + x, a + y) for a, b in own for x, y in chunk_bounds(b - a, parts)]
                yield _filled(np.repeat(np.arange(k), counts), bounds)


def _filled(owners, bounds, homes=None):
    """The same, without chunks in which there is nothing."""
    full = [i for i, (start, stop) in enumerate(bounds) if start < stop]
    return owners[full], [bounds[i] for i in full], homes if homes is None else homes[full]


def _apportioned(shares, count):
    """How many of ``count`` each gets, by the largest remainders."""
    exact = np.asarray(shares, float) * count
    counts = np.floor(exact + 1e-9).astype(int)
    for i in np.argsort(counts - exact, kind="stable")[: count - counts.sum()]:
        counts[i] += 1
    return tuple(counts.tolist())
