"""Add arrays that may lie on another card: collectives use this where CuPy's own functions refuse or warn."""

import numpy as np

from ...devices.peers import PROBE, across
from ...devices.trials import works
from . import launch
from .run import run

ADDED = ("float32", "float64", "int64")
"""The dtypes of arrays that `add` takes."""


def add(target, message):
    """target += message, for flat CuPy arrays of one size and one of `ADDED`; the target's card is current.

    The message may lie on a card whose memory this one uses.
    """
    run(launch.add(target.size, str(target.dtype)), target, message, np.int32(target.size))


def adds_across(card, other):
    """Whether kernels on each of two cards, which have peer access, read the other's memory correctly; tried once."""

    def attempt():
        _try_add(card, other)
        _try_add(other, card)

    return works(f"gpu({card}) and gpu({other})", "adding across", "messages are copied before they are added", attempt)


def _try_add(card, other):
    numbers = np.random.default_rng(card).integers(1, 2**20, PROBE).astype(np.float32)
    sums = across(card, other, numbers, lambda target, message, stream: add(target, message))
    if not np.array_equal(sums, numbers + 1):
        raise RuntimeError(f"a kernel on gpu({card}) adds other numbers than those on gpu({other})")
