"""Numbers and names in words, for lines that people read."""

FEW = 8
"""Names that are listed one by one; of more only the first two and the last."""


def several(number, noun):
    """ "1 epoch", "10 epochs", "60,000 examples"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def listed(names):
    """ "cpu(0), cpu(1)"; of many "cpu(0), cpu(1), ..., cpu(63)"."""
    names = list(map(str, names))
    return ", ".join(names if len(names) <= FEW else [*names[:2], "...", names[-1]])


def seconds(time, places=1):
    """A number of seconds without the unit, "2.2", with as many digits also where it is short: "0.034"."""
    return f"{time:.{places}f}" if time >= 1 else f"{time:#.{places + 1}g}"


def name_of(function):
    """A function's name, or its class's if it has none."""
    return getattr(function, "__name__", type(function).__name__)
