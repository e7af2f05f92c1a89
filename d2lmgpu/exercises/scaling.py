"""Exercises of notebook 9, scaling experiments: what to compute from times, and what to conclude from it."""

from ..arguments import shown
from ..words import several
from .checking import Exercise, Wrong, close, expect, number_of, result_of, with_hidden

TIMES = ({1: 8.0, 2: 5.0, 4: 4.0}, {4: 3.0, 1: 9.0}, {1: 2.0, 3: 2.5})


def _draw_times(rng):
    """From one device and several others, in any order."""
    counts = rng.permutation([1, *rng.choice(range(2, 65), 3, replace=False)])
    return {int(k): round(rng.uniform(1, 20), 2) for k in counts}


def try_speedup_and_efficiency(answer):
    """For each number of devices, whatever their order, both."""
    for seconds in with_hidden(TIMES, _draw_times):
        case = f"seconds per epoch {seconds}"
        result = _dict_of(result_of(answer, dict(seconds), case=case), seconds, case)
        for k, found in result.items():
            if not (isinstance(found, tuple | list) and len(found) == 2):
                raise Wrong(
                    f"{case}: for {several(k, 'device')} it says {shown(found)}",
                    "a pair for each: (speed-up, efficiency)",
                )
            right = seconds[1] / seconds[k]
            mistakes = (
                (1 / right, "the other way round: seconds of one device over seconds of k"),
                (k * right, "an epoch has the same number of examples on any k: its seconds are all you need"),
                (
                    next(iter(seconds.values())) / seconds[k],
                    "against one device, seconds[1], which need not come first",
                ),
            )
            _number(found[0], right, mistakes, f"{case}, {several(k, 'device')}: speed-up")
            mistakes = (
                (right, "of k devices' time, the part that is well spent: divide the speed-up by k"),
                (100 * right / k, "a part, not per cent: 1 is perfect"),
                (k / right, "the other way round: speed-up over devices"),
            )
            _number(found[1], right / k, mistakes, f"{case}, {several(k, 'device')}: efficiency")
    return "speed-up and efficiency for each number of devices."


def try_weak_efficiency(answer):
    """The ratio of the step times."""
    for seconds in with_hidden(TIMES, _draw_times):
        case = f"seconds per step {seconds}"
        for k, found in _dict_of(result_of(answer, dict(seconds), case=case), seconds, case).items():
            right = seconds[1] / seconds[k]
            mistakes = (
                (right / k, "each device does as much as one alone: k times the work is in it already"),
                (k * right, "that is the speed-up; the efficiency is a k-th of it"),
                (1 / right, "the other way round: more than 1 would be better than perfect"),
                (100 * right, "a part, not per cent: 1 is perfect"),
            )
            _number(found, right, mistakes, f"{case}, {several(k, 'device')}: efficiency")
    return "in weak scaling a perfect step takes as long on any number of devices."


FRACTIONS = ((0.25, (2, 4)), (0.1, (1, 2, 8)), (0.0, (2, 16)), (0.5, (1, 3)))
"""Amdahl's s, and numbers of devices."""


def _draw_fraction(rng):
    return round(rng.uniform(0.01, 0.9), 3), tuple(map(int, rng.choice(range(2, 65), 3, replace=False)))


def try_serial_fraction(answer):
    """s from speed-ups that follow Amdahl's law, one device among them or not."""
    for s, counts in with_hidden(FRACTIONS, _draw_fraction):
        speedups = {k: 1 / (s + (1 - s) / k) for k in counts}
        case = "speed-ups {" + ", ".join(f"{k}: {value:.4g}" for k, value in speedups.items()) + "}"
        hint = "of one device every s is right, 0 = s · 0: it says nothing, and must not count"
        found = result_of(answer, dict(speedups), case=case, hint=hint)
        k, last = counts[-1], speedups[counts[-1]]
        mistakes = (
            (1 - s, "that is the part which does shrink: s is the other"),
            (1 - last / k, "that is what is missing to efficiency 1; solve 1/S = s + (1 - s)/k for s"),
            (1 / last - 1 / k, "divide by 1 - 1/k: not all of 1/S - 1/k is s"),
            (sum(1 / v for v in speedups.values()) / len(counts), "1/S has the part in it that shrinks, too"),
            (100 * s, "a part, not per cent"),
            (0.0 if 1 in counts else None, "of one device 1/S - 1/k is 0 for every s: leave it out"),
        )
        _number(found, s, mistakes, f"{case}: s")
        expect(
            float(found) < 1e-6 or s > 0,
            f"{case}: s is {found:.3g} instead of 0",
            "perfect speed-up has no serial part",
        )
    return "from there follows how fast any number of devices can be: 1/s times as fast at most."


