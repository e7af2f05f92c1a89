"""Exercises of notebook 10, making it fast: what is counted, what is added up, and a scale that finds itself."""

import numpy as np

from ..arguments import shown
from ..words import several
from .checking import (
    Exercise,
    Wrong,
    array_of,
    close,
    expect,
    list_of,
    number_of,
    random_numbers,
    result_of,
    short,
    with_hidden,
)


def try_count_products(answer):
    """Sides that differ, more than one image, and a first layer."""
    cases = (
        ((1, 1, 28, 28), (20, 1, 3, 3), False),
        ((32, 20, 13, 13), (50, 20, 5, 5), True),
        ((3, 2, 9, 7), (4, 2, 3, 1), True),
        ((2, 3, 6, 8), (5, 3, 1, 4), False),
    )
    for x_shape, weight_shape, input_grad in with_hidden(cases, _draw_convolution):
        case = f"x {x_shape}, weight {weight_shape}, input_grad={input_grad}"
        found = result_of(answer, x_shape, weight_shape, input_grad, case=case)
        _check_count(found, x_shape, weight_shape, input_grad, case)
    return "forward and backward are counted, for first layers and others."


def _draw_convolution(rng):
    N, C, O, kh, kw, H, W = map(int, rng.integers(1, 9, 7))
    return (N, C, H + kh, W + kw), (O, C, kh, kw), bool(rng.integers(2))


def _check_count(found, x_shape, weight_shape, input_grad, case):
    N, _, H, W = x_shape
    O, C, kh, kw = weight_shape
    weights, products = O * C * kh * kw, 2 + input_grad
    places = (H - kh + 1) * (W - kw + 1)
    expected = products * N * places * weights
    found = number_of(found, case)
    if found == expected:
        return
    mistakes = (
        (products * N * H * W * weights, "there are fewer outputs than pixels: H - kh + 1 rows"),
        (products * places * weights, "each image is computed by itself"),
        (N * places * weights, "that is forward; backward has products of its own"),
        (3 * N * places * weights, "with input_grad=False one of the three is not computed"),
        (2 * expected, "a multiplication and its addition count once here"),
        (products * N * (H - kw + 1) * (W - kh + 1) * weights, "kh goes along H, and kw along W"),
    )
    for mistake, hint in mistakes:
        if found == mistake:
            raise Wrong(f"{case}: {found:,} instead of {expected:,}", hint)
    raise Wrong(
        f"{case}: {found:,} instead of {expected:,}",
        "each output is a sum of C·kh·kw products; each of the gradients has as many in all",
    )


def try_accumulate_grads(answer):
    """Parts that divide and that do not, a part that is all, and gradients that lie in the same arrays each time."""
    rng = random_numbers(0)
    for n, most in with_hidden(((8, 4), (9, 4), (5, 1), (3, 8)), lambda rng: tuple(map(int, rng.integers(1, 20, 2)))):
        X, y = rng.normal(size=(n, 3)), rng.integers(1, 5, n)
        scratch, sizes = [np.zeros(3), np.zeros(1)], []

        def grads_of(X, y, scratch=scratch, sizes=sizes):
            sizes.append(len(X))
            np.sum(X * y[:, None], axis=0, out=scratch[0])
            scratch[1][...] = y.sum()
            return scratch

        case = f"{several(n, 'image')}, at most {most} at a time"
        hint = "cut X and y at the same places"
        grads = result_of(answer, grads_of, X, y, most, case=case, hint=hint)
        grads = [array_of(grad, f"{case}, one of the list") for grad in list_of(grads, case, EACH)]
        expected = [(X * y[:, None]).sum(axis=0), np.array([y.sum()])]
        _check_accumulated(grads, expected, sizes, scratch, n, most, case)
    return "the sum over the parts is the whole minibatch's gradient, also where the last part is smaller."


EACH = "return a list, an array for each parameter"


def _check_accumulated(grads, expected, sizes, last, n, most, case):
    expect(
        sizes and max(sizes) <= most, f"{case}: parts of {sizes} images", "range(0, len(X), most) are the beginnings"
    )
    expect(
        sum(sizes) == n, f"{case}: parts of {sizes} images, {sum(sizes)} in all", "what about the last, smaller part?"
    )
    expect(len(grads) == len(expected), f"{case}: a list of {len(grads)}", "as many arrays as grads_of returns")
    if all(map(close, grads, expected)):
        return
    found = f"{case}: the first gradient is {short(grads[0])} instead of {short(expected[0])}"
    for factor, hint in ((1 / len(sizes), "sgd divides by the batch size, once"), (1 / n, "sgd divides, once")):
        if close(grads[0], factor * expected[0]):
            raise Wrong(f"{found}: a mean", f"gradients are summed over images; {hint}")
    if len(sizes) > 1 and close(grads[0], last[0]):
        raise Wrong(
            f"{found}: the last part's alone, or the array that grads_of writes to", "add up, in arrays of yours"
        )
    raise Wrong(found, "grads_of writes to the same arrays each time: what you keep from one call to the next, copy")


