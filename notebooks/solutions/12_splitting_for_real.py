"""Solutions of notebook 12's exercises."""

import math
from fractions import Fraction


def one_f_one_b(k, micro_batches):
    """Some forwards ahead, then a backward and a forward in turn, then the backwards that are left."""
    devices = []
    for s in range(k):
        ahead = min(k - s, micro_batches)
        todo = [("F", s, m) for m in range(ahead)]
        for m in range(micro_batches):
            todo.append(("B", s, m))
            if m + ahead < micro_batches:
                todo.append(("F", s, m + ahead))
        devices.append(todo)
    return devices


def enough_micro_batches(k, bubble):
    """From (k - 1) / (m + k - 1) = bubble; as a fraction, so that rounding up finds no error of rounding."""
    bubble = Fraction(bubble).limit_denominator(10**6)
    return max(1, math.ceil((k - 1) * (1 - bubble) / bubble))
