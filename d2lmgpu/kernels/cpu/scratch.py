"""Scratch arrays of stages: those that are needed only while forward goes on, or only while backward does.

Programs that keep something for backward, side by side, use one scratch paper: what the second one writes there, the
first one does not miss.

    program 0    | kept |                scratch arrays  ◄── the same memory
    program 1            | kept |        scratch arrays  ◄──┘
"""

import contextlib
import threading

import numpy as np

_thread = threading.local()


def scratch(shape, dtype):
    """A new array, or within `shared_scratch` the one that the other programs have at this place."""
    paper = getattr(_thread, "paper", None)
    if paper is None:
        return np.empty(shape, dtype)
    number, _thread.asked = _thread.asked, _thread.asked + 1
    if number == len(paper):
        paper.append(np.empty(shape, dtype))
    return paper[number]


def scratch_of_zeros(shape, dtype):
    """The same, full of zeros: they stay so, if all programs leave the same places alone."""
    array = scratch(shape, dtype)
    array[...] = 0
    return array


def is_shared():
    """Whether scratch arrays are shared here, so that what a program keeps is better small."""
    return getattr(_thread, "paper", None) is not None


@contextlib.contextmanager
def shared_scratch(paper):
    """Let all programs of one form that are made here have the same scratch arrays.

    ``paper``: a list of them, in the order in which such a program asks for them; the first one adds them.
    """
    _thread.paper, _thread.asked = paper, 0
    try:
        yield
    finally:
        _thread.paper = None