def try_next_scale(answer):
    """A good step, the last of an interval, infinities and others in any gradient, and the smallest scale."""
    good, infinite = [np.ones((2, 3)), np.ones(2)], [np.ones((2, 3)), np.array([0, np.inf])]
    undefined, negative = [np.array([1.0, np.nan]), np.ones(2)], [np.ones(3), np.array([-np.inf, 1])]
    cases = (
        ("a good step", (1024.0, 3, good, 10), (True, 1024, 4)),
        ("the tenth good step in a row", (1024.0, 9, good, 10), (True, 2048, 0)),
        ("an infinite gradient", (1024.0, 3, infinite, 10), (False, 512, 0)),
        ("a gradient that is no number", (1024.0, 9, undefined, 10), (False, 512, 0)),
        ("a gradient of minus infinity", (64.0, 0, negative, 10), (False, 32, 0)),
        ("an infinite gradient at scale 1", (1.0, 5, infinite, 10), (False, 1, 0)),
        ("large gradients, but finite", (8.0, 1, [np.array([60000.0, 1e30])], 10), (True, 8, 2)),
    )
    for case, arguments, expected in with_hidden(cases, _draw_scale):
        found = result_of(answer, *arguments, case=case)
        if not isinstance(found, tuple) or len(found) != 3:
            raise Wrong(f"{case}: it returned {shown(found)}", "return use, scale, good_steps")
        _check_scale(found, expected, case)
    return "steps with gradients that are not finite are left out, and the scale is halved, or doubled after good ones."


def _draw_scale(rng):
    scale, steps, interval = 2.0 ** rng.integers(1, 16), int(rng.integers(0, 20)), int(rng.integers(20, 30))
    return "another good step", (scale, steps, [rng.normal(size=3)], interval), _after(scale, steps + 1, interval)


def _after(scale, steps, interval):
    return (True, scale, steps) if steps < interval else (True, 2 * scale, 0)


def _check_scale(found, expected, case):
    (use, scale, good_steps), (right_use, right_scale, right_steps) = found, expected
    expect(isinstance(use, bool | np.bool_), f"{case}: use is {shown(use)}", "use is True or False")
    scale, good_steps = number_of(scale, f"{case}: of scale"), number_of(good_steps, f"{case}: of good_steps")
    said = f"{case}: use={use}, scale={scale}, good_steps={good_steps} instead of {expected}"
    expect(
        bool(use) == right_use,
        said,
        "a step is used only if all gradients are finite: neither infinite nor NaN, in none of the arrays",
    )
    if scale != right_scale:
        if right_use:
            raise Wrong(said, "the scale is doubled after `interval` good steps in a row, and otherwise stays")
        raise Wrong(said, "after a bad step the scale is halved, but never below 1")
    expect(
        good_steps == right_steps, said, "good steps are counted in a row: from 0 again after a change or a bad step"
    )


EXERCISES = {
    "count_products": Exercise(
        "Write count_products(x_shape, weight_shape, input_grad): how many multiplications the convolution of x "
        "(N, C, H, W) with weight (O, C, kh, kw) costs as matrix products, forward and backward together. With "
        "input_grad=False the gradient of x is not computed. No padding, stride 1; biases are not counted.",
        try_count_products,
    ),
    "accumulate_grads": Exercise(
        "Write accumulate_grads(grads_of, X, y, most): the gradients of a minibatch X, y, summed over its images, of "
        "which at most `most` are computed at a time. grads_of(X, y) returns a list of arrays, summed over the images "
        "it is given; it writes them to the same arrays in every call. Return such a list.",
        try_accumulate_grads,
    ),
    "next_scale": Exercise(
        "Write next_scale(scale, good_steps, grads, interval): it returns use, scale, good_steps. use: whether all "
        "arrays of grads are finite. If not, the scale is halved (not below 1). After `interval` good steps in a row "
        "it is doubled. good_steps counts those since the last change or bad step.",
        try_next_scale,
    ),
}
