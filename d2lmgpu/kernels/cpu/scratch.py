"""Scratch arrays of stages: those that are needed only while forward runs, or only while backward runs.

Programs that exist side by side, because each keeps something for backward, share their scratch arrays: when the second
one writes there, the first one no longer needs what it has written.

    program 0    | kept |                scratch arrays  ◄── the same memory
    program 1            | kept |        scratch arrays  ◄──┘
"""

import contextlib
import threading

import numpy as np

_thread = threading.local()


def scratch(shape, dtype):
    """A new array, or within `shared_scratch` the one that the other programs have at the same place in their lists."""
    shared = getattr(_thread, "shared", None)
    if shared is None:
        return np.empty(shape, dtype)
    number, _thread.asked = _thread.asked, _thread.asked + 1
    if number == len(shared):
        shared.append(np.empty(shape, dtype))
    return shared[number]


def scratch_of_zeros(shape, dtype):
    """The same, full of zeros. Elements stay 0 if all programs leave the same ones alone."""
    array = scratch(shape, dtype)
    array[...] = 0
    return array


def is_shared():
    """Whether scratch arrays are shared here, so that a program should keep little."""
    return getattr(_thread, "shared", None) is not None


@contextlib.contextmanager
def shared_scratch(shared):
    """Let all programs of the same form that are made in the block have the same scratch arrays.

    ``shared``: a list of these arrays, in the order in which such a program asks for them; the first program adds them.
    """
    _thread.shared, _thread.asked = shared, 0
    try:
        yield
    finally:
        _thread.shared = None


class RunningSum:
    """A sum over micro-batches, the ``total``, from `begin` on. The first term is written there directly."""

    def __init__(self, shape, dtype):
        self.total = scratch(shape, dtype)
        self._other = scratch(shape, dtype)

    def begin(self):
        """Forget the sum."""
        self._is_first = True

    def add(self, function, *arguments):
        """Add the result of ``function(*arguments, out=...)``."""
        function(*arguments, out=self.total if self._is_first else self._other)
        if not self._is_first:
            np.add(self.total, self._other, out=self.total)
        self._is_first = False
