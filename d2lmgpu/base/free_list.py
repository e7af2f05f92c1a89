"""Programs that nothing uses at the moment, and that may be used again."""

import itertools


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
