"""Exercises of notebook 2, LeNet by hand: a layer as a pair, a pooling's backward, logarithms that survive."""

import numpy as np

from ..layers import max_pool2d, max_pool2d_grad
from .checking import Exercise, Wrong, array_of, close, expect, random_numbers, result_of, short


def try_leaky_relu(answer):
    """Both directions, the kink, two calls at a time, and an argument that stays as it is."""
    rng = random_numbers(0)
    kept = []
    for slope, dtype in ((0.1, np.float64), (0.01, np.float32), (0.3, np.float32)):
        x, dy = rng.normal(size=(2, 3, 5)).astype(dtype), rng.normal(size=(2, 3, 5)).astype(dtype)
        case, before = f"x of shape {x.shape}, {x.dtype}, slope {slope}", x.copy()
        y, backward = _a_pair(result_of(answer, x, slope, case=case), case)
        _check_forward(x, before, y, slope, case)
        kept.append((before, dy, slope, backward, case))
    for x, dy, slope, backward, case in kept:  # after all calls: each must remember its own
        _check_backward(x, dy, slope, result_of(backward, dy, case=f"{case}, backward(dy)"), case)
    return "y, and dx for a given dy, are right for three slopes, also when the calls are mixed."


def _a_pair(result, case):
    if not isinstance(result, tuple) or len(result) != 2 or not callable(result[1]):
        raise Wrong(f"{case}: it returned no pair of an array and a function", "return y, backward")
    return result


def _check_forward(x, before, y, slope, case):
    expect(close(x, before, 0), f"{case}: x itself was changed", "write to an array of your own: x belongs to others")
    array_of(y, f"{case}, y")
    if close(y, np.where(x > 0, x, slope * x)):
        return
    if close(y, np.where(x > 0, x, 0)):
        raise Wrong(f"{case}: y is zero where x is negative", "there a leaky ReLU is slope * x")
    raise Wrong(f"{case}: y is {short(y)} for x {short(x)}", "x where it is positive, slope * x where it is not")


def _check_backward(x, dy, slope, dx, case):
    array_of(dx, f"{case}, backward(dy)")
    if close(dx, dy * np.where(x > 0, 1, slope)):
        return
    found = f"{case}: for dy {short(dy)} and x {short(x)} backward gave {short(dx)}"
    mistakes = (
        (np.where(x > 0, 1, slope), "the slopes alone are the gradient of y's sum; the loss has dy: multiply"),
        (np.where(dy > 0, 1, slope) * dy, "which branch it is was decided by x in forward, not by the sign of dy"),
        (np.where(x > 0, dy, 0), "where x is negative, y still depends on x a little"),
        (np.where(x > 0, x, slope * x) * dy, "multiply dy by the derivative of y, not by y"),
    )
    for mistake, hint in mistakes:
        if close(dx, mistake):
            raise Wrong(found, hint)
    raise Wrong(found, "dy times the derivative: 1 where x was positive, slope elsewhere; each call has its own x")


