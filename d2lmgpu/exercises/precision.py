"""Exercises for notebook 10b, numbers of 16 bits: bfloat16 by its bits, and a loss scale that adjusts itself."""

import numpy as np

from .exercise import Exercise
from .results import close, short

BITS = "keep the upper 16 of the 32 bits; the lower 16 decide whether to round up, that is, to add 1 to the upper 16"
TIE = "halfway between two, take the one whose last bit is 0: add 0x7FFF, and 1 more if the last kept bit is 1"


def _numbers(*shape):
    """Random numbers of very different magnitudes."""
    rng = np.random.default_rng(5)
    return (rng.normal(0, 1, shape) * 10.0 ** rng.uniform(-20, 20, shape)).astype(np.float32)


def _cut(x, add=0):
    """Float32 numbers with only the upper 16 bits of x, after adding ``add`` to its bits."""
    bits = (x.view(np.uint32).astype(np.uint64) + add) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


class to_bfloat16(Exercise):
    """Write to_bfloat16(x): an array of float32 numbers, each rounded to the nearest bfloat16 (1 bit for the sign, 8
    for the exponent, 7 for the fraction), ties to the one whose last bit is 0. Return float32 numbers, whose lower 16
    bits are 0; x stays as it is. All numbers are finite, and stay so.

    each is rounded to the nearest number with 7 bits of fraction, ties to even.
    """

    cases = [
        (np.array(numbers, np.float32),)
        for numbers in (
            (1 + 2**-9, 3.14159265, -0.1, 1 / 3),
            (1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, -1 - 3 * 2**-8),  # halfway between two bfloat16 numbers
            (0.0, 1.0, -2.5, 65536.0),
            (1e-30, -3e38, 123456789.0, 1.999, -65535.0),  # the last two go up to the next exponent
            _numbers(3, 40),
            (),
        )
    ]
    form = np.ndarray
    returns = "return an array of float32 numbers"

    def mistakes(self, found, _, x):
        odd = (x.view(np.uint32) >> 16) & 1
        right = _cut(x, 0x7FFF + odd.astype(np.uint64))
        if found.dtype == np.float32 and close(found, right, 0):
            return
        said, half = f"it should be {short(right)}", x.astype(np.float16).astype(np.float32)
        yield found.shape != x.shape, f"shape {found.shape} instead of {x.shape}", "as many numbers as x has"
        yield found.dtype == np.uint32, "these are bits", "look at the bits as numbers again: .view(np.float32)"
        yield close(found, right, 0), f"right, but in {found.dtype}", "return float32 numbers: .view(np.float32)"
        yield half, f"{said}; that is float16", "bfloat16 has float32's 8 bits of exponent; " + BITS
        yield x, f"{said}; nothing is rounded", BITS
        yield _cut(x, 0x8000), f"{said}; ties should go to even", TIE
        yield _cut(x, 0x7FFF), f"{said}; ties should go to even", TIE
        yield _cut(x), f"{said}; yours is cut off", "about half of the numbers should go up: add before you cut"
        yield _cut(x, 0x10000), f"{said}; always away from zero", "add half a last bit, not a whole"
        yield True, said, BITS


ONES, INFINITE = np.ones((2, 3)), np.array([0, np.inf])


class next_scale(Exercise):
    """Write next_scale(scale, good_steps, grads, interval): return use, scale, good_steps. use says whether all arrays
    in grads are finite. If they are not, halve the scale (not below 1). After `interval` good steps in a row, double
    it. good_steps counts good steps since the last change or bad step.

    bad steps are skipped and halve the scale; enough good ones in a row double it.
    """

    without = ("loss_scale.adapt",)
    cases = {
        "a good step": (1024.0, 6, [ONES, np.ones(2)], 10),
        "the seventh good step in a row, with an interval of 7": (1024.0, 6, [ONES, np.ones(2)], 7),
        "an infinite gradient": (1024.0, 3, [ONES, INFINITE], 10),
        "a gradient that is NaN": (1024.0, 6, [np.array([1.0, np.nan]), ONES], 7),
        "a gradient of minus infinity": (64.0, 0, [ONES, -INFINITE], 10),
        "an infinite gradient at scale 1.5": (1.5, 5, [ONES, INFINITE], 10),
        "large gradients, but finite": (8.0, 1, [np.array([60000.0, 1e30, 3e38, 3e38], np.float32)], 10),
    }
    hint = "the count of good steps restarts from 0 after a change or a bad step"
    form = (bool, float, float)
    returns = "return use, scale, good_steps; use is True or False"

    def right(self, scale, good_steps, grads, interval):
        if not all(np.isfinite(grad).all() for grad in grads):
            return False, max(1.0, scale / 2), 0
        return (True, scale, good_steps + 1) if good_steps + 1 < interval else (True, 2 * scale, 0)

    def mistakes(self, found, right, *_):
        (use, scale, _), (right_use, right_scale, _) = found, right
        yield use != right_use, "a step is used only if all gradients are finite: no array has an infinite value or NaN"
        yield scale != right_scale and right_use, "it doubles after `interval` good steps in a row, and otherwise stays"
        yield scale != right_scale, "after a bad step the scale is halved, but never below 1"
