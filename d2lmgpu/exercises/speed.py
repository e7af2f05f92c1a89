"""Exercises of notebook 10, making it fast: what is counted, what is added up, and a loss scale that adjusts itself."""

import numpy as np

from ..words import several
from .checking import Exercise, random_numbers
from .results import close, compare, expect, read, result_of, same


def _draw_convolution(rng):
    N, C, O, kh, kw, H, W = map(int, rng.integers(1, 9, 7))
    return (N, C, H + kh, W + kw), (O, C, kh, kw), bool(rng.integers(2))


def _products(x_shape, weight_shape, input_grad):
    N, _, H, W = x_shape
    O, C, kh, kw = weight_shape
    return (2 + input_grad) * N * (H - kh + 1) * (W - kw + 1) * O * C * kh * kw


def _products_mistakes(_, right, x_shape, weight_shape, input_grad):
    N, _, H, W = x_shape
    *_, kh, kw = weight_shape
    products = 2 + input_grad
    one = right // ((H - kh + 1) * (W - kw + 1))  # the products for one output pixel of all images
    return (
        (one * H * W, "there are fewer outputs than pixels: H - kh + 1 rows"),
        (right // N, "that is for one image; there are N"),
        (right // products, "that is the forward pass alone; backward needs products, too"),
        (right // products * 3, "with input_grad=False one of the three is not computed"),
        (2 * right, "a multiplication and its addition count once here"),
        (one * (H - kw + 1) * (W - kh + 1), "kh goes along H, and kw along W"),
    )


def _try_accumulate_grads(answer, n, most):
    """Parts that divide and that do not, a part that is all, and gradients that lie in the same arrays each time."""
    rng = random_numbers(0)
    X, y = rng.normal(size=(n, 3)), rng.integers(1, 5, n)
    scratch, sizes = [np.zeros(3), np.zeros(1)], []

    def grads_of(X, y):
        sizes.append(len(X))
        np.sum(X * y[:, None], axis=0, out=scratch[0])
        scratch[1][...] = y.sum()
        return scratch

    case = f"{several(n, 'image')}, at most {most} at a time"
    hint = "cut X and y at the same places"
    grads = result_of(answer, grads_of, X, y, most, case=case, hint=hint)
    grads = read(grads, [np.ndarray], case, "return a list, an array for each parameter")
    expected = [(X * y[:, None]).sum(axis=0), np.array([y.sum()])]
    _check_accumulated(grads, expected, sizes, scratch, n, most, case)


def _check_accumulated(grads, expected, sizes, last, n, most, case):
    said = f"{case}: parts of {sizes} images"
    expect(sizes and max(sizes) <= most, said, "range(0, len(X), most) gives the index at which each part begins")
    expect(sum(sizes) == n, f"{said}, {sum(sizes)} in all", "what about the last, smaller part?")
    expect(len(grads) == len(expected), f"{case}: a list of {len(grads)}", "as many arrays as grads_of returns")
    if same(grads, expected):
        return
    i = 0 if not same(grads[0], expected[0]) else 1
    overwritten = len(sizes) > 1 and close(grads[i], last[i])
    mistakes = (
        (expected[i] / len(sizes), "a mean", f"{SUMMED} by the batch size, once"),
        (expected[i] / n, "a mean", f"{SUMMED}, once"),
        (overwritten, "the last part's alone: grads_of overwrote its arrays", "add up in arrays of your own"),
        (True, "grads_of writes to the same arrays each time: what you keep from one call to the next, copy"),
    )
    compare(grads[i], expected[i], mistakes, f"{case}: the {('first', 'second')[i]} gradient", "")


SUMMED = "gradients are summed over images; sgd divides"


ONES, LARGE = np.ones((2, 3)), np.array([60000.0, 1e30])
INFINITE, MINUS, UNDEFINED = np.array([0, np.inf]), np.array([-np.inf, 1]), np.array([1.0, np.nan])


def _draw_scale(rng):
    scale, steps, interval = 2.0 ** rng.integers(1, 16), int(rng.integers(0, 20)), int(rng.integers(20, 30))
    return scale, steps, [rng.normal(size=3)], interval


def _next_scale(scale, good_steps, grads, interval):
    if not all(np.isfinite(grad).all() for grad in grads):
        return False, max(1.0, scale / 2), 0
    return (True, scale, good_steps + 1) if good_steps + 1 < interval else (True, 2 * scale, 0)


def _scale_mistakes(found, right, *_):
    (use, scale, _), (right_use, right_scale, _) = found, right
    return (
        (use != right_use, FINITE),
        (scale != right_scale and right_use, DOUBLED),
        (scale != right_scale, "after a bad step the scale is halved, but never below 1"),
    )


DOUBLED = "the scale is doubled after `interval` good steps in a row, and otherwise stays"
FINITE = "a step is used only if all gradients are finite: no array contains an infinite value or NaN"


EXERCISES = {
    "count_products": Exercise(
        "Write count_products(x_shape, weight_shape, input_grad): how many multiplications the convolution of x "
        "(N, C, H, W) with weight (O, C, kh, kw) costs as matrix products, forward and backward together. With "
        "input_grad=False the gradient of x is not computed. No padding, stride 1; biases are not counted.",
        "forward and backward are counted, with and without the gradient of x.",
        cases=(
            ((1, 1, 28, 28), (20, 1, 3, 3), False),
            ((32, 20, 13, 13), (50, 20, 5, 5), True),
            ((3, 2, 9, 7), (4, 2, 3, 1), True),
            ((2, 3, 6, 8), (5, 3, 1, 4), False),
        ),
        draw=_draw_convolution,
        right=_products,
        mistakes=_products_mistakes,
        hint="each output is a sum of C·kh·kw products; each of the gradients takes as many as forward",
    ),
    "accumulate_grads": Exercise(
        "Write accumulate_grads(grads_of, X, y, most): the gradients of a minibatch X, y, summed over its images, of "
        "which at most `most` are computed at a time. grads_of(X, y) returns a list of arrays, summed over the images "
        "it is given; it writes them to the same arrays in every call. Return such a list.",
        "the sum over the parts is the whole minibatch's gradient, also where the last part is smaller.",
        _try_accumulate_grads,
        cases=((8, 4), (9, 4), (5, 1), (3, 8)),
        draw=lambda rng: tuple(map(int, rng.integers(1, 20, 2))),
    ),
    "next_scale": Exercise(
        "Write next_scale(scale, good_steps, grads, interval): it returns use, scale, good_steps. use: whether all "
        "arrays of grads are finite. If not, the scale is halved (not below 1). After `interval` good steps in a row "
        "it is doubled. good_steps counts those since the last change or bad step.",
        "bad steps are skipped and halve the scale; enough good ones in a row double it.",
        cases={
            "a good step": (1024.0, 3, [ONES, np.ones(2)], 10),
            "the tenth good step in a row": (1024.0, 9, [ONES, np.ones(2)], 10),
            "an infinite gradient": (1024.0, 3, [ONES, INFINITE], 10),
            "a gradient that is NaN": (1024.0, 9, [UNDEFINED, np.ones(2)], 10),
            "a gradient of minus infinity": (64.0, 0, [np.ones(3), MINUS], 10),
            "an infinite gradient at scale 1": (1.0, 5, [ONES, INFINITE], 10),
            "large gradients, but finite": (8.0, 1, [LARGE], 10),
        },
        draw=_draw_scale,
        right=_next_scale,
        mistakes=_scale_mistakes,
        hint="good steps are counted in a row: from 0 again after a change or a bad step",
        form=(bool, float, float),
        returns="return use, scale, good_steps; use is True or False",
    ),
}