PHASES = (  # milliseconds on one device, on k, k
    ({"forward": 10.0, "backward": 20.0, "allreduce": 0.0, "update": 1.0}, (6.0, 11.0, 4.0, 1.0), 2),
    ({"forward": 10.0, "backward": 20.0, "allreduce": 0.0, "update": 3.0}, (3.0, 6.0, 1.0, 3.0), 4),
    ({"forward": 8.0, "backward": 8.0, "allreduce": 0.0, "update": 1.0}, (2.5, 6.0, 0.5, 1.0), 4),
)


def _draw_phases(rng):
    one = dict(zip(PHASES[0][0], (*rng.uniform(5, 20, 2).round(1), 0.0, 1.0), strict=True))
    return one, tuple(map(float, rng.uniform(1, 20, 4).round(1))), int(rng.integers(2, 9))


def try_limiting_phase(answer):
    """The phase that is longest beyond a k-th of what it is on one device."""
    for one, times, k in with_hidden(PHASES, _draw_phases):
        many = dict(zip(one, times, strict=True))
        lost = {name: many[name] - one[name] / k for name in one}
        right = max(lost, key=lost.get)
        case = f"{one} ms on one device, {many} ms on {k}"
        found = result_of(answer, dict(one), dict(many), k, case=case, hint="a phase may take no time on one device")
        said = f"{case}: {shown(found)}"
        expect(type(found) is str and found in one, said, "return the name of a phase")
        if found == right:
            continue
        grown = {name: many[name] - one[name] for name in one}
        hints = (
            (
                found == max(many, key=many.get),
                "the longest phase may have shrunk as it should: compare with one[name] / k",
            ),
            (
                found == max(grown, key=grown.get),
                "perfect is not what one device needs but a k-th of it: one[name] / k",
            ),
            (True, "by how many ms is each phase longer than one[name] / k?"),
        )
        raise Wrong(said, next(hint for fits, hint in hints if fits))
    return "that is the phase to work on."


def _dict_of(result, seconds, case):
    """The result, or `Wrong` if it has not a value for each number of devices."""
    if not isinstance(result, dict) or set(result) != set(seconds):
        raise Wrong(
            f"{case}: it returned {shown(result)}", f"return a dict with the keys {', '.join(map(str, seconds))}"
        )
    return result


def _number(found, right, mistakes, what):
    """Raise `Wrong`, with the hint of the mistake that was made, unless the number is right."""
    found = number_of(found, what, "one number")
    if close(found, right) or abs(found - right) < 1e-9:
        return
    for mistake, hint in mistakes:
        expect(mistake is None or not close(found, mistake), f"{what} is {found:.4g} instead of {right:.4g}", hint)
    raise Wrong(f"{what} is {found:.4g} instead of {right:.4g}", "work the first case out on paper")


EXERCISES = {
    "speedup_and_efficiency": Exercise(
        "Write speedup_and_efficiency(seconds): a dict of the seconds of an epoch by the number of devices, such as "
        "{1: 8.0, 2: 5.0}; return a dict with a pair (speed-up, efficiency) for each number of devices.",
        try_speedup_and_efficiency,
    ),
    "weak_efficiency": Exercise(
        "Write weak_efficiency(seconds): a dict of the seconds of a step by the number of devices k, in weak scaling: "
        "the step on k devices has k times the examples; return a dict with the efficiency for each k.",
        try_weak_efficiency,
    ),
    "serial_fraction": Exercise(
        "Write serial_fraction(speedups): a dict of speed-ups by the number of devices; return s of Amdahl's law, "
        "1 / speed-up = s + (1 - s) / k, which fits them.",
        try_serial_fraction,
    ),
    "limiting_phase": Exercise(
        "Write limiting_phase(one, many, k): dicts of milliseconds by phase, of a step on one device and of the same "
        "step on k devices; return the name of the phase in which most time is lost against a perfect split.",
        try_limiting_phase,
    ),
}
