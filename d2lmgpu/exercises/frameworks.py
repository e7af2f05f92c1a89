"""Exercises of notebook 15, the same in PyTorch and JAX: bfloat16 by its bits, and gradients in buckets."""

import numpy as np

from .checking import Exercise, Wrong, array_of, expect, list_of, random_numbers, result_of, short, with_hidden

TIES = (1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, -1 - 3 * 2**-8)
"""As far from one bfloat16 as from the next."""
NUMBERS = (
    (1 + 2**-9, 3.14159265, -0.1, 1 / 3),
    TIES,
    (0.0, 1.0, -2.5, 65536.0),
    (1e-30, -3e38, 7e-10, 123456789.0),
)
BITS = "of 32 bits keep the upper 16; the lower 16 say whether to round up, which is to add 1 to the upper ones"


def try_to_bfloat16(answer):
    """To the nearest, ties to even; new float32 numbers, in the same shape."""
    rows = with_hidden(NUMBERS, lambda rng: tuple(rng.normal(0, 1, 6) * 10.0 ** rng.uniform(-20, 20, 6)))
    cases = [np.array(row, np.float32) for row in rows]
    cases += [random_numbers(5).normal(0, 1, (3, 40)).astype(np.float32), np.zeros((0,), np.float32)]
    for x in cases:
        case, given = f"to_bfloat16({short(x)})", x.copy()
        found = array_of(result_of(answer, given, case=case), case, "return an array of float32 numbers")
        expect(np.array_equal(given, x), f"{case}: it changed x", "make a new array; x belongs to somebody else")
        expect(found.shape == x.shape, f"{case}: shape {found.shape} instead of {x.shape}", "as many numbers as x has")
        right = _rounded(x)
        if found.dtype == np.float32 and np.array_equal(found, right):
            continue
        said = f"{case}: {short(found)} instead of {short(right)}"
        with np.errstate(over="ignore"):
            half = x.astype(np.float16).astype(np.float32)
        mistakes = (
            (found.dtype == np.uint32, "these are bits", "look at the bits as numbers again: .view(np.float32)"),
            (_same(found, half), "that is float16", "bfloat16 has float32's 8 bits of exponent; " + BITS),
            (_same(found, x), "nothing is rounded", BITS),
            (_same(found, right), f"right, but in {found.dtype}", "return float32 numbers: .view(np.float32)"),
            (_same(found, _cut(x, 0x8000)), "ties should go to even", TIE),
            (_same(found, _cut(x, 0x7FFF)), "ties should go to even", TIE),
            (_same(found, _cut(x)), "cut off, not rounded", "half of them should go up: add before you cut"),
            (_same(found, _cut(x, 0x10000)), "always away from zero", "to the nearest: add half, not a whole"),
        )
        for made, what, hint in mistakes:
            if made:
                raise Wrong(f"{said}: {what}", hint)
        raise Wrong(said, BITS)
    return "to the nearest number with 7 bits of fraction, ties to even."


TIE = "exactly between two, take the one whose last bit is 0: add 0x7FFF, and 1 more if the last kept bit is 1"


def _cut(x, add=0):
    """The upper 16 bits, after something was added."""
    bits = (x.view(np.uint32).astype(np.uint64) + add) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


def _rounded(x):
    odd = (x.view(np.uint32) >> 16) & 1
    return _cut(x, 0x7FFF + odd.astype(np.uint64))


def _same(found, mistake):
    return found.dtype.kind == "f" and found.size > 0 and np.array_equal(found, mistake)


PACKED = (
    ((4, 4, 4, 4), 8),
    ((720, 80, 100_000, 200, 409_600, 512, 5_120, 40), 100_000),
    ((3, 5, 2, 6, 1), 7),
    ((9, 9), 5),
    ((1, 1, 1), 100),
    ((10,), 10),
    ((), 5),
)
"""Bytes of gradients in the order of the parameters (the second are LeNet's), and of a bucket."""


def _draw_packed(rng):
    return tuple(map(int, rng.integers(1, 50, int(rng.integers(1, 20))))), int(rng.integers(20, 100))


def try_buckets(answer):
    """From the last parameter to the first, as many as fit, one that is too large alone."""
    for sizes, limit in with_hidden(PACKED, _draw_packed):
        case = f"buckets({list(sizes)}, {limit})"
        found = _lists(result_of(answer, list(sizes), limit, case=case), case)
        right = _packed(sizes, limit)
        if found == right:
            continue
        said = f"{case}: {found} instead of {right}"
        flat = [i for bucket in found for i in bucket]
        over = [bucket for bucket in found if len(bucket) > 1 and _total(bucket, sizes) > limit]
        mistakes = (
            (found == [[sizes[i] for i in bucket] for bucket in right], "these are sizes", "return the numbers"),
            (
                any(not bucket for bucket in found),
                "a bucket is empty",
                "begin a new one only if there is something in it",
            ),
            (sorted(flat) != list(range(len(sizes))), "not every gradient is there once", LAST),
            (flat == sorted(flat) and flat != flat[::-1], "the first parameter's come first", ORDER),
            (flat != sorted(flat, reverse=True), "out of order", ORDER),
            (bool(over), f"{over[:1]} has more than {limit} bytes", "look before you put it in: would it be too much?"),
        )
        for made, what, hint in mistakes:
            if made:
                raise Wrong(f"{said}: {what}", hint)
        raise Wrong(said, "put the next one into the same bucket as long as there is room for it")
    return "each is sent as soon as its last gradient is there."


ORDER = "backward goes from the last layer to the first, and so do the buckets"
LAST = "the last bucket, too, has to be sent, even if it is not full"


def _packed(sizes, limit):
    found = []
    for i in reversed(range(len(sizes))):
        if found and _total(found[-1], sizes) + sizes[i] <= limit:
            found[-1].append(i)
        else:
            found.append([i])
    return found


def _total(bucket, sizes):
    return sum(sizes[i] for i in bucket if 0 <= i < len(sizes))


def _lists(result, case):
    hint = "return a list of buckets, each a list of the numbers of parameters, such as [[3, 2], [1, 0]]"
    found = [list_of(bucket, f"{case}: a bucket", hint) for bucket in list_of(result, case, hint)]
    whole = all(isinstance(i, int | np.integer) and not isinstance(i, bool) for bucket in found for i in bucket)
    expect(whole, f"{case}: a bucket has something else in it than whole numbers", hint)
    expect(sum(map(len, found)) < 100, f"{case}: {sum(map(len, found))} numbers in buckets", hint)
    huge = any(not 0 <= i < 10**9 for bucket in found for i in bucket)
    expect(not huge, f"{case}: a bucket has a number in it that no parameter has", hint)
    return [[int(i) for i in bucket] for bucket in found]


EXERCISES = {
    "to_bfloat16": Exercise(
        "Write to_bfloat16(x): an array of float32 numbers, each rounded to the nearest bfloat16 (1 bit for the sign, "
        "8 for the exponent, 7 for the fraction), ties to the one whose last bit is 0. Return float32 numbers, whose "
        "lower 16 bits are 0; x stays as it is. All numbers are finite, and stay so.",
        try_to_bfloat16,
    ),
    "buckets": Exercise(
        "Write buckets(sizes, limit): sizes[i] is the size of parameter i's gradient in bytes. Return a list of "
        "buckets, each a list of parameters' numbers, from the last parameter to the first. The next gradient goes "
        "into the same bucket if their sizes then sum to at most `limit`, or else into a new one, even if it is larger "
        "than that.",
        try_buckets,
    ),
}
