"""Exercises of notebook 2, LeNet by hand: a layer as a pair, max pooling's backward, safe logarithms of softmax."""

import numpy as np

from ..layers import max_pool2d, max_pool2d_grad
from .checking import Exercise, random_numbers
from .results import close, compare, expect, read, result_of, short


def _try_leaky_relu(answer):
    """Test forward and backward, backward only after all calls of forward, and that x is not changed."""
    rng = random_numbers(0)
    kept = []
    for slope, dtype in ((0.1, np.float64), (0.01, np.float32), (0.3, np.float32)):
        x, dy = rng.normal(size=(2, 3, 5)).astype(dtype), rng.normal(size=(2, 3, 5)).astype(dtype)
        case, before = f"x of shape {x.shape}, {x.dtype}, slope {slope}", x.copy()
        result = result_of(answer, x, slope, case=case)
        pair = isinstance(result, tuple) and len(result) == 2 and callable(result[1])
        expect(pair, f"{case}: it did not return a pair of an array and a function", "return y, backward")
        y, backward = result
        _check_forward(x, before, y, slope, case)
        kept.append((before, dy, slope, backward, case))
    for x, dy, slope, backward, case in kept:  # after all calls: each must remember its own
        _check_backward(x, dy, slope, result_of(backward, dy, case=f"{case}, backward(dy)"), case)


def _check_forward(x, before, y, slope, case):
    expect(close(x, before, 0), f"{case}: x itself was changed", "write to a new array: x belongs to the caller")
    y = read(y, np.ndarray, f"{case}, y", NUMBERS)
    mistakes = ((np.where(x > 0, x, 0), "zero where x is negative", "there a leaky ReLU is slope * x"),)
    hint = "x where it is positive, slope * x where it is not"
    compare(y, np.where(x > 0, x, slope * x), mistakes, f"{case}: y for x {short(x)}", hint)


def _check_backward(x, dy, slope, dx, case):
    dx = read(dx, np.ndarray, f"{case}, backward(dy)", NUMBERS)
    slopes = np.where(x > 0, 1, slope)
    mistakes = (
        (slopes, "the slopes alone would be the gradient of y's sum; multiply them by dy"),
        (np.where(dy > 0, 1, slope) * dy, "which of the two slopes applies depends on the sign of x, not of dy"),
        (np.where(x > 0, dy, 0), "where x is negative, y still depends on x a little"),
        (slopes * x * dy, "multiply dy by the derivative of y, not by y"),
    )
    hint = "dy times the derivative: 1 where x was positive, slope elsewhere; each call has its own x"
    compare(dx, dy * slopes, mistakes, f"{case}: backward(dy) for dy {short(dy)} and x {short(x)}", hint)


NUMBERS = "return an array of numbers"


def _pooled(rng, shape, draw):
    """A case, (dy, x): ``draw(rng, shape)`` makes x, of this ``shape``; dy has half its height and width."""
    x = draw(rng, shape) - 2.0
    return rng.normal(size=(*shape[:2], shape[2] // 2, shape[3] // 2)), x


def _normal(rng, shape):
    return rng.normal(size=shape)


def _pooling_mistakes(dx, _, dy, x):
    if dx.shape != x.shape:
        return ((True, f"dx has shape {dx.shape} and x {x.shape}", "every input gets a gradient, even if it is 0"),)
    rows, columns = x.shape[2] // 2, x.shape[3] // 2
    spread = np.zeros_like(x)
    spread[:, :, : 2 * rows, : 2 * columns] = dy.repeat(2, 2).repeat(2, 3)
    sums = dx[:, :, : 2 * rows, : 2 * columns].reshape(*x.shape[:2], rows, 2, columns, 2).sum((3, 5))
    added = f"dx adds up to {short(sums)} in the first squares, and dy is {short(dy)}"
    return (
        (spread / 4, "each input of a square got a quarter", "that is average pooling; a maximum depends on one"),
        (spread, "each input of a square got all of dy", "a small change of the smaller inputs changes nothing"),
        (not close(sums, dy), added, "each square hands on its dy, once: what if two of its numbers are the largest?"),
        (True, "not the right input gets it", "the largest of the square; among equals the first, row by row"),
    )


def _log_softmax(logits):
    wide = logits.astype(float) - logits.max(axis=1, keepdims=True)
    return wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))


def _log_softmax_mistakes(found, right, logits):
    with np.errstate(all="ignore"):
        columns, bad = np.exp(found).sum(axis=0), not np.isfinite(found).all()
    shapes = f"its shape is {found.shape} and should be {right.shape}"
    return (
        (found.shape != right.shape, shapes, "sum(axis=1, keepdims=True)"),
        (np.exp(right), "these are the probabilities; their logarithms are asked for"),
        (close(columns, np.ones(right.shape[1])), "each row is an image and has its own sum: axis 1"),
        (bad and logits.min() > 900, TOO_LARGE),
        (bad, "an exp has become 0, and its log -inf: subtract each row's own maximum, and take no log of a quotient"),
    )


TOO_LARGE = "exp(89) is too large for float32; what can you subtract from a row without changing the result?"
RNG = np.random.default_rng(1)

EXERCISES = {
    "leaky_relu": Exercise(
        "Write leaky_relu(x, slope): it returns y, backward. y is x where x > 0, and slope * x elsewhere; backward is "
        "a function of its own: backward(dy) returns dx. Arrays are NumPy's, of any shape.",
        "y, and dx for a given dy, are right for three slopes, also when the calls are mixed.",
        _try_leaky_relu,
    ),
    "max_pool_grad": Exercise(
        "Write max_pool_grad(dy, x): the backward of max pooling over squares of 2 × 2, for images x (N, C, H, W) and "
        "dy (N, C, H // 2, W // 2); it returns dx like x. The largest input of a square gets its dy (among equals the "
        "first, row by row), all others zero.",
        "the largest of each square gets the gradient, the first of equal ones, and what no square reads gets none.",
        cases={
            "images of 4 × 6, all different": _pooled(RNG, (2, 3, 4, 6), _normal),
            "images of 5 × 7, odd sides": _pooled(RNG, (1, 2, 5, 7), _normal),
            "images of 6 × 4, equal numbers": _pooled(RNG, (2, 2, 6, 4), lambda rng, shape: rng.integers(0, 2, shape)),
        },
        draw=lambda rng: _pooled(rng, (2, 3, 5, 6), _normal),
        right=lambda dy, x: max_pool2d_grad(dy, max_pool2d(x)[1]),
        mistakes=_pooling_mistakes,
        form=np.ndarray,
        returns=NUMBERS,
    ),
    "log_softmax": Exercise(
        "Write log_softmax(logits): for each row of the float32 logits (N, K) the logarithms of the softmax "
        "probabilities, (N, K), also for logits of 1,000 and for probabilities of exp(-200).",
        "right for ordinary logits, for large ones, and where a probability is too small for a float32.",
        cases={
            "ordinary logits": (RNG.normal(size=(4, 10)).astype(np.float32),),
            "logits of about 1,000": ((1000 + RNG.normal(size=(3, 10))).astype(np.float32),),
            "a row of about 0 and one of about 500": (np.array([[0, 1, 2], [500, 501, 502]], np.float32),),
            "the logits 0 and -200": (np.array([[0, -200]], np.float32),),
        },
        draw=lambda rng: (rng.normal(size=(4, 10)).astype(np.float32),),
        right=_log_softmax,
        mistakes=_log_softmax_mistakes,
        hint="log(exp(z) / total) is z - log(total)",
        form=np.ndarray,
        returns=NUMBERS,
        keeps="do not change logits in place",
    ),
}
