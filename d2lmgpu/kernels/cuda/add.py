"""Adding what may lie on another card: what collectives use there, where CuPy's own functions refuse or warn."""

import numpy as np

from . import launch
from .run import run

DTYPES = ("float32", "float64")
"""Of arrays that `add` takes."""


def add(target, message):
    """target += message, for flat CuPy arrays of one size and one of `DTYPES`; the target's card is current.

    The message may lie on a card whose memory this one uses.
    """
    run(launch.add(target.size, str(target.dtype)), target, message, np.int32(target.size))
