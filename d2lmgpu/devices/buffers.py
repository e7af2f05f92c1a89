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


# Programs that nothing uses at the moment, and that may be used again.


class FreeList:
    """Programs that nothing uses at the moment, at most ``most`` of them; a key says what each is for.

    It is changed by single calls only, so it needs no lock.
    """

    def __init__(self, most):
        self.most, self._programs, self._numbers = most, {}, itertools.count()

    def take(self, key):
        """The program with this key that was given back last, or None."""
        for number, (other, program) in reversed(list(self._programs.items())):
            if other == key and self._programs.pop(number, None) is not None:  # else another thread was faster
                return program
        return None

    def give_back(self, key, program):
        """Keep a program, and forget those that have not been used for the longest time."""
        self._programs[next(self._numbers)] = key, program
        for number in list(self._programs)[: -self.most]:
            self._programs.pop(number, None)
