"""Winograd's minimal filtering: a convolution with several times fewer multiplications.

In one dimension: m outputs of a kernel of r taps need t = m + r - 1 inputs. Seen as polynomials, a kernel g and outputs
d have the product s(x) = g(x) · d(x), and a product of degree t - 1 is determined by its values at t points. So a
product costs an evaluation of both factors at t points, t multiplications instead of m·r, and an interpolation (Toom
1963, Cook 1966). A convolution layer is the transpose of a polynomial product, which turns the three matrices around
(Winograd 1980; for neural networks Lavin and Gray 2016):

    y = Aᵀ [(G g) * (Bᵀ x)]        A (t, m), G (t, r), Bᵀ (t, t)

In two dimensions, this is done along both: tiles of t × t inputs give m × m outputs. In LeNet's second convolution, m =
4, r = 5 and t = 8: 64 multiplications instead of 400.

The rest of a layer is a matrix product over channels, for each of the t² points separately. The price is rounding: with
8 points, an output loses about three bits compared with adding up 500 products one by one, which float32 can spare.
"""

from fractions import Fraction
from functools import cache

import numpy as np

_POINTS = (0, 1, -1, 2, -2, 1 / 2, -1 / 2)
"""Where polynomials are evaluated, besides infinity: small numbers and their inverses lose the least precision."""

LARGEST_TILE = len(_POINTS) + 1
ONE = _POINTS.index(1)
"""The index of point 1: every output takes its value there with weight 1, so a bias is added there and nowhere else."""

_MAX_DENOMINATOR = 1000
"""More than any denominator in the inverses."""


@cache
def transforms(m, r):
    """The matrices A (t, m), G (t, r) and Bᵀ (t, t) as float64, for m outputs of r taps, t = m + r - 1."""
    t = m + r - 1
    if t > LARGEST_TILE:
        raise ValueError(f"winograd: {m} outputs of {r} taps need {t} points; there are {LARGEST_TILE}")
    to_product = np.linalg.inv(_evaluate(t, t))  # from values at the points to the product's coefficients
    exact = [[float(Fraction(value).limit_denominator(_MAX_DENOMINATOR)) for value in row] for row in to_product.T]
    return _evaluate(t, m), _evaluate(t, r), np.array(exact)


@cache
def simple_transforms(m, r):
    """The same with fewer multiplications for Bᵀ: its rows are divided by their last number, G's multiplied by it."""
    A, G, Bt = transforms(m, r)
    last = np.array([[row[row != 0][-1]] for row in Bt])
    return A, G * last, Bt / last + 0.0


def _evaluate(t, size):
    """The matrix that evaluates polynomials of ``size`` coefficients: each row has the powers of a point.

    The last row is the point at infinity, whose value is the highest coefficient.
    """
    return np.vstack([np.vander(_POINTS[: t - 1], size, increasing=True), np.eye(size)[-1:]])


def choose_tile(kernel, outputs, multiple, C, O):
    """The outputs of a tile (m_h, m_w), or None if a plain matrix product costs less.

    ``kernel`` (kh, kw); ``outputs`` (H', W') that are needed. A tile's sides are multiples of ``multiple``, the side of
    the squares that are pooled afterwards. The cost is the number of multiplications for all outputs of an image,
    including the transforms, which are done along one side after the other. At least a fifth of the direct
    multiplications must be saved, since transforms are products with few rows, which are slower.
    """
    best, choice = 0.8 * outputs[0] * outputs[1] * C * O * kernel[0] * kernel[1], None
    for m_h in range(multiple, LARGEST_TILE - kernel[0] + 2, multiple):
        for m_w in range(multiple, LARGEST_TILE - kernel[1] + 2, multiple):
            T_h, T_w = -(-outputs[0] // m_h), -(-outputs[1] // m_w)
            t_h, t_w = m_h + kernel[0] - 1, m_w + kernel[1] - 1
            products = T_h * T_w * t_h * t_w * C * O
            to_values = T_h * t_h * (t_h * (T_w * m_w + kernel[1] - 1) + T_w * t_w * t_w) * C
            to_outputs = T_h * T_w * m_h * (t_h * t_w + t_w * m_w) * O
            if products + to_values + to_outputs < best:
                best, choice = products + to_values + to_outputs, (m_h, m_w)
    return choice
