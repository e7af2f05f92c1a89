"""Sums over examples with the same bits in whatever order they are added, and so on any number of devices.

A float sum is rounded after each addition: (a + b) + c is not a + (b + c). So the sum of gradients depends on how many
devices there are, on their shares and on the allreduce. Whole numbers are not rounded. So

- a minibatch is cut into *granules* of `GRANULE` examples; the last one may be smaller. A granule's results have the
  same bits wherever they are computed: always with the same arrays, the same kernels, and one thread. A device has
  whole granules;
- a granule's gradients are rounded once to whole multiples of a unit, and from then on added as integers.

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
"""The units."""

MOST_GRADIENT, MOST_UNITS = 2.0**22, 2.0**52
"""The limit of a gradient, and the limits of the others in units."""

WHAT = "the loss", "batch norm's sum of squares", "the gradient of batch norm's parameters"
"""What else may not fit, besides gradients."""


class SumError(ValueError):
    """Exact sums cannot hold a number: it is too large, infinite or not a number."""


def unfit_error(code, where):
    """The `SumError` for a code noted by a GPU's kernels: 1 + an index into `WHAT`, followed by the parameters."""
    number = code - 1 - len(WHAT)
    what = WHAT[code - 1] if number < 0 else f"the gradient of parameter {number}"
    advice = "take a smaller lr, or sums='float'"
    return SumError(f"{what} is too large for exact sums, or no number, for a granule {where}; {advice}")


class ExactSums:
    """The exact sums of a step on one device, for a minibatch of ``examples`` examples on all devices together.

    ``scale``: the power of two by which gradients were multiplied in mixed precision; then a gradient that does not fit
    is not an error but sets ``overflow``. ``where``: device and step, in words, for errors. ``first``: the number,
    among all of the network's parameters, of the first one that kernels are given. ``unfit``, ``scales``: arrays of one
    element, or None, in which a GPU's kernels note what does not fit, and find the scale.
    """

    def __init__(self, examples, where, scale=None):
        self.granules, self.where, self.first = max(1, len(slices_of_granules(examples))), where, 0
        self.scale, self.may_overflow, self.overflow = scale or 1, scale is not None, False
        self.unfit = self.scales = None

    def add_gradients(self, totals, grads, first=0):
        """Add a granule's gradients, floats, to ``totals``, int64: those of the parameters from ``first`` on."""
        for number, (total, grad) in enumerate(zip(totals, grads, strict=True), self.first + first):
            if self._fit(f"the gradient of parameter {number}", grad, self.scale * MOST_GRADIENT):
                total += as_integers(grad, self.scale)

    def losses(self, values):
        """A granule's loss and correct answers, or metrics, in whole units: float64 with one axis."""
        return self._in_units(WHAT[0], values, LOSSES)

    def moments(self, moments, count):
        """A granule's moments (3, C), for images with ``count`` positions, in whole units."""
        return self._in_units(WHAT[1], moments, moments_unit(count))

    def norm_sums(self, sums):
        """A granule's backward sums (2, C), in whole units."""
        return self._in_units(WHAT[2], sums, NORM_SUMS * self.scale)

    def most(self, unit):
        """The size from which a term in this unit, without the scale, does not fit."""
        return (MOST_GRADIENT if unit == GRADIENTS else unit * MOST_UNITS) / self.granules

    def check(self):
        """Look at what GPUs have noted: raise SumError if something did not fit, or set overflow."""
        code = 0 if self.unfit is None else int(self.unfit.get()[0])
        self.overflow = self.overflow or code > 0
        if code and not self.may_overflow:
            raise unfit_error(code, self.where)

    def _in_units(self, what, values, unit):
        self._fit(what, values, unit * MOST_UNITS)
        return array_module(values).rint(values / unit) * unit

    def _fit(self, what, values, limit):
        """Whether all ``values`` fit into a sum with this ``limit``; if not, SumError unless they may overflow."""
        most, limit = float(abs(values).max()), limit / self.granules
        if most < limit:  # false for not a number
            return True
        if not self.may_overflow:
            raise SumError(
                f"{what} is {most:.3g} for a granule {self.where}, but exact sums over {self.granules} granules allow "
                f"less than {limit:.3g} for each; take a smaller lr, or sums='float'"
            )
        self.overflow = True
        return False


@on_device
def as_integers(values, scale=1):
    """Floats, multiplied by ``scale``, in whole units of gradients: int64."""
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
    """Which of n examples each granule has."""
    return [slice(start, min(n, start + GRANULE)) for start in range(0, n, GRANULE)]


def sizes_of_granules(n):
    """How many of n examples each granule has."""
    return [part.stop - part.start for part in slices_of_granules(n)]


SUMS = {"float": 1, "exact": GRANULE}
"""How sums over examples are added, and the number of examples that each part must be a multiple of."""
