"""Exercises for notebooks 10 and 10b: counting products, adding up gradients, buckets, and numbers of 16 bits."""

import numpy as np

from ..base.text import several
from .exercise import Exercise, call, close, expect, read, returned, same_value


class count_products(Exercise):
    """Write count_products(x_shape, weight_shape, input_grad): return the number of multiplications in the convolution
    of x (N, C, H, W) with weight (O, C, kh, kw), computed as matrix products, forward and backward together. With
    input_grad=False the gradient of x is not computed. There is no padding, the stride is 1; do not count biases.

    the counts are right for forward and backward, with and without the gradient of x.
    """

    cases = (
        ((1, 1, 28, 28), (20, 1, 3, 3), False),
        ((32, 20, 13, 13), (50, 20, 5, 5), True),
        ((3, 2, 9, 7), (4, 2, 3, 1), True),
        ((2, 3, 6, 8), (5, 3, 1, 4), False),
    )
    hint = "each output is a sum of C·kh·kw products; each gradient takes the same number as forward"

    def right(self, x_shape, weight_shape, input_grad):
        N, _, H, W = x_shape
        O, C, kh, kw = weight_shape
        return (2 + input_grad) * N * (H - kh + 1) * (W - kw + 1) * O * C * kh * kw

    def mistakes(self, _, right, x_shape, weight_shape, input_grad):
        N, _, H, W = x_shape
        *_, kh, kw = weight_shape
        one = right // ((H - kh + 1) * (W - kw + 1))  # the products for one output pixel of all images
        yield one * H * W, "there are fewer outputs than pixels: H - kh + 1 rows"
        yield right // N, "that is for one image, and there are N"
        yield right // (2 + input_grad), "that is only the forward pass; backward also needs products"
        yield right // (2 + input_grad) * 3, "with input_grad=False, one of the three products is not computed"
        yield 2 * right, "count only the multiplications, not the additions"


class accumulate_grads(Exercise):
    """Write accumulate_grads(grads_of, X, y, most): return the list of gradients of a minibatch X, y, summed over its
    images, computing at most `most` images at a time. grads_of(X, y) returns a list of gradients, summed over its
    images, and overwrites the same arrays in every call.

    the sum over the parts is the whole minibatch's gradient, even if the last part is smaller.
    """

    cases = ((8, 4), (9, 4), (5, 1), (3, 8))

    def words(self, n, most):
        return f"{several(n, 'image')}, at most {most} at a time"

    def test(self, answer, n, most):
        """Test with equal and unequal parts, with a single part, and with gradients in the same arrays each time."""
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(n, 3)), rng.integers(1, 5, n)
        scratch, sizes = [np.zeros(3), np.zeros(1)], []

        def grads_of(X, y):
            sizes.append(len(X))
            np.sum(X * y[:, None], axis=0, out=scratch[0])
            scratch[1][...] = y.sum()
            return scratch

        result = returned(call(answer, grads_of, X, y, most, hint="cut X and y at the same places"))
        grads = read(result, [np.ndarray], "return a list with an array for each parameter")
        said = f"parts of {sizes} images"
        expect(sizes and max(sizes) <= most, said, "range(0, len(X), most) gives the index at which each part begins")
        expect(sum(sizes) == n, f"{said}, {sum(sizes)} in all", "what about the last, smaller part?")
        sums = (X * y[:, None]).sum(axis=0), np.array([y.sum()])
        for which, grad, right, last in zip(("first", "second"), grads, sums, scratch, strict=True):
            self.compare(grad, right, n, len(sizes), last, what=f"the {which} gradient")
        grads_of(2 * X, y)
        overwritten = "right, but the arrays are those of grads_of, and its next call overwrites them"
        expect(same_value(read(result, [np.ndarray], self.returns), grads), overwritten, "add up in your own arrays")

    def mistakes(self, grad, right, n, parts, last):
        yield right / parts, "a mean", "gradients are summed over images; sgd divides once, by the batch size"
        overwritten = parts > 1 and close(grad, last)
        yield overwritten, "only the last part's: grads_of overwrote its arrays", "add up in your own arrays"
        yield True, "grads_of writes to the same arrays each time: copy what you keep from one call to the next"


_LENET = [720, 80, 100_000, 200, 409_600, 512, 5_120, 40]
_ORDER = "backward goes from the last layer to the first, and so do the buckets"
_LAST = "the last bucket, too, has to be sent, even if it is not full"


class buckets(Exercise):
    """Write buckets(sizes, limit): sizes[i] is the size of parameter i's gradient in bytes. Return a list of buckets,
    each a list of parameters' numbers, from the last parameter to the first. The next gradient goes into the same
    bucket if their sizes then sum to at most `limit`, or else into a new one, even if it is larger than that.

    each bucket is sent as soon as its last gradient is there.
    """

    cases = (([4] * 4, 8), (_LENET, 100_000), ([3, 5, 2, 6, 1], 7), ([9, 9], 5), ([1] * 3, 100), ([10], 10), ([], 5))
    hint = "put the next one into the same bucket as long as there is room for it"
    form = [[int]]
    returns = "return a list of buckets, each a list of the numbers of parameters, such as [[3, 2], [1, 0]]"

    def right(self, sizes, limit):
        """Buckets from the last parameter to the first, with as many as fit; one that is too large is alone."""
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
        yield sorted(flat) != list(range(len(sizes))), "not every gradient is in exactly one bucket", _LAST
        yield flat != sorted(flat, reverse=True), "out of order", _ORDER
        over = [bucket for bucket in found if len(bucket) > 1 and sum(sizes[i] for i in bucket) > limit]
        yield bool(over), f"{over[:1]} has more than {limit} bytes", "before you put one in, ask whether it still fits"


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
    hint = BITS
    form = np.ndarray
    returns = "return an array of float32 numbers"
    tolerance = 0

    def right(self, x):
        return _cut(x, 0x7FFF + ((x.view(np.uint32) >> 16) & 1).astype(np.uint64))

    def mistakes(self, found, _, x):
        yield found.dtype == np.uint32, "these are bits", "look at the bits as numbers again: .view(np.float32)"
        yield (
            x.astype(np.float16).astype(float),
            "that is float16",
            "bfloat16 has float32's 8 bits of exponent; " + BITS,
        )
        yield x, "nothing is rounded", BITS
        yield _cut(x, 0x8000), "ties should go to even", TIE
        yield _cut(x, 0x7FFF), "ties should go to even", TIE
        yield _cut(x), "yours is cut off", "about half of the numbers should go up: add before you cut"
        yield _cut(x, 0x10000), "always away from zero", "add half a last bit, not a whole"


ONES, INFINITE = np.ones((2, 3)), np.array([0, np.inf])


class next_scale(Exercise):
    """Write next_scale(scale, good_steps, grads, interval): return use, scale, good_steps. use says whether all arrays
    in grads are finite. If they are not, halve the scale (not below 1). After `interval` good steps in a row, double
    it. good_steps counts good steps since the last change or bad step.

    bad steps are skipped and halve the scale; enough good ones in a row double it.
    """

    without = ("mixed.adapt",)
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
