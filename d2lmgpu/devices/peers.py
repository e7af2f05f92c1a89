"""Cards that use each other's memory: over NVLink or PCI Express, without the host in between.

CUDA allows that only when it was asked to, for each card and each direction. Otherwise a copy between two cards takes
the way through the host's memory, a kernel cannot read the other card's arrays, and no graph can hold such a copy.
"""

import numpy as np

from .errors import DeviceError
from .trials import works

PROBE = 4099
"""Elements that are copied to try a way."""


def connect(card, other):
    """Let two cards use each other's memory, if they can. Returns whether they do; tried once for each pair.

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

    if not all(cupy.cuda.runtime.deviceCanAccessPeer(here, there) for here, there in ways):
        raise DeviceError("CUDA says that they cannot reach each other's memory")
    for here, there in ways:
        _enable(here, there)
    _try_copies(ways)


def _try_copies(ways):
    for here, there in ways:
        try_copy(here, there)


def _enable(card, other):
    import cupy

    with cupy.cuda.Device(card):
        try:
            cupy.cuda.runtime.deviceEnablePeerAccess(other)
        except cupy.cuda.runtime.CUDARuntimeError as error:
            if "already" not in str(error):  # somebody else's code in this process did it: as good
                raise


def try_copy(card, other):
    """Copy some numbers from one card to the other; raises RuntimeError if others arrive."""
    import cupy

    numbers = np.random.default_rng(card).integers(0, 2**31, PROBE).astype(np.int32)
    with cupy.cuda.Device(card), cupy.cuda.Stream(non_blocking=True) as stream:
        source = cupy.array(numbers)
        stream.synchronize()
    with cupy.cuda.Device(other), cupy.cuda.Stream(non_blocking=True) as stream:
        target = cupy.zeros(PROBE, np.int32)
        copy_async(target, source, stream)
        received = target.get()
    if not np.array_equal(received, numbers):
        raise RuntimeError(f"a copy of {numbers.nbytes} bytes from card {card} to card {other} arrives changed")


def copy_async(target, source, stream):
    """Copy between plain contiguous CuPy arrays of one size, in ``stream``, whose card is current.

    ``memcpyPeerAsync`` would do the same, but not while a graph is captured; this call finds the cards by itself.
    """
    import cupy

    runtime = cupy.cuda.runtime
    runtime.memcpyAsync(target.data.ptr, source.data.ptr, source.nbytes, runtime.memcpyDefault, stream.ptr)
