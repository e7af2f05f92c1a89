"""Exercises for notebook 9, scaling experiments: what to compute from times, and what to conclude from the results."""

import itertools

from .exercise import Exercise, same_value

ON_PAPER = "work out the first case on paper"
INVERTED = "the wrong way round: divide the seconds of one device by the seconds of k"


class speedup_and_efficiency(Exercise):
    """Write speedup_and_efficiency(seconds): seconds is a dict from the number of devices to the seconds of an epoch,
    such as {1: 8.0, 2: 5.0}; return a dict with a pair (speed-up, efficiency) for each number of devices.

    speed-up and efficiency are right for each number of devices.
    """

    without = ("make_rows",)
    cases = (({1: 8.0, 2: 5.0, 4: 4.0},), ({4: 3.0, 1: 9.0},), ({1: 2.0, 3: 2.5},))
    hint = ON_PAPER
    form = {float: (float, float)}
    returns = "return a dict with the keys of seconds, and a pair for each: (speed-up, efficiency)"

    def right(self, seconds):
        """Speed-up and efficiency for each number of devices, in any order."""
        return {k: (seconds[1] / s, seconds[1] / s / k) for k, s in seconds.items()}

    def mistakes(self, _, right, seconds):
        first = next(iter(seconds.values()))
        yield {k: (s / seconds[1], ...) for k, s in seconds.items()}, INVERTED
        yield {k: (first / s, ...) for k, s in seconds.items()}, "compare with seconds[1], which may not be the first"
        yield {k: (..., s) for k, (s, _) in right.items()}, "divide the speed-up by k"
        yield {k: (..., 100 * e) for k, (_, e) in right.items()}, "return a fraction, not a percentage: 1 is perfect"


class weak_efficiency(speedup_and_efficiency):
    """Write weak_efficiency(seconds): seconds is a dict from the number of devices k to the seconds of a step, in weak
    scaling: the step on k devices has k times the examples. Return a dict with the efficiency for each k.

    in weak scaling, a perfect step takes the same time on any number of devices.
    """

    form = {float: float}
    returns = "return a dict with the keys of seconds"

    def right(self, seconds):
        return {k: seconds[1] / s for k, s in seconds.items()}

    def mistakes(self, _, right, seconds):
        yield (
            {k: e / k for k, e in right.items()},
            "each device does as much as one alone: do not divide by k",
        )
        yield {k: e * k for k, e in right.items()}, "that is the speed-up; divide it by k"
        yield {k: 1 / e for k, e in right.items()}, "the wrong way round: more than 1 would be better than perfect"


def _amdahl(*s, counts):
    """Speed-ups that follow Amdahl's law; if there are several s, the numbers of devices take turns."""
    return ({k: 1 / (part + (1 - part) / k) for k, part in zip(counts, itertools.cycle(s), strict=False)},)


ALL_COUNT = "no s fits all: fit one that every number of devices has a say in, not only the last, or the largest"


class serial_fraction(Exercise):
    """Write serial_fraction(speedups): speedups is a dict from the number of devices k to the speed-up. Return the s
    for which the speed-ups fit Amdahl's law, 1 / speed-up = s + (1 - s) / k. If each k needs another s, as measured
    speed-ups do, return one in between, for which every k but 1 counts.

    it limits the speed-up: any number of devices is at most 1/s times as fast as one.
    """

    cases = (
        *(_amdahl(0.25, counts=(2, 4)), _amdahl(0.1, counts=(1, 2, 8)), _amdahl(0.0, counts=(2, 16))),
        *(_amdahl(0.5, counts=(1, 3)), _amdahl(0.2, 0.3, counts=(2, 4)), _amdahl(0.1, 0.3, 0.2, counts=(8, 1, 2))),
    )
    hint = ON_PAPER
    raises = "for one device every s fits (0 = s · 0), so leave it out"

    def right(self, speedups):
        """The s of all numbers of devices; None if they differ, since it depends on the fit."""
        low, high = self.range(speedups)
        return high if same_value(low, high) else None

    def range(self, speedups):
        """The smallest and the largest s of a number of devices except 1."""
        each = [(1 / speedup - 1 / k) / (1 - 1 / k) for k, speedup in speedups.items() if k > 1]
        return min(each), max(each)

    def mistakes(self, found, s, speedups):
        k, last = list(speedups.items())[-1]
        if s is None:
            low, high = self.range(speedups)
            alone = not low + 1e-9 < found < high - 1e-9
            yield alone, f"the single k need an s of {low:.3g} to {high:.3g}", ALL_COUNT
            return
        yield 1 - s, "that is the part that shrinks; s is the other part"
        yield 1 - last / k, "that is 1 minus the efficiency; solve 1/S = s + (1 - s)/k for s"


def _phases(milliseconds):
    return dict(zip(("forward", "backward", "allreduce", "update"), milliseconds, strict=True))


class limiting_phase(Exercise):
    """Write limiting_phase(one, many, k): one and many are dicts from phases to milliseconds, for a step on one device
    and for the same step on k devices. Return the phase that loses the most time compared with a perfect split.

    that is the phase to work on.
    """

    cases = (
        (_phases((10.0, 20.0, 0.0, 1.0)), _phases((6.0, 11.0, 4.0, 1.0)), 2),
        (_phases((10.0, 20.0, 0.0, 3.0)), _phases((3.0, 6.0, 1.0, 3.0)), 4),
        (_phases((8.0, 8.0, 0.0, 1.0)), _phases((2.5, 6.0, 0.5, 1.0)), 4),
    )
    hint = "by how many ms is each phase longer than one[name] / k?"
    form = str
    returns = "return the name of a phase"
    raises = "a phase may take no time on one device"

    def right(self, one, many, k):
        """The phase that exceeds a k-th of its time on one device by the most."""
        return max(one, key=lambda name: many[name] - one[name] / k)

    def mistakes(self, found, _, one, many, k):
        yield max(many, key=many.get), "the longest phase may have shrunk as it should: compare it with one[name] / k"
        yield self.right(one, many, 1), "a perfect phase takes one[name] / k, not one[name]"
