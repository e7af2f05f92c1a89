"""Sums over examples that have the same bits in whatever order they are added, and thus on any number of devices.

A sum of floats is rounded after each addition, so (a + b) + c may differ from a + (b + c). The sum of gradients thus
depends on the number of devices, on their shares and on the allreduce. Sums of whole numbers are not rounded. Therefore

- a minibatch is cut into *granules* of `GRANULE` examples; the last one may be smaller. A granule's results have the
  same bits wherever they are computed, because the arrays, the kernels and the number of threads (one) are always the
  same. A device gets only whole granules;
- a granule's gradients are rounded once, to whole multiples of a unit, and are added as integers from then on.

    what                        unit                            as                a sum's limit
    gradients                   2⁻⁴⁰                            int64             2²²
    losses, metrics             2⁻²⁴                            whole floats      2²⁸
    batch norm's moments        2⁻³⁰, of the mean of an image   whole floats      2²²
    batch norm's sums, back     2⁻³⁴                            whole floats      2¹⁸

A float64 has 53 bits: it adds whole numbers of units without rounding, as long as a sum has at most 2⁵² of them. For
gradients, int64 has ten bits more. A term may be at most the limit divided by the number of granules, so no sum can
exceed the limit. float32 has 24 bits: a gradient of 2⁻¹⁶ or more loses nothing here that float32 would keep.

Source: Demmel and Nguyen 2013, "Fast reproducible floating-point summation", where integer sums are the simplest method
if the range is known; docs/same_bits.md has the derivation.
"""

import math

import numpy as np

from .devices import array_module, on_device

GRANULE = 64
"""Examples per granule."""

GRADIENTS, LOSSES, MOMENTS, NORM_SUMS = 2.0**-40, 2.0**-24, 2.0**-30, 2.0**-34
"""The units in the table above."""

MOST_GRADIENT, MOST_UNITS = 2.0**22, 2.0**52
"""The limit of a sum of gradients, and the limit of each of the other sums, in units."""

WHAT = "the loss", "batch norm's sum of squares", "the gradient of batch norm's parameters"
"""The numbers, besides gradients, that may be too large for a sum."""


class SumError(ValueError):
    """Exact sums cannot hold a number: it is too large, infinite or not a number."""


def unfit_error(code, where):
    """The `SumError` for a code noted by a GPU's kernels: 1 + an index into `WHAT` followed by the parameters."""
    number = code - 1 - len(WHAT)
    what = WHAT[code - 1] if number < 0 else f"the gradient of parameter {number}"
    advice = "use a smaller lr, or sums='float'"
    return SumError(f"{what} is too large for exact sums, or no number, for a granule {where}; {advice}")


class ExactSums:
    """The exact sums of a step on one device, for a minibatch that has ``examples`` in all, on all devices together.

    ``scale``: the power of two by which gradients were multiplied in mixed precision; then a gradient that does not fit
    is not an error but sets ``overflow``. ``where``: device and step, in words, for errors. ``first``: the number,
    among all of the network's parameters, of the first one that kernels are given. ``unfit``, ``scales``: arrays of one
    element, or None, in which a GPU's kernels note what does not fit, and from which they read the scale.
    """

    def __init__(self, examples, where, scale=None):
        self.granules, self.where, self.first = max(1, len(slices_of_granules(examples))), where, 0
        self.scale, self.may_overflow, self.overflow = scale or 1, scale is not None, False
        self.unfit = self.scales = None

    def add_gradients(self, totals, grads, first=0):
        """Add a granule's gradients (floats), those of the parameters from ``first`` on, to ``totals`` (int64)."""
        for number, (total, grad) in enumerate(zip(totals, grads, strict=True), self.first + first):
            if self._fit(f"the gradient of parameter {number}", grad, self.scale * MOST_GRADIENT):
                total += as_integers(grad, self.scale)

    def losses(self, values):
        """A granule's loss and number of correct answers, or its metrics, in whole units: float64 with one axis."""
        return self._in_units(WHAT[0], values, LOSSES)

    def moments(self, moments, count):
        """A granule's moments (3, C), for images with ``count`` positions, in whole units."""
        return self._in_units(WHAT[1], moments, moments_unit(count))

    def norm_sums(self, sums):
        """A granule's backward sums (2, C), in whole units."""
        return self._in_units(WHAT[2], sums, NORM_SUMS * self.scale)

    def most(self, unit):
        """The smallest size at which a term in this unit, without the scale, no longer fits."""
        return (MOST_GRADIENT if unit == GRADIENTS else unit * MOST_UNITS) / self.granules

    def check(self):
        """Look at what a GPU's kernels have noted: if something did not fit, raise SumError or set ``overflow``."""
        code = 0 if self.unfit is None else int(self.unfit.get()[0])
        self.overflow = self.overflow or code > 0
        if code and not self.may_overflow:
            raise unfit_error(code, self.where)

    def _in_units(self, what, values, unit):
        self._fit(what, values, unit * MOST_UNITS)
        return array_module(values).rint(values / unit) * unit

    def _fit(self, what, values, limit):
        """Whether ``values`` fit into a sum with this ``limit``. If not, raise SumError unless they may overflow."""
        most, limit = float(abs(values).max()), limit / self.granules
        if most < limit:  # false for not a number
            return True
        if not self.may_overflow:
            raise SumError(
                f"{what} is {most:.3g} for a granule {self.where}, but exact sums over {self.granules} granules allow "
                f"less than {limit:.3g} for each; use a smaller lr, or sums='float'"
            )
        self.overflow = True
        return False


@on_device
def as_integers(values, scale=1):
    """Gradients, floats multiplied by ``scale``, as int64: in whole units, without the scale."""
    xp = array_module(values)
    wide = xp.multiply(values, 1 / (GRADIENTS * scale), dtype=np.float64)
    return xp.rint(wide, out=wide).astype(np.int64)


@on_device
def as_floats(sums, dtype):
    """Sums of gradients, int64 in whole units, as floats."""
    return (sums * GRADIENTS).astype(dtype)


def moments_unit(count):
    """The unit of moments for images with ``count`` positions per channel."""
    return MOMENTS * 2.0 ** math.ceil(math.log2(count))


def slices_of_granules(n):
    """The examples of each granule, of n examples in all: a list of slices."""
    return [slice(start, min(n, start + GRANULE)) for start in range(0, n, GRANULE)]


def sizes_of_granules(n):
    """The number of examples of each granule, of n examples in all: a list."""
    return [part.stop - part.start for part in slices_of_granules(n)]


SUMS = {"float": 1, "exact": GRANULE}
"""The ways to add up over examples; each device's number of examples must be a multiple of the number given here."""
