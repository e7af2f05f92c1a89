"""Values, numbers, names and errors in words, for lines that people read."""

import math

import numpy as np

FEW = 8
"""Up to this many names, all are listed; of more, only the first two and the last."""

MAX_SHOWN = 80
"""The most characters of a value that an error shows."""

JOINERS = "\u200c\u200d"
"""Characters that are not printable, but a part of words and of emoji."""


def shown(value):
    """``value`` as an error message shows it: an array by its dtype and shape, any other long value shortened."""
    try:
        if hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, np.generic):
            place = f" on {value.device}" if hasattr(value, "raw") else ""
            return f"an array of {value.dtype} {tuple(value.shape)}{place}"
        with np.printoptions(legacy="1.25"):  # 3, not np.int64(3), even within lists and objects
            text = repr(value)
    except Exception:  # an object's repr may raise anything, even for an int of 5,000 digits
        text = f"<{type(value).__name__}>"
    return shortened(text)


def shortened(text):
    """``text`` on one line, with the middle left out if it is long."""
    return without_middle(" ".join(text.split()), MAX_SHOWN)


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


def legible(text, most=math.inf):
    """``text`` on one line, with what is not text escaped as in Python: control characters, bytes of files' names.

    ``most``: if it is longer than this many characters, the middle is left out.
    """
    shown = (c if c.isprintable() or c in JOINERS else c.encode("unicode_escape").decode() for c in text)
    return without_middle("".join(shown), most)


def without_middle(text, most):
    """``text``, with its middle left out if it is longer than ``most`` characters."""
    return text if len(text) <= most else f"{text[: most - 15]} ... {text[-10:]}"


def format_seconds(time, places=1):
    """A number of seconds without the unit: "2.2", or with as many significant digits if it is below 1: "0.034"."""
    return f"{time:.{places}f}" if time >= 1 else f"{time:#.{places + 1}g}"


def message_of(error):
    """An exception's message in one line, or its class's name if it has no message, as is common for MemoryErrors."""
    try:
        message = " ".join(str(error).split())
    except Exception:  # the __str__ of a user's class has failed
        message = "(its message cannot be read)"
    return message or type(error).__name__


def one_line(error):
    """The name of an exception's class, and its message, in one line."""
    kind, message = type(error).__name__, message_of(error)
    return kind if message == kind else f"{kind}: {message}"


def name_of(function):
    """A function's name, or the name of its class if it has none."""
    return getattr(function, "__name__", type(function).__name__)


REACHED = {"train_loss": "loss", "train_accuracy": "train acc", "test_accuracy": "test acc", "test_loss": "test loss"}
"""The lists of a history that say how good a network is, and their names in printed lines."""


def format_metrics(reached):
    """ "loss 0.451, train acc 0.830, test acc 0.824": values with their names, except those that are None.

    The names are those in `REACHED`, and "metrics", which is a dict.
    """
    named = {called: reached.get(name) for name, called in REACHED.items()} | reached.get("metrics", {})
    return ", ".join(f"{name} {value:.3f}" for name, value in named.items() if value is not None)
