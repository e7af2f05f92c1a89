"""Cards that use each other's memory: over NVLink or PCI Express, without the host in between.

CUDA must be asked for it, for each card and each direction. Otherwise a copy between two cards goes through the host's
memory, a kernel cannot read the other card's arrays, and no graph can hold such a copy.
"""

import contextlib

import numpy as np

from .errors import DeviceError
from .trials import works

PROBE = 4099
"""Elements that are copied to try a connection."""


def connect(card, other):
    """Let two cards use each other's memory; returns whether that works. It is tried once for each pair.

    Raises DeviceError for two cards between which not even copies through the host work.
    """
    card, other = min(card, other), max(card, other)
    if card == other:
        return True
    names, ways = f"gpu({card}) and gpu({other})", ((card, other), (other, card))
    instead = "copies between them go through the host"
    if works(names, "peer access", instead, lambda: _connect(ways)):
        return True
    if not works(names, "copies through the host", None, lambda: _try_copies(ways)):
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
            with contextlib.suppress(runtime.CUDARuntimeError):  # of a way that was not enabled
                _let(runtime.deviceDisablePeerAccess, here, there)
        raise


def _let(change, card, other):
    """Change whether ``card`` uses the other's memory."""
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
        if not np.array_equal(across(there, here, numbers, copy_async), numbers):
            raise RuntimeError(f"a copy of {numbers.nbytes} bytes from card {here} to card {there} arrives changed")


def across(card, other, numbers, work):
    """The target, as a NumPy array, after ``work(target, source, stream)``.

    The target (n,) is of ones on ``card``, the source holds ``numbers`` (n,) on the ``other`` card. ``card`` is
    current, and the stream is one of its own.
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
    """Copy between plain contiguous CuPy arrays of one size, in ``stream``, whose card is current.

    ``memcpyPeerAsync`` would do the same, but not while a graph is captured; ``memcpyAsync`` finds the cards by itself.
    """
    import cupy

    runtime = cupy.cuda.runtime
    runtime.memcpyAsync(target.data.ptr, source.data.ptr, source.nbytes, runtime.memcpyDefault, stream.ptr)
