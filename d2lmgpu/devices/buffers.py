"""Flat buffers: several arrays as consecutive parts of one buffer, so that they are sent as one message.

Each message has a fixed cost, however short it is. As views of one buffer, LeNet's eight gradients are one message of
516 kB instead of eight messages, six of them tiny."""

import itertools

from .array import array_module


def zeros_in_one_buffer(arrays):
    """A list of zeros in the shapes of the plain ``arrays`` (of one dtype): consecutive views of one buffer."""
    return parts_of(array_module(arrays[0]).zeros(sum(array.size for array in arrays), arrays[0].dtype), arrays)


def parts_of(buffer, arrays):
    """Consecutive views of the plain flat ``buffer``, in the shapes of ``arrays``."""
    ends = itertools.accumulate(array.size for array in arrays)
    return [buffer[end - array.size : end].reshape(array.shape) for end, array in zip(ends, arrays, strict=True)]