def try_max_pool_grad(answer):
    """Odd sides, negative numbers, and equal ones."""
    rng = random_numbers(1)
    for shape, kind in (((2, 3, 4, 6), "all different"), ((1, 2, 5, 7), "odd sides"), ((2, 2, 6, 4), "equal numbers")):
        x = rng.normal(size=shape) - 2
        if kind == "equal numbers":
            x = rng.integers(0, 2, shape).astype(float)
        dy = rng.normal(size=(*shape[:2], shape[2] // 2, shape[3] // 2))
        _, cache = max_pool2d(x)
        case = f"images of {shape[2]} × {shape[3]}, {kind}"
        dx = array_of(result_of(answer, dy.copy(), x.copy(), case=case), case)
        _check_max_pool(dx, max_pool2d_grad(dy, cache), dy, x, case)
    return "the largest of each square gets the gradient, the first of equal ones, and what no square reads gets none."


def _check_max_pool(dx, expected, dy, x, case):
    if dx.shape != x.shape:
        raise Wrong(f"{case}: dx has shape {dx.shape} and x {x.shape}", "every input gets a gradient, if it is zero")
    if close(dx, expected):
        return
    rows, columns = x.shape[2] // 2 * 2, x.shape[3] // 2 * 2
    spread = np.zeros_like(x)
    spread[:, :, :rows, :columns] = dy.repeat(2, 2).repeat(2, 3)
    if close(dx, spread / 4):
        raise Wrong(f"{case}: each input of a square got a quarter", "that is average pooling; y = max depends on one")
    if close(dx, spread):
        raise Wrong(f"{case}: each input of a square got all of dy", "a change of the smaller ones changes no maximum")
    inside = dx[:, :, :rows, :columns]
    sums = inside.reshape(*x.shape[:2], rows // 2, 2, columns // 2, 2).sum((3, 5))
    if not close(sums, dy):
        raise Wrong(
            f"{case}: dx adds up to {short(sums)} in the first squares, and dy is {short(dy)}",
            "each square hands on all of its dy, once: what if two of its numbers are the largest?",
        )
    raise Wrong(f"{case}: not the right input gets it", "the largest of the square; among equals the first, row by row")


def try_log_softmax(answer):
    """Ordinary logits, large ones, rows of different size, probabilities that are too small for a float."""
    rng = random_numbers(2)
    cases = {
        "ordinary logits": rng.normal(size=(4, 10)).astype(np.float32),
        "logits of about 1,000": (1000 + rng.normal(size=(3, 10))).astype(np.float32),
        "a row of about 0 and one of about 500": np.array([[0, 1, 2], [500, 501, 502]], np.float32),
        "the logits 0 and -200": np.array([[0, -200]], np.float32),
    }
    for case, logits in cases.items():
        wide = logits.astype(float) - logits.max(axis=1, keepdims=True)
        expected = wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))
        given = logits.copy()
        with np.errstate(all="ignore"):
            found = array_of(result_of(answer, given, case=case), case)
        expect(close(given, logits, 0), f"{case}: the logits themselves were changed", "logits - m makes a new array")
        _check_log_softmax(found, expected, case)
    return "right for ordinary logits, for large ones, and where a probability is too small for a float32."


def _check_log_softmax(found, expected, case):
    if close(found, expected):
        return
    if found.shape != expected.shape:
        raise Wrong(f"{case}: its shape is {found.shape} and should be {expected.shape}", "sum(axis=1, keepdims=True)")
    what = f"{case}: it gives {short(found)} instead of {short(expected)}"
    if close(found, np.exp(expected)):
        raise Wrong(what, "these are the probabilities; their logarithms are asked for")
    with np.errstate(all="ignore"):
        columns = np.exp(found).sum(axis=0)
    if close(columns, np.ones(found.shape[1])):
        raise Wrong(what, "each row is an image and has its own sum: axis 1")
    if not np.isfinite(found).all():
        if "1,000" in case:
            raise Wrong(what, "float32 ends at exp(88.7); what can you take from a row without changing the result?")
        raise Wrong(what, "exp has become 0, and its log -inf: take each row's own maximum, and no log of a quotient")
    raise Wrong(what, "log(exp(z) / total) is z - log(total)")


EXERCISES = {
    "leaky_relu": Exercise(
        "Write leaky_relu(x, slope): it returns y, backward. y is x where x > 0, and slope * x elsewhere; backward is "
        "a function of its own: backward(dy) returns dx. Arrays are NumPy's, of any shape.",
        try_leaky_relu,
    ),
    "max_pool_grad": Exercise(
        "Write max_pool_grad(dy, x): the backward of max pooling over squares of 2 × 2, for images x (N, C, H, W) and "
        "dy (N, C, H // 2, W // 2); it returns dx like x. The largest input of a square gets its dy (among equals the "
        "first, row by row), all others zero.",
        try_max_pool_grad,
    ),
    "log_softmax": Exercise(
        "Write log_softmax(logits): for each row of the float32 logits (N, K) the logarithms of the softmax "
        "probabilities, (N, K), also for logits of 1,000 and for probabilities of exp(-200).",
        try_log_softmax,
    ),
}
