"""Sums over examples that have the same bits in whatever order they are added, and thus on any number of devices.

A sum of floats is rounded after each addition, so (a + b) + c may differ from a + (b + c). The sum of gradients thus
depends on the number of devices, on their shares and on the allreduce. Sums of whole numbers are not rounded. Therefore

- a minibatch is cut into *granules* of `GRANULE` examples; the last one may be smaller. A granule's results have the
  same bits wherever they are computed, because the arrays, the kernels and the number of threads (one) are always the
  same. A device gets only whole granules;
- a granule's gradients are rounded once, to whole multiples of a unit, and are added as integers from then on.

    what               unit     as              a sum's limit
    gradients          2⁻⁴⁰     int64           2²²
    losses, metrics    2⁻²⁴     whole floats    2²⁸

A float64 has 53 bits: it adds whole numbers of units without rounding, as long as a sum has at most 2⁵² of them. For
gradients, int64 has ten bits more. A term may be at most the limit divided by the number of granules, so no sum can
exceed the limit. float32 has 24 bits: a gradient of 2⁻¹⁶ or more loses nothing here that float32 would keep.

Source: Demmel and Nguyen 2013, "Fast reproducible floating-point summation", where integer sums are the simplest method
if the range is known; docs/same_bits.md has the derivation.
"""

import numpy as np

from ..devices import array_module, on_device

GRANULE = 64
"""Examples per granule."""

GRADIENTS, _LOSSES = 2.0**-40, 2.0**-24
"""The units in the table above."""

MAX_GRADIENT, MAX_LOSS = 2.0**22, 2.0**28
"""The limits in the table above."""


class SumError(ValueError):
    """Exact sums cannot hold a number: it is too large, infinite or not a number."""


class ExactSums:
    """Exact sums over ``examples`` examples, on all devices together. ``where``: in words, for errors."""

    def __init__(self, examples, where):
        self.granules, self.where = max(1, len(slices_of_granules(examples))), where

    def add_gradients(self, totals, grads):
        """Add a granule's gradients (floats) to ``totals`` (int64): lists of arrays, one for each parameter."""
        for number, (total, grad) in enumerate(zip(totals, grads, strict=True)):
            self._check_fit(f"the gradient of parameter {number}", grad, MAX_GRADIENT)
            total += as_integers(grad)

    def losses(self, values):
        """A granule's loss and number of right answers, or its metrics, in whole units: float64 with one axis."""
        self._check_fit("the loss", values, MAX_LOSS)
        return array_module(values).rint(values / _LOSSES) * _LOSSES

    def _check_fit(self, what, values, limit):
        most, limit = array_module(values).abs(values).max(), limit / self.granules
        most = float(most if array_module(values) is np else most.get())
        if not most < limit:  # so it is for not a number
            raise SumError(
                f"{what} is {most:.3g} for a granule {self.where}, but exact sums over {self.granules} granules allow "
                f"less than {limit:.3g} for each; use a smaller lr, or sums='float'"
            )


@on_device
def as_integers(values):
    """Gradients, floats, as int64: in whole units."""
    xp = array_module(values)
    wide = xp.multiply(values, 1 / GRADIENTS, dtype=np.float64)
    return xp.rint(wide, out=wide).astype(np.int64)


@on_device
def as_floats(sums, dtype):
    """Sums of gradients, int64 in whole units, as floats."""
    return (sums * GRADIENTS).astype(dtype)


def slices_of_granules(n):
    """The examples of each granule, of n examples in all: a list of slices."""
    return [slice(start, min(n, start + GRANULE)) for start in range(0, n, GRANULE)]


SUMS = {"float": 1, "exact": GRANULE}
"""The ways to add up over examples; each device's number of examples must be a multiple of the number given here."""
