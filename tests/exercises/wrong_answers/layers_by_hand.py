"""Wrong answers to the exercises of notebook 2. A docstring is a part of what the check should say."""

import numpy as np

import d2lmgpu as d2l


def leaky_relu__forward_only(x, slope):
    """Hint: return y, backward"""
    return np.where(x > 0, x, slope * x)


def leaky_relu__in_place(x, slope):
    """x itself was changed"""
    x[x < 0] *= slope
    return x, lambda dy: np.where(x > 0, dy, slope * dy)


def leaky_relu__not_leaky(x, slope):
    """zero where x is negative"""
    return np.maximum(x, 0), lambda dy: dy * (x > 0)


def leaky_relu__backward_of_relu(x, slope):
    """where x is negative, y still depends a little on x"""
    return np.where(x > 0, x, slope * x), lambda dy: dy * (x > 0)


def leaky_relu__the_derivative_without_dy(x, slope):
    """multiply them by dy"""
    return np.where(x > 0, x, slope * x), lambda dy: np.where(x > 0, 1, slope)


def leaky_relu__the_sign_of_dy(x, slope):
    """not of dy"""
    return np.where(x > 0, x, slope * x), lambda dy: np.where(dy > 0, dy, slope * dy)


def leaky_relu__remembers_the_last_call_only(x, slope, kept={}):  # noqa: B006
    """each call has its own x"""
    kept["derivative"] = np.where(x > 0, 1, slope)
    return x * kept["derivative"], lambda dy: dy * kept["derivative"]


def leaky_relu__the_wrong_sign(x, slope):
    """x where it is positive, slope * x elsewhere"""
    return np.where(x > 0, x, -slope * x), lambda dy: np.where(x > 0, dy, slope * dy)


def leaky_relu__backward_returns_nothing(x, slope):
    """…]: it returned nothing"""
    return np.where(x > 0, x, slope * x), lambda dy: None


def max_pool_grad__of_average_pooling(dy, x):
    """that is average pooling"""
    return dy.repeat(2, 2).repeat(2, 3) / 4


def max_pool_grad__all_to_everybody(dy, x):
    """a small change of the smaller inputs changes nothing"""
    return dy.repeat(2, 2).repeat(2, 3)


def max_pool_grad__even_sides_only(dy, x):
    """if sides are odd, leave out the last row and column"""
    largest = x.reshape(*x.shape[:2], x.shape[2] // 2, 2, x.shape[3] // 2, 2).max((3, 5))
    return dy.repeat(2, 2).repeat(2, 3) * (x == largest.repeat(2, 2).repeat(2, 3))


def max_pool_grad__the_rest_is_lost(dy, x):
    """every input gets a gradient, even if 0"""
    x = x[:, :, : 2 * dy.shape[2], : 2 * dy.shape[3]]
    largest = x.reshape(*dy.shape[:3], 2, dy.shape[3], 2).max((3, 5))
    return dy.repeat(2, 2).repeat(2, 3) * (x == largest.repeat(2, 2).repeat(2, 3))


def max_pool_grad__to_all_of_the_largest(dy, x):
    """what if two inputs are the largest?"""
    dx = np.zeros_like(x)
    for n, c, i, j in np.ndindex(dy.shape):
        square = x[n, c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        dx[n, c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] = dy[n, c, i, j] * (square == square.max())
    return dx


def max_pool_grad__to_the_last_of_the_largest(dy, x):
    """if equal, the first, row by row"""
    dx = np.zeros_like(x)
    for n, c, i, j in np.ndindex(dy.shape):
        square = x[n, c, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2]
        place = 3 - square.reshape(4)[::-1].argmax()
        dx[n, c, 2 * i + place // 2, 2 * j + place % 2] = dy[n, c, i, j]
    return dx


def log_softmax__as_it_is_defined(logits):
    """exp(89) is too large for float32"""
    return np.log(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True))


def log_softmax__one_maximum_for_all(logits):
    """subtract each row's own maximum"""
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def log_softmax__the_probabilities(logits):
    """these are the probabilities"""
    exp = np.exp(logits - logits.max(axis=1, keepdims=True))
    return exp / exp.sum(axis=1, keepdims=True)


def log_softmax__over_the_images(logits):
    """each row is an image"""
    shifted = logits - logits.max(axis=0)
    return shifted - np.log(np.exp(shifted).sum(axis=0))


def log_softmax__the_normaliser(logits):
    """sum(axis=1, keepdims=True)"""
    return np.log(np.exp(logits - logits.max(axis=1, keepdims=True)).sum(axis=1))


def log_softmax__forgets_the_logarithm(logits):
    """log(exp(z) / total) is z - log(total)"""
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.exp(shifted).sum(axis=1, keepdims=True)


def leaky_relu__the_larger(x, slope):
    """Hint: slope may be more than 1, or negative"""
    return np.maximum(x, slope * x), lambda dy: np.where(x > 0, dy, slope * dy)


def leaky_relu__overwrites_dy(x, slope):
    """dy itself was changed"""

    def backward(dy):
        dy[x <= 0] *= slope
        return dy

    return np.where(x > 0, x, slope * x), backward


def leaky_relu__backward_once(x, slope):
    """backward(dy), called again, for dy ["""
    kept = np.where(x > 0, 1, slope)

    def backward(dy):
        nonlocal kept
        kept = kept * dy
        return kept

    return np.where(x > 0, x, slope * x), backward


def max_pool_grad__at_the_edge_too(dy, x):
    """with odd sides, the last row or column gets 0"""
    dx = _max_pool_grad(dy, x)
    dx[:, :, 2 * dy.shape[2] :] = 1
    return dx


def _max_pool_grad(dy, x):
    return d2l.max_pool2d_grad(dy, d2l.max_pool2d(x)[1])
