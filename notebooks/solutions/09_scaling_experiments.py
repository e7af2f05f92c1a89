"""Solutions of notebook 9's exercises."""


def speedup_and_efficiency(seconds):
    """Against one device."""
    return {k: (seconds[1] / mine, seconds[1] / mine / k) for k, mine in seconds.items()}


def weak_efficiency(seconds):
    """A perfect step takes as long on any number of devices."""
    return {k: seconds[1] / mine for k, mine in seconds.items()}


def limiting_phase(one, many, k):
    """Perfect would be a k-th of each phase."""
    return max(many, key=lambda name: many[name] - one[name] / k)


def serial_fraction(speedups):
    """Least squares: 1/S - 1/k = s · (1 - 1/k), a line through zero."""
    x = [1 - 1 / k for k in speedups]
    y = [1 / speedup - 1 / k for k, speedup in speedups.items()]
    return sum(a * b for a, b in zip(x, y, strict=True)) / sum(a * a for a in x)
