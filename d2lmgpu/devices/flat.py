"""Flat buffers: several arrays as consecutive parts of one, so that they travel as one message.

A message costs time for being sent, however short it is. LeNet's eight gradients
as views of one buffer are one message of 516 kB instead of eight, six of them tiny.
"""

from .array import DeviceArray, array_module


def zeros_in_one_buffer(arrays):
    """Zeros like each of the plain ``arrays`` (of one dtype), in the order of the list in one buffer."""
    buffer = array_module(arrays[0]).zeros(sum(array.size for array in arrays), arrays[0].dtype)
    parts = []
    start = 0
    for array in arrays:
        parts.append(buffer[start : start + array.size].reshape(array.shape))
        start += array.size
    return parts


def one_buffer(arrays):
    """The buffer that the device arrays are the parts of, as one flat device array.

    Raises ValueError unless they were made by `zeros_in_one_buffer`.
    """
    buffer = arrays[0].raw.base
    if buffer is None or buffer.ndim != 1 or buffer.size != sum(array.size for array in arrays):
        raise ValueError("one_buffer: the arrays are not the parts of one buffer, in order, and all of them")
    return DeviceArray(buffer, arrays[0].device)
