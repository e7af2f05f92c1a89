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
    number, paper.asked = paper.asked, paper.asked + 1
    if number == len(paper.arrays):
        paper.arrays.append(np.empty(shape, dtype))
    return paper.arrays[number]


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
    """Let all programs of one form that are made here have the scratch arrays of the ``paper``."""
    _thread.paper = paper
    paper.asked = 0
    try:
        yield
    finally:
        _thread.paper = None


class Paper:
    """Scratch arrays in the order in which a program of one form asks for them."""

    def __init__(self):
        self.arrays, self.asked = [], 0
