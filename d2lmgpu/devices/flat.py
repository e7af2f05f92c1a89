"""Flat buffers: several arrays as consecutive parts of one buffer, so that they travel as one message.

Each message has a fixed cost, however short it is. As views of one buffer, LeNet's eight gradients are one message of
516 kB instead of eight messages, six of them tiny.
"""

import numpy as np

from .array import DeviceArray, array_module


def zeros_in_one_buffer(arrays):
    """A list of zeros in the shapes of the plain ``arrays`` (of one dtype): consecutive views of one buffer."""
    return parts_of(array_module(arrays[0]).zeros(sum(array.size for array in arrays), arrays[0].dtype), arrays)


def parts_of(buffer, arrays):
    """Consecutive views of the plain flat ``buffer``, in the shapes of ``arrays``."""
    parts = []
    start = 0
    for array in arrays:
        parts.append(buffer[start : start + array.size].reshape(array.shape))
        start += array.size
    return parts


def in_one_piece(arrays):
    """``[flat]``, a flat view of all the plain ``arrays``, if they lie one after the other in one buffer.

    Otherwise ``arrays`` itself.
    """
    base = _owner(arrays[0])
    start = end = _address(arrays[0])
    for array in arrays:
        owner = _owner(array)  # with CuPy it may be another object for the same memory
        if (
            (owner is not base and _address(owner) != _address(base))
            or array.dtype != arrays[0].dtype
            or not (array.flags.c_contiguous and base.flags.c_contiguous)
            or (array.size and _address(array) != end)
        ):
            return arrays
        end += array.nbytes
    place = slice(start - _address(base), end - _address(base))
    return [base.reshape(-1).view(np.uint8)[place].view(arrays[0].dtype)]


def _owner(array):
    return array if array.base is None else array.base


def _address(array):
    interface = getattr(array, "__cuda_array_interface__", None) or array.__array_interface__
    return interface["data"][0]


def one_buffer(arrays):
    """The device arrays, consecutive parts of one buffer, as one flat device array.

    Raises ValueError unless they are such parts, as those that `zeros_in_one_buffer` and `get_params` make.
    """
    raws = [array.raw for array in arrays]
    pieces = in_one_piece(raws)
    if pieces is raws:
        raise ValueError("one_buffer: the arrays are not the parts of one buffer, one after the other")
    return DeviceArray(pieces[0], arrays[0].device)
