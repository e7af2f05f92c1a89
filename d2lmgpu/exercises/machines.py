"""Exercises of notebook 14, many machines: whose examples are whose, and who is to blame for a hang."""

import numpy as np

from ..collectives import chunk_bounds
from .checking import Exercise, Wrong, expect, kind, list_of, result_of, with_hidden

RANKS = (
    (64, (2, 2), 1),
    (67, (2, 1, 3), 1),
    (10, (1, 1, 1), 0),
    (10, (1, 1, 1), 2),
    (3, (2, 3), 1),
    (256, (4,), 0),
    (100, (1, 7), 0),
)
"""Examples, devices of each process, a rank."""


def _draw_ranks(rng):
    counts = tuple(map(int, rng.integers(1, 6, int(rng.integers(1, 6)))))
    return int(rng.integers(1, 300)), counts, int(rng.integers(len(counts)))


def try_my_examples(answer):
    """The first and the last example of the process's devices, of whatever numbers of devices."""
    for n, counts, rank in with_hidden(RANKS, _draw_ranks):
        case = f"my_examples({n}, {list(counts)}, {rank})"
        found = _pair(result_of(answer, n, list(counts), rank, case=case), case)
        right = _examples(n, counts, rank)
        if found == right:
            continue
        said = f"{case}: {found} instead of {right}"
        k, before = sum(counts), sum(counts[:rank])
        one = chunk_bounds(n, k)[before]
        mistakes = (
            (chunk_bounds(n, len(counts))[rank], "split over processes", "a process with two devices takes two parts"),
            (one, "those of one device", "the part of a process begins with its first device and ends with its last"),
            ((right[0], right[1] - right[0]), "a start and a length", STOP),
            ((right[0], right[1] - 1), "the last example is missing", STOP),
            (_examples(n, counts, (rank + 1) % len(counts)), "those of the next rank", FIRST),
            ((before * (n // k), (before + counts[rank]) * (n // k)), "the rest is dealt out otherwise", RAGGED),
            ((before * n // k, (before + counts[rank]) * n // k), "the rest is dealt out otherwise", RAGGED),
        )
        for mistake, what, hint in mistakes:
            if found == mistake:
                raise Wrong(f"{said}: {what}", hint)
        raise Wrong(said, FIRST)
    return "every process knows its examples without asking anybody."


FIRST = "the first device of a process has the number sum(counts[:rank]) among all"
STOP = "return (start, stop), as for a slice: stop is not included"
RAGGED = "k does not divide n: the first n % k devices get one example more; chunk_bounds(n, k) does that"


def _examples(n, counts, rank):
    bounds = chunk_bounds(n, sum(counts))
    first = sum(counts[:rank])
    return bounds[first][0], bounds[first + counts[rank] - 1][1]


def _pair(result, case):
    """The answer as a pair of ints."""
    pair = list_of(result, case, STOP)
    whole = [isinstance(i, int | np.integer) and not isinstance(i, bool) for i in pair]
    if len(pair) != 2 or not all(whole):
        what = f"{len(pair)} things" if len(pair) != 2 else " and ".join(kind(i) for i in pair)
        raise Wrong(f"{case}: it returned {what}", STOP)
    return int(pair[0]), int(pair[1])


WAITS = (
    {3: 2, 0: 3, 1: 0},
    {0: 1, 2: 1, 3: 1},
    {0: 1, 1: 2, 3: 4},
    {5: 0, 4: 5, 3: 2, 1: 0},
    {7: 2, 6: 7, 2: 9, 8: 9, 0: 8},
    {0: 1, 1: 0},
    {},
)
"""Which rank each rank that answers waits for."""


def _draw_waits(rng):
    ranks = list(map(int, rng.permutation(12)))
    silent, rest = ranks[:3], ranks[3:]
    waits = {}
    for i, rank in enumerate(rest):
        waits[rank] = int(rng.choice(silent + rest[:i]))
    return waits


def try_culprits(answer):
    """Those for whom somebody waits, and who wait for nobody, each once and in order."""
    for waits in with_hidden(WAITS, _draw_waits):
        case = f"culprits({waits})"
        found = result_of(answer, dict(waits), case=case)
        ranks = _ranks(found, case)
        right = sorted(set(waits.values()) - set(waits))
        if ranks == right:
            continue
        said = f"{case}: {ranks} instead of {right}"
        waited = list(waits.values())
        mistakes = (
            (sorted(waits), "those who wait", "who waits has said so, and is a victim"),
            (sorted(set(waited)), "all for whom somebody waits", "some of these wait themselves, and have said so"),
            (sorted(rank for rank in waited if rank not in waits), "somebody is there twice", "name each rank once"),
            (sorted(right, reverse=True), "the wrong way round", "return them in order, the lowest rank first"),
            (right[:1], "there are others", "more than one rank may be silent"),
        )
        for mistake, what, hint in mistakes:
            if ranks == mistake:
                raise Wrong(f"{said}: {what}", hint)
        hint = "follow the chain: who waits for whom, until you come to one who waits for nobody"
        if not right:
            hint = "if all who are waited for wait themselves, they wait in a circle, and nobody alone is to blame: []"
        raise Wrong(said, hint if sorted(ranks) != right else "return them in order, the lowest rank first")
    return "those for whom somebody waits, and who do not wait themselves."


def _ranks(result, case):
    ranks = list_of(result, case, "return a list of ranks, such as [2]")
    whole = all(isinstance(rank, int | np.integer) and not isinstance(rank, bool) for rank in ranks)
    expect(whole, f"{case}: a rank in the list is no whole number", "return a list of ranks, such as [2]")
    return [int(rank) for rank in ranks]


EXERCISES = {
    "my_examples": Exercise(
        "Write my_examples(batch_size, counts, rank): process r has counts[r] devices. The minibatch is split over the "
        "devices of all processes in order; sizes differ by one at most, and the first ones get the rest, as of "
        "d2lmgpu.collectives.chunk_bounds(n, k). Return (start, stop), the examples of this rank's devices together.",
        try_my_examples,
    ),
    "culprits": Exercise(
        "Write culprits(waits): a dict with, for each rank that answers, the rank for which it waits. Return the list, "
        "in order, of those ranks for which somebody waits and which do not wait themselves: they were not heard of.",
        try_culprits,
    ),
}
