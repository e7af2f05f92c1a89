"""The solution of notebook 9b's exercise."""


def serial_fraction(speedups):
    """Least squares: 1/S - 1/k = s · (1 - 1/k), a line through zero."""
    x = [1 - 1 / k for k in speedups]
    y = [1 / speedup - 1 / k for k, speedup in speedups.items()]
    return sum(a * b for a, b in zip(x, y, strict=True)) / sum(a * a for a in x)
