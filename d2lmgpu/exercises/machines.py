"""Exercises for notebook 14, many machines: which examples each process has, and which rank is to blame for a hang."""

from ..collectives import chunk_bounds
from .exercise import Exercise

FIRST = "if all devices are numbered in order, the first one of this process has the number sum(counts[:rank])"
STOP = "return (start, stop), as for a slice: stop is not included"
_RAGGED = "k does not divide n: the first n % k devices get one example more; chunk_bounds(n, k) does that"


class my_examples(Exercise):
    """Write my_examples(batch_size, counts, rank): process r has counts[r] devices. The minibatch is split over the
    devices of all processes in order. Sizes differ by one at most, and the first devices get one more, as with
    d2lmgpu.collectives.chunk_bounds(n, k). Return (start, stop), the range of examples of all devices of this rank.

    every process knows its examples without a message.
    """

    cases = ((64, [2, 2], 1), (67, [2, 1, 3], 1), (10, [1, 1, 1], 2), (3, [2, 3], 1), (256, [4], 0), (100, [1, 7], 0))
    hint = FIRST
    form = (int, int)
    returns = STOP

    def right(self, n, counts, rank):
        bounds, first = chunk_bounds(n, sum(counts)), sum(counts[:rank])
        return bounds[first][0], bounds[first + counts[rank] - 1][1]

    def mistakes(self, _, right, n, counts, rank):
        k, before = sum(counts), sum(counts[:rank])
        one, after = chunk_bounds(n, k)[before], before + counts[rank]
        yield chunk_bounds(n, len(counts))[rank], "split over processes", "a process with two devices takes two parts"
        yield one, "the examples of one device", "a process has the parts from its first device through its last"
        yield (right[0], right[1] - right[0]), "this is a start and a length", STOP
        yield (right[0], right[1] - 1), "the last example is missing", STOP
        yield (before * (n // k), after * (n // k)), "the remainder goes to other devices", _RAGGED


class culprits(Exercise):
    """Write culprits(waits): waits is a dict from each rank that is waiting to the rank that it is waiting for. Return
    a list, the lowest rank first, of the ranks that others wait for but that do not wait themselves.

    these ranks keep others waiting, and are not waiting themselves.
    """

    cases = [
        (waits,)
        for waits in ({3: 2, 0: 3, 1: 0}, {0: 1, 2: 1, 3: 1}, {0: 9, 1: 0, 3: 2}, {7: 2, 6: 7, 2: 9}, {0: 1, 1: 0}, {})
    ]
    hint = "follow the chain from rank to rank until you reach one that is not in waits"
    form = [int]
    returns = "return a list of ranks, such as [2]"

    def right(self, waits):
        return sorted(set(waits.values()) - set(waits))

    def mistakes(self, found, right, waits):
        waited = list(waits.values())
        yield sorted(waits), "these are the ranks that wait", "a rank that waits has answered, so it is not to blame"
        yield sorted(set(waited)), "all ranks that others wait for", "some of these wait themselves: they have answered"
        yield right[:1], "some are missing", "more than one rank may be silent"
        yield sorted(found) == right, "in order, the lowest rank first: sorted(...) makes a list; a set has no order"
        yield bool(waits and not right), "if all ranks that others wait for wait, too, none is to blame: return []"
