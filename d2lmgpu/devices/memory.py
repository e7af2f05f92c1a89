"""How much memory the arrays of a virtual device take, and the limit to it.

A GPU has so much memory and no more. A virtual device has the machine's, unless
it is given a limit: then it counts the arrays that it holds, and refuses one too
many, as a GPU does. Nothing is set aside beforehand: memory is taken as arrays are made.
"""

import threading
import weakref

import numpy as np

from ..arguments import check_whole
from .errors import DeviceMemoryError

MOST_BYTES = 2**50
"""A pebibyte, which no machine has."""


class MemoryAccounting:
    """Counts the bytes of live arrays of ``device``; views count as the array that they look at."""

    def __init__(self, device, limit):
        self.device, self.limit, self.used = device, limit, 0
        self._lock = threading.RLock()  # an array may be freed while another is entered
        self._known = set()  # the identities of the arrays counted

    def enter(self, raw):
        """Count a plain array. Raises DeviceMemoryError if it is one too many."""
        while isinstance(raw.base, np.ndarray):
            raw = raw.base
        with self._lock:
            if id(raw) in self._known:
                return
            if self.used + raw.nbytes > self.limit:
                raise DeviceMemoryError(
                    f"{self.device} is out of memory: {raw.nbytes:,} bytes asked for, {self.used:,} of its limit of "
                    f"{self.limit:,} are in use; more devices help, a higher limit, and in training smaller minibatches"
                )
            self.used += raw.nbytes
            self._known.add(id(raw))
        weakref.finalize(raw, self._leave, id(raw), raw.nbytes)

    def _leave(self, key, nbytes):
        with self._lock:
            self._known.remove(key)
            self.used -= nbytes


def check_bytes(nbytes):
    """``nbytes`` as an int, if it is a number of bytes; ValueError otherwise."""
    check_whole("a limit in bytes", nbytes, most=MOST_BYTES)
    return int(nbytes)
