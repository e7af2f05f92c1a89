"""Exercises of notebook 15, the same in PyTorch and JAX: bfloat16 by its bits, and gradients in buckets."""

import numpy as np

from .exercise import Exercise
from .results import close, short

BITS = "keep the upper 16 of the 32 bits; the lower 16 decide whether to round up, that is, to add 1 to the upper 16"
TIE = "halfway between two, take the one whose last bit is 0: add 0x7FFF, and 1 more if the last kept bit is 1"


def _numbers(*shape, seed=5):
    """Random numbers, of very different magnitudes."""
    rng = np.random.default_rng(seed)
    return (rng.normal(0, 1, shape) * 10.0 ** rng.uniform(-20, 20, shape)).astype(np.float32)


def _cut(x, add=0):
    """Float32 numbers with only the upper 16 bits of x, after ``add`` was added to its bits."""
    bits = (x.view(np.uint32).astype(np.uint64) + add) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


class to_bfloat16(Exercise):
    """Write to_bfloat16(x): an array of float32 numbers, each rounded to the nearest bfloat16 (1 bit for the sign, 8
    for the exponent, 7 for the fraction), ties to the one whose last bit is 0. Return float32 numbers, whose lower 16
    bits are 0; x stays as it is. All numbers are finite, and stay so.

    to the nearest number with 7 bits of fraction, ties to even.
    """

    cases = [
        (np.array(numbers, np.float32),)
        for numbers in (
            (1 + 2**-9, 3.14159265, -0.1, 1 / 3),
            (1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, -1 - 3 * 2**-8),  # halfway between two bfloat16 numbers
            (0.0, 1.0, -2.5, 65536.0),
            (1e-30, -3e38, 7e-10, 123456789.0),
            _numbers(3, 40),
            (),
        )
    ]
    form = np.ndarray
    returns = "return an array of float32 numbers"
    keeps = "make a new array; x belongs to the caller"

    def draw(self, rng):
        return (_numbers(6, seed=rng),)

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


LENET = [720, 80, 100_000, 200, 409_600, 512, 5_120, 40]
ORDER = "backward goes from the last layer to the first, and so do the buckets"
LAST = "the last bucket, too, has to be sent, even if it is not full"


class buckets(Exercise):
    """Write buckets(sizes, limit): sizes[i] is the size of parameter i's gradient in bytes. Return a list of buckets,
    each a list of parameters' numbers, from the last parameter to the first. The next gradient goes into the same
    bucket if their sizes then sum to at most `limit`, or else into a new one, even if it is larger than that.

    each is sent as soon as its last gradient is there.
    """

    cases = (([4] * 4, 8), (LENET, 100_000), ([3, 5, 2, 6, 1], 7), ([9, 9], 5), ([1] * 3, 100), ([10], 10), ([], 5))
    hint = "put the next one into the same bucket as long as there is room for it"
    form = [[int]]
    returns = "return a list of buckets, each a list of the numbers of parameters, such as [[3, 2], [1, 0]]"

    def draw(self, rng):
        return list(map(int, rng.integers(1, 50, int(rng.integers(1, 20))))), int(rng.integers(20, 100))

    def right(self, sizes, limit):
        """From the last parameter to the first, as many as fit; one that is too large is alone."""
        found = []
        for i in reversed(range(len(sizes))):
            if not found or sum(sizes[j] for j in found[-1]) + sizes[i] > limit:
                found.append([])
            found[-1].append(i)
        return found

    def mistakes(self, found, right, sizes, limit):
        flat = [i for bucket in found for i in bucket]
        yield [[sizes[i] for i in bucket] for bucket in right], "these are the gradients' sizes", "return their numbers"
        yield [] in found, "a bucket is empty", "begin a new one only if there is something in it"
        yield sorted(flat) != list(range(len(sizes))), "not every gradient is in exactly one bucket", LAST
        yield flat == sorted(flat) and flat != flat[::-1], "the first parameter comes first", ORDER
        yield flat != sorted(flat, reverse=True), "out of order", ORDER
        over = [bucket for bucket in found if len(bucket) > 1 and sum(sizes[i] for i in bucket) > limit]
        yield bool(over), f"{over[:1]} has more than {limit} bytes", "before you put one in, ask whether it still fits"
