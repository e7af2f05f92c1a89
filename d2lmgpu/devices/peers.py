"""Peer access: cards that use each other's memory, over NVLink or PCI Express, without the host in between.

It must be enabled in CUDA for each pair of cards and each direction. Otherwise a copy between two cards goes through
the host's memory, a kernel cannot read the other card's arrays, and no CUDA graph can contain a copy between them.
"""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .errors import DeviceError
from .probes import probe

PROBE = 4099
"""How many elements are copied to try a connection."""


class Adder(NamedTuple):
    """What adds arrays that may lie on two cards: ``add(target, message)``, for arrays of these ``dtypes``.

    ``works(card, other)``: whether it reads the other card's memory correctly, which is tried once.
    """

    add: Callable
    works: Callable
    dtypes: tuple


ADDERS = {}
"""{"gpu": its `Adder`}, entered by kernels/cuda: this room cannot import kernels, nor can collectives/, which adds."""


def connect(card, other):
    """Enable peer access between two cards, tried once for each pair; return whether it works.

    Raises DeviceError if not even copies through the host work between the two.
    """
    card, other = min(card, other), max(card, other)
    if card == other:
        return True
    names, ways = f"gpu({card}) and gpu({other})", ((card, other), (other, card))
    if probe(names, "peer access", "copies between them go through the host", lambda: _connect(ways)):
        return True
    if not probe(names, "copies through the host", None, lambda: _try_copies(ways)):
        raise DeviceError(f"{names} cannot exchange data, see above; use one of them at a time, or other devices")
    return False


def _connect(ways):
    import cupy

    runtime = cupy.cuda.runtime
    if not all(runtime.deviceCanAccessPeer(here, there) for here, there in ways):
        raise DeviceError("CUDA says that they cannot reach each other's memory")
    try:
        for here, there in ways:
            _let(runtime.deviceEnablePeerAccess, here, there)
        _try_copies(ways)
    except Exception:
        for here, there in ways:  # otherwise CUDA would still copy directly
            with contextlib.suppress(runtime.CUDARuntimeError):  # raised where this direction was not enabled
                _let(runtime.deviceDisablePeerAccess, here, there)
        raise


def _let(change, card, other):
    """Call ``change``, which enables or disables peer access to the ``other`` card, with ``card`` current."""
    import cupy

    with cupy.cuda.Device(card):
        try:
            change(other)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            if "already" not in str(error):  # other code in this process has done it
                raise


def _try_copies(ways):
    for here, there in ways:
        numbers = np.random.default_rng(here).integers(0, 2**31, PROBE).astype(np.int32)
        if not np.array_equal(try_across(there, here, numbers, copy_async), numbers):
            raise RuntimeError(f"a copy of {numbers.nbytes} bytes from card {here} to card {there} arrives changed")


def try_across(card, other, numbers, work):
    """Try work that reads another card: call ``work(target, source, stream)``; return the target as a NumPy array.

    The source is ``numbers`` (n,) on the ``other`` card, the target (n,) ones on ``card``. During the call ``card`` is
    current, and ``stream`` is a new stream of that card.
    """
    import cupy

    with cupy.cuda.Device(other), cupy.cuda.Stream(non_blocking=True) as stream:
        source = cupy.array(numbers)
        stream.synchronize()
    with cupy.cuda.Device(card), cupy.cuda.Stream(non_blocking=True) as stream:
        target = cupy.ones(numbers.shape, numbers.dtype)
        work(target, source, stream)
        return target.get()


def copy_async(target, source, stream):
    """Copy between plain contiguous CuPy arrays of the same size, in ``stream``, whose card is current.

    ``memcpyPeerAsync`` would do the same, but not while a graph is captured; ``memcpyAsync`` finds the cards by the
    addresses.
    """
    import cupy

    runtime = cupy.cuda.runtime
    runtime.memcpyAsync(target.data.ptr, source.data.ptr, source.nbytes, runtime.memcpyDefault, stream.ptr)
