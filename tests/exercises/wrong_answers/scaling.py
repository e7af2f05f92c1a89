"""Wrong answers to the exercises of notebook 9. A docstring is a part of what the check should say."""

import statistics


def speedup_and_efficiency__upside_down(seconds):
    """the wrong way round: divide the seconds of one device by the seconds of k"""
    return {k: (mine / seconds[1], seconds[1] / mine / k) for k, mine in seconds.items()}


def speedup_and_efficiency__against_the_first(seconds):
    """compare with seconds[1], which may not be the first"""
    first = next(iter(seconds.values()))
    return {k: (first / mine, first / mine / k) for k, mine in seconds.items()}


def speedup_and_efficiency__twice_the_speedup(seconds):
    """divide the speed-up by k"""
    return {k: (seconds[1] / mine, seconds[1] / mine) for k, mine in seconds.items()}


def speedup_and_efficiency__per_cent(seconds):
    """a fraction, not a percentage"""
    return {k: (seconds[1] / mine, 100 * seconds[1] / mine / k) for k, mine in seconds.items()}


def speedup_and_efficiency__speedups_only(seconds):
    """a pair for each"""
    return {k: seconds[1] / mine for k, mine in seconds.items()}


def weak_efficiency__as_in_strong_scaling(seconds):
    """do not divide by k"""
    return {k: seconds[1] / mine / k for k, mine in seconds.items()}


def weak_efficiency__the_speedup(seconds):
    """that is the speed-up"""
    return {k: k * seconds[1] / mine for k, mine in seconds.items()}


def weak_efficiency__upside_down(seconds):
    """more than 1 would be better than perfect"""
    return {k: mine / seconds[1] for k, mine in seconds.items()}


def serial_fraction__what_shrinks(speedups):
    """that is the part that shrinks"""
    k, speedup = list(speedups.items())[-1]
    return 1 - (1 / speedup - 1 / k) / (1 - 1 / k)


def serial_fraction__what_is_missing(speedups):
    """solve 1/S = s + (1 - s)/k for s"""
    k, speedup = list(speedups.items())[-1]
    return 1 - speedup / k


def serial_fraction__one_device_counts(speedups):
    """for one device every s fits (0 = s · 0), so leave it out"""
    return statistics.mean((1 / speedup - 1 / k) / (1 - 1 / k) for k, speedup in speedups.items())


def limiting_phase__the_longest(one, many, k):
    """the longest phase may have shrunk as it should"""
    return max(many, key=many.get)


def limiting_phase__what_has_grown(one, many, k):
    """a perfect phase takes one[name] / k, not one[name]"""
    return max(many, key=lambda name: many[name] - one[name])


def limiting_phase__its_milliseconds(one, many, k):
    """return the name of a phase"""
    return max(many[name] - one[name] / k for name in one)


def limiting_phase__by_ratio(one, many, k):
    """by how many ms is each phase longer"""
    return max(many, key=lambda name: many[name] / (one[name] / k) if one[name] else 0)


def serial_fraction__the_last_alone(speedups):
    """the single k need an s of 0.2 to 0.3"""
    k, speedup = list(speedups.items())[-1]
    return (1 / speedup - 1 / k) / (1 - 1 / k)
