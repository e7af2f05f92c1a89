"""Exercises of notebook 9, scaling experiments: what to compute from times, and what to conclude from it."""

from .checking import Exercise
from .results import close

TIMES = (({1: 8.0, 2: 5.0, 4: 4.0},), ({4: 3.0, 1: 9.0},), ({1: 2.0, 3: 2.5},))
PER_CENT = "a fraction, not a percentage: 1 is perfect"
ON_PAPER = "work the first case out on paper"


def _draw_times(rng):
    """From one device and several others, in any order."""
    counts = rng.permutation([1, *rng.choice(range(2, 65), 3, replace=False)])
    return ({int(k): round(rng.uniform(1, 20), 2) for k in counts},)


def _speedups(seconds):
    """Speed-up and efficiency for each number of devices, in any order."""
    return {k: (seconds[1] / s, seconds[1] / s / k) for k, s in seconds.items()}


def _speedup_mistakes(found, right, seconds):
    first = next(iter(seconds.values()))
    if any(not close(found[k][0], right[k][0]) for k in seconds):
        return (
            ({k: (s / seconds[1], ...) for k, s in seconds.items()}, INVERTED),
            ({k: (k * seconds[1] / s, ...) for k, s in seconds.items()}, SAME_EPOCH),
            ({k: (first / s, ...) for k, s in seconds.items()}, NOT_FIRST),
        )
    return (
        ({k: (..., s) for k, (s, _) in right.items()}, WELL_SPENT),
        ({k: (..., 100 * e) for k, (_, e) in right.items()}, PER_CENT),
        ({k: (..., 1 / e) for k, (_, e) in right.items()}, "the other way round: speed-up over devices"),
    )


INVERTED = "the other way round: seconds of one device over seconds of k"
SAME_EPOCH = "an epoch has the same examples on any number of devices: do not multiply by k"
NOT_FIRST = "compare with one device, seconds[1]; it need not be the first entry"
WELL_SPENT = "the fraction of the k devices' time that is well spent: divide the speed-up by k"


def _weak_mistakes(_, right, seconds):
    return (
        ({k: e / k for k, e in right.items()}, "each of the k devices does as much as one alone: do not divide by k"),
        ({k: e * k for k, e in right.items()}, "that is the speed-up; the efficiency is a k-th of it"),
        ({k: 1 / e for k, e in right.items()}, "the other way round: more than 1 would be better than perfect"),
        ({k: 100 * e for k, e in right.items()}, PER_CENT),
    )


def _amdahl(s, counts):
    """Speed-ups that follow Amdahl's law."""
    return ({k: 1 / (s + (1 - s) / k) for k in counts},)


def _fraction(speedups):
    """s of Amdahl's law, from the largest number of devices: all tell it, except 1."""
    k = max(speedups)
    return (1 / speedups[k] - 1 / k) / (1 - 1 / k)


def _fraction_mistakes(_, s, speedups):
    k, last = list(speedups.items())[-1]
    return (
        (1 - s, "that is the part that does shrink; s is the other"),
        (1 - last / k, "that is 1 minus the efficiency; solve 1/S = s + (1 - s)/k for s"),
        (1 / last - 1 / k, "divide by 1 - 1/k: not all of 1/S - 1/k is s"),
        (100 * s, "a fraction, not a percentage"),
        (0.0 if 1 in speedups else None, "for one device 1/S - 1/k is 0 for every s: leave it out"),
    )


def _draw_phases(rng):
    one, many = (*rng.uniform(5, 20, 2).round(1).tolist(), 0.0, 1.0), rng.uniform(1, 20, 4).round(1).tolist()
    return _phases(one), _phases(many), int(rng.integers(2, 9))


def _phases(milliseconds):
    return dict(zip(("forward", "backward", "allreduce", "update"), milliseconds, strict=True))


def _limiting(one, many, k):
    """The phase that exceeds a k-th of its time on one device by the most."""
    return max(one, key=lambda name: many[name] - one[name] / k)


def _limiting_mistakes(found, _, one, many, k):
    return (
        (found not in one, "return the name of a phase"),
        (max(many, key=many.get), "the longest phase may have shrunk as it should: compare with one[name] / k"),
        (_limiting(one, many, 1), "perfect is not what one device needs but a k-th of it: one[name] / k"),
    )


EXERCISES = {
    "speedup_and_efficiency": Exercise(
        "Write speedup_and_efficiency(seconds): a dict of the seconds of an epoch by the number of devices, such as "
        "{1: 8.0, 2: 5.0}; return a dict with a pair (speed-up, efficiency) for each number of devices.",
        "speed-up and efficiency for each number of devices.",
        cases=TIMES,
        draw=_draw_times,
        right=_speedups,
        mistakes=_speedup_mistakes,
        hint=ON_PAPER,
        form={float: (float, float)},
        returns="return a dict with the keys of seconds, and a pair for each: (speed-up, efficiency)",
    ),
    "weak_efficiency": Exercise(
        "Write weak_efficiency(seconds): a dict of the seconds of a step by the number of devices k, in weak scaling: "
        "the step on k devices has k times the examples; return a dict with the efficiency for each k.",
        "in weak scaling a perfect step takes as long on any number of devices.",
        cases=TIMES,
        draw=_draw_times,
        right=lambda seconds: {k: seconds[1] / s for k, s in seconds.items()},
        mistakes=_weak_mistakes,
        hint=ON_PAPER,
        form={float: float},
        returns="return a dict with the keys of seconds",
    ),
    "serial_fraction": Exercise(
        "Write serial_fraction(speedups): a dict of speed-ups by the number of devices; return s of Amdahl's law, "
        "1 / speed-up = s + (1 - s) / k, which fits them.",
        "it limits the speed-up: however many devices there are, they are at most 1/s times as fast.",
        cases=(_amdahl(0.25, (2, 4)), _amdahl(0.1, (1, 2, 8)), _amdahl(0.0, (2, 16)), _amdahl(0.5, (1, 3))),
        draw=lambda rng: _amdahl(
            round(rng.uniform(0.01, 0.9), 3), map(int, rng.choice(range(2, 65), 3, replace=False))
        ),
        right=_fraction,
        mistakes=_fraction_mistakes,
        hint=ON_PAPER,
        raises="of one device every s is right, 0 = s · 0: it says nothing, and must not count",
    ),
    "limiting_phase": Exercise(
        "Write limiting_phase(one, many, k): dicts of milliseconds by phase, of a step on one device and of the same "
        "step on k devices; return the name of the phase in which most time is lost against a perfect split.",
        "that is the phase to work on.",
        cases=(
            (_phases((10.0, 20.0, 0.0, 1.0)), _phases((6.0, 11.0, 4.0, 1.0)), 2),
            (_phases((10.0, 20.0, 0.0, 3.0)), _phases((3.0, 6.0, 1.0, 3.0)), 4),
            (_phases((8.0, 8.0, 0.0, 1.0)), _phases((2.5, 6.0, 0.5, 1.0)), 4),
        ),
        draw=_draw_phases,
        right=_limiting,
        mistakes=_limiting_mistakes,
        hint="by how many ms is each phase longer than one[name] / k?",
        form=str,
        returns="return the name of a phase",
        raises="a phase may take no time on one device",
    ),
}
