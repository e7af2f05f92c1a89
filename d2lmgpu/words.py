"""Numbers and names in words, for lines that people read."""

FEW = 8
"""Up to this many names, all are listed; of more, only the first two and the last."""


def several(number, noun):
    """ "1 epoch", "10 epochs", "60,000 examples"."""
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun):
    """ "epochs", "micro-batches"."""
    return noun + ("es" if noun.endswith("batch") else "s")


def listed(names):
    """ "cpu(0), cpu(1)"; for many "cpu(0), cpu(1), ..., cpu(63)"."""
    names = list(map(str, names))
    return ", ".join(names if len(names) <= FEW else [*names[:2], "...", names[-1]])


def seconds(time, places=1):
    """A number of seconds without the unit: "2.2", or with as many significant digits if it is below 1: "0.034"."""
    return f"{time:.{places}f}" if time >= 1 else f"{time:#.{places + 1}g}"


def name_of(function):
    """A function's name, or the name of its class if it has none."""
    return getattr(function, "__name__", type(function).__name__)


REACHED = {"train_loss": "loss", "train_accuracy": "train acc", "test_accuracy": "test acc", "test_loss": "test loss"}
"""The lists of a history that say how good a network is, and their names in printed lines."""


def figures(reached):
    """ "loss 0.451, train acc 0.830, test acc 0.824": values with their names, except those that are None.

    The names are those in `REACHED`, and "metrics", which is a dict.
    """
    named = {called: reached.get(name) for name, called in REACHED.items()} | reached.get("metrics", {})
    return ", ".join(f"{name} {value:.3f}" for name, value in named.items() if value is not None)
