"""Adding what may lie on another card: what collectives use there, where CuPy's own functions refuse or warn."""

import numpy as np

from ...devices.trials import works
from . import launch
from .run import run

DTYPES = ("float32", "float64")
"""Of arrays that `add` takes."""


def add(target, message):
    """target += message, for flat CuPy arrays of one size and one of `DTYPES`; the target's card is current.

    The message may lie on a card whose memory this one uses.
    """
    run(launch.add(target.size, str(target.dtype)), target, message, np.int32(target.size))


def adds_across(card, other):
    """Whether kernels on each of two cards, which use each other's memory, read the other's; tried once."""

    def attempt():
        _try_add(card, other)
        _try_add(other, card)

    return works(f"gpu({card}) and gpu({other})", "adding across", "messages are copied before they are added", attempt)


def _try_add(card, other):
    import cupy

    with cupy.cuda.Device(other), cupy.cuda.Stream(non_blocking=True) as stream:
        message = cupy.array(np.arange(1003, dtype=np.float32))
        stream.synchronize()
    with cupy.cuda.Device(card), cupy.cuda.Stream(non_blocking=True):
        target = cupy.ones(1003, np.float32)
        add(target, message)
        found = target.get()
    if not np.array_equal(found, np.arange(1, 1004)):
        raise RuntimeError(f"a kernel on gpu({card}) adds other numbers than those on gpu({other})")
