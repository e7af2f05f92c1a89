"""Exercises of notebook 10, making it fast: what is counted, what is added up, and a loss scale that adjusts itself."""

import numpy as np

from ..words import several
from .exercise import Exercise, random_numbers
from .results import call, close, expect, read, returned


class count_products(Exercise):
    """Write count_products(x_shape, weight_shape, input_grad): how many multiplications the convolution of x (N, C, H,
    W) with weight (O, C, kh, kw) costs as matrix products, forward and backward together. With input_grad=False the
    gradient of x is not computed. No padding, stride 1; biases are not counted.

    forward and backward are counted, with and without the gradient of x.
    """

    cases = (
        ((1, 1, 28, 28), (20, 1, 3, 3), False),
        ((32, 20, 13, 13), (50, 20, 5, 5), True),
        ((3, 2, 9, 7), (4, 2, 3, 1), True),
        ((2, 3, 6, 8), (5, 3, 1, 4), False),
    )
    hint = "each output is a sum of C·kh·kw products; each of the gradients takes as many as forward"

    def draw(self, rng):
        N, C, O, kh, kw, H, W = map(int, rng.integers(1, 9, 7))
        return (N, C, H + kh, W + kw), (O, C, kh, kw), bool(rng.integers(2))

    def right(self, x_shape, weight_shape, input_grad):
        N, _, H, W = x_shape
        O, C, kh, kw = weight_shape
        return (2 + input_grad) * N * (H - kh + 1) * (W - kw + 1) * O * C * kh * kw

    def mistakes(self, _, right, x_shape, weight_shape, input_grad):
        N, _, H, W = x_shape
        *_, kh, kw = weight_shape
        one = right // ((H - kh + 1) * (W - kw + 1))  # the products for one output pixel of all images
        yield one * H * W, "there are fewer outputs than pixels: H - kh + 1 rows"
        yield right // N, "that is for one image; there are N"
        yield right // (2 + input_grad), "that is the forward pass alone; backward needs products, too"
        yield right // (2 + input_grad) * 3, "with input_grad=False one of the three is not computed"
        yield 2 * right, "a multiplication and its addition count once here"
        yield one * (H - kw + 1) * (W - kh + 1), "kh goes along H, and kw along W"


class accumulate_grads(Exercise):
    """Write accumulate_grads(grads_of, X, y, most): the gradients of a minibatch X, y, summed over its images, of which
    at most `most` are computed at a time. grads_of(X, y) returns a list of arrays, summed over the images it is given;
    it writes them to the same arrays in every call. Return such a list.

    the sum over the parts is the whole minibatch's gradient, also where the last part is smaller.
    """

    cases = ((8, 4), (9, 4), (5, 1), (3, 8))

    def words(self, n, most):
        return f"{several(n, 'image')}, at most {most} at a time"

    def test(self, answer, n, most):
        """Parts that divide or do not, a part that is all, and gradients that lie in the same arrays each time."""
        rng = random_numbers(0)
        X, y = rng.normal(size=(n, 3)), rng.integers(1, 5, n)
        scratch, sizes = [np.zeros(3), np.zeros(1)], []

        def grads_of(X, y):
            sizes.append(len(X))
            np.sum(X * y[:, None], axis=0, out=scratch[0])
            scratch[1][...] = y.sum()
            return scratch

        grads = returned(call(answer, grads_of, X, y, most, hint="cut X and y at the same places"))
        grads = read(grads, [np.ndarray], "return a list, an array for each parameter")
        said = f"parts of {sizes} images"
        expect(sizes and max(sizes) <= most, said, "range(0, len(X), most) gives the index at which each part begins")
        expect(sum(sizes) == n, f"{said}, {sum(sizes)} in all", "what about the last, smaller part?")
        expect(len(grads) == len(scratch), f"a list of {len(grads)}", "as many arrays as grads_of returns")
        sums = (X * y[:, None]).sum(axis=0), np.array([y.sum()])
        for which, grad, right, last in zip(("first", "second"), grads, sums, scratch, strict=True):
            self.compare(grad, right, n, len(sizes), last, what=f"the {which} gradient")

    def mistakes(self, grad, right, n, parts, last):
        yield right / parts, "a mean", "gradients are summed over images; sgd divides by the batch size, once"
        yield right / n, "a mean", "gradients are summed over images; sgd divides, once"
        overwritten = parts > 1 and close(grad, last)
        yield overwritten, "the last part's alone: grads_of overwrote its arrays", "add up in arrays of your own"
        yield True, "grads_of writes to the same arrays each time: what you keep from one call to the next, copy"


ONES, INFINITE = np.ones((2, 3)), np.array([0, np.inf])
DOUBLED = "the scale is doubled after `interval` good steps in a row, and otherwise stays"
FINITE = "a step is used only if all gradients are finite: no array contains an infinite value or NaN"


class next_scale(Exercise):
    """Write next_scale(scale, good_steps, grads, interval): it returns use, scale, good_steps. use: whether all arrays
    of grads are finite. If not, the scale is halved (not below 1). After `interval` good steps in a row it is doubled.
    good_steps counts those since the last change or bad step.

    bad steps are skipped and halve the scale; enough good ones in a row double it.
    """

    cases = {
        "a good step": (1024.0, 3, [ONES, np.ones(2)], 10),
        "the tenth good step in a row": (1024.0, 9, [ONES, np.ones(2)], 10),
        "an infinite gradient": (1024.0, 3, [ONES, INFINITE], 10),
        "a gradient that is NaN": (1024.0, 9, [np.array([1.0, np.nan]), ONES], 10),
        "a gradient of minus infinity": (64.0, 0, [ONES, -INFINITE], 10),
        "an infinite gradient at scale 1": (1.0, 5, [ONES, INFINITE], 10),
        "large gradients, but finite": (8.0, 1, [np.array([60000.0, 1e30])], 10),
    }
    hint = "good steps are counted in a row: from 0 again after a change or a bad step"
    form = (bool, float, float)
    returns = "return use, scale, good_steps; use is True or False"

    def right(self, scale, good_steps, grads, interval):
        if not all(np.isfinite(grad).all() for grad in grads):
            return False, max(1.0, scale / 2), 0
        return (True, scale, good_steps + 1) if good_steps + 1 < interval else (True, 2 * scale, 0)

    def mistakes(self, found, right, *_):
        (use, scale, _), (right_use, right_scale, _) = found, right
        yield use != right_use, FINITE
        yield scale != right_scale and right_use, DOUBLED
        yield scale != right_scale, "after a bad step the scale is halved, but never below 1"
