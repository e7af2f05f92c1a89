"""Exercises for notebook 2, LeNet by hand: a layer as a pair, max pooling's backward, and a safe log-softmax."""

import numpy as np

from ..layers import max_pool2d, max_pool2d_grad
from .exercise import RUN_IT, Exercise, call, close, compare_results, expect, in_case, read, returned, short

NUMBERS = "return an array of numbers"


class leaky_relu(Exercise):
    """Write leaky_relu(x, slope): it returns y, backward. y is x where x > 0, and slope * x elsewhere, for any slope;
    backward is a function: backward(dy) returns dx. The arrays are NumPy arrays of any shape.

    y, and dx for a given dy, are right for four slopes, even if calls are interleaved.
    """

    cases = ((0.1, (2, 3, 5)), (0.01, (4,)), (2.0, (3, 2)), (-0.5, (6, 1)))  # max(x, slope * x) is wrong for two
    hint = "dy times the derivative: 1 where x was positive, slope elsewhere; each call has its own x"

    def words(self, slope, shape):
        return f"x of shape {shape}, slope {slope}"

    def test(self, answer, slope, shape):
        """Test forward, then backward after another call of forward, twice, and test that x and dy are not changed."""
        x, dy, other = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
        before = x.copy()
        pair = returned(call(answer, x, slope))
        is_pair = isinstance(pair, tuple) and len(pair) == 2 and callable(pair[1])
        expect(is_pair, "it did not return a pair of an array and a function", "return y, backward")
        expect(close(x, before, 0), "x itself was changed", "write to a new array: x belongs to the caller")
        with in_case(f"y for x {short(x)}"):
            y = read(pair[0], np.ndarray, NUMBERS)
            zero = np.where(x > 0, x, 0), "it is zero where x is negative", "a leaky ReLU is slope * x there"
            larger = np.maximum(x, slope * x), "the larger of x and slope * x", "slope may be more than 1, or negative"
            right = np.where(x > 0, x, slope * x)
            compare_results(y, right, [zero, larger], "x where it is positive, slope * x elsewhere")
        call(answer, other, 2 * slope)  # the first call must remember its own x and slope
        for again, given in (("", dy), (", called again,", other)):
            with in_case(f"backward(dy){again} for dy {short(given)} and x {short(x)}"):
                before = given.copy()
                dx = read(returned(call(pair[1], given)), np.ndarray, NUMBERS)
                expect(close(given, before, 0), "dy itself was changed", "write to a new array; dy is the caller's")
                self.compare(dx, given * np.where(x > 0, 1, slope), x, given, slope)

    def mistakes(self, dx, right, x, dy, slope):
        slopes = np.where(x > 0, 1, slope)
        yield slopes, "the slopes alone are the gradient of y's sum; multiply them by dy"
        yield np.where(dy > 0, 1, slope) * dy, "the sign of x, not of dy, decides which of the two slopes applies"
        yield np.where(x > 0, dy, 0), "where x is negative, y still depends a little on x"


def _pooled(rng, x):
    """A case, (dy, x): dy has half the height and width of x."""
    return rng.normal(size=(*x.shape[:2], x.shape[2] // 2, x.shape[3] // 2)), x - 2.0


RNG = np.random.default_rng(1)


class max_pool_grad(Exercise):
    """Write max_pool_grad(dy, x): the backward of max pooling over squares of 2 × 2, for images x (N, C, H, W) and dy
    (N, C, H // 2, W // 2); return dx, which has the shape of x. The largest input of a square gets the square's dy (if
    several are equal, the first, row by row), and all others get zero.

    the largest input of each square (the first if equal) gets the gradient; inputs outside all squares get zero.
    """

    without = ("max_pool2d_grad",)
    cases = {
        "images of 4 × 6, all different": _pooled(RNG, RNG.normal(size=(2, 3, 4, 6))),
        "images of 5 × 7, odd sides": _pooled(RNG, RNG.normal(size=(1, 2, 5, 7))),
        "images of 6 × 4, equal numbers": _pooled(RNG, RNG.integers(0, 2, (2, 2, 6, 4))),
    }
    form = np.ndarray
    returns = NUMBERS
    raises = f"{RUN_IT}; if sides are odd, leave out the last row and column, x[:, :, : 2 * (H // 2), : 2 * (W // 2)]"

    def right(self, dy, x):
        return max_pool2d_grad(dy, max_pool2d(x)[1])

    def mistakes(self, dx, _, dy, x):
        yield dx.shape != x.shape, f"dx has shape {dx.shape}, and x {x.shape}", "every input gets a gradient, even if 0"
        rows, columns = x.shape[2] // 2, x.shape[3] // 2
        outside = dx[:, :, 2 * rows :].any() or dx[:, :, :, 2 * columns :].any()
        yield outside, "an input outside all squares gets a gradient", "with odd sides, the last row or column gets 0"
        spread = np.zeros_like(x)
        spread[:, :, : 2 * rows, : 2 * columns] = dy.repeat(2, 2).repeat(2, 3)
        sums = dx[:, :, : 2 * rows, : 2 * columns].reshape(*x.shape[:2], rows, 2, columns, 2).sum((3, 5))
        added = f"dx adds up to {short(sums)} in the first squares, and dy is {short(dy)}"
        yield spread / 4, "each input of a square got a quarter", "that is average pooling; a maximum depends on one"
        yield spread, "each input of a square got all of dy", "a small change of the smaller inputs changes nothing"
        yield not close(sums, dy), added, "each square passes on its dy once: what if two inputs are the largest?"
        yield True, "the wrong input gets it", "it is the largest of the square; if equal, the first, row by row"


TOO_LARGE = "exp(89) is too large for float32; what can you subtract from a row without changing the result?"


class log_softmax(Exercise):
    """Write log_softmax(logits): for each row of the float32 logits (N, K), return the logarithms of the softmax
    probabilities, (N, K). It must also work for logits of 1,000 and for probabilities of exp(-200).

    it is right for ordinary and large logits, and for probabilities that are too small for a float32.
    """

    without = ("softmax_cross_entropy",)
    cases = {
        "ordinary logits": (RNG.normal(size=(4, 10)).astype(np.float32),),
        "logits of about 1,000": ((1000 + RNG.normal(size=(3, 10))).astype(np.float32),),
        "a row of about 0 and one of about 500": (np.array([[0, 1, 2], [500, 501, 502]], np.float32),),
        "the logits 0 and -200": (np.array([[0, -200]], np.float32),),
    }
    hint = "log(exp(z) / total) is z - log(total)"
    form = np.ndarray
    returns = NUMBERS

    def right(self, logits):
        wide = logits.astype(float) - logits.max(axis=1, keepdims=True)
        return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))

    def mistakes(self, found, right, logits):
        columns, bad = np.exp(found).sum(axis=0), not np.isfinite(found).all()
        yield found.shape != right.shape, f"its shape is {found.shape}, not {right.shape}", "sum(axis=1, keepdims=True)"
        yield np.exp(right), "these are the probabilities; return their logarithms"
        yield close(columns, np.ones(right.shape[1])), "each row is an image and has its own sum: axis 1"
        yield bad and logits.min() > 900, TOO_LARGE
        yield bad, "an exp is 0, and its log -inf: subtract each row's own maximum, and take no log of a quotient"
