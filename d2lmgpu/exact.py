"""Sums over examples that have the same bits in any order of addition, and so on any number of devices.

A float is rounded after each addition: (a + b) + c is not a + (b + c). So the sum of gradients depends on how many
devices there are, on their shares and on the allreduce. Whole numbers are not rounded. So

- a minibatch is cut into *granules*, `GRANULE` examples each, the last one maybe less. What is computed of a granule
  has the same bits wherever that is done: always the same arrays, the same kernels, one thread. A device has whole
  granules;
- a granule's gradients are rounded to whole multiples of a unit, once, and from there on added as integers.

    what                        unit                            as                a sum's limit
    gradients                   2⁻⁴⁰                            int64             2²²
    losses, metrics             2⁻²⁴                            whole floats      2²⁸
    batch norm's moments        2⁻³⁰, of the mean of an image   whole floats      2²²
    batch norm's sums, back     2⁻³⁴                            whole floats      2¹⁸

A float64 has 53 bits: whole numbers of units are added in it without rounding, as long as a sum has no more than 2⁵² of
them. For gradients int64 has ten bits more. A term may be the limit divided by the number of granules, at most: so no
sum can be beyond it. float32 has 24 bits: a gradient of 2⁻¹⁶ or more loses nothing here that it would keep there.

Source: sums as integers are in Demmel and Nguyen 2013, "Fast reproducible floating-point summation", as the simplest of
ways where the range is known; docs/same_bits.md has the derivation.
"""

import math

import numpy as np

from .devices import array_module, on_device

GRANULE = 64
"""Examples of a granule."""

GRADIENTS, LOSSES, MOMENTS, NORM_SUMS = 2.0**-40, 2.0**-24, 2.0**-30, 2.0**-34
"""The units."""

MOST_GRADIENT, MOST_UNITS = 2.0**22, 2.0**52
"""A gradient's limit, and the others' in units."""

WHAT = "the loss", "batch norm's sum of squares", "the gradient of batch norm's parameters"
"""What may not fit, beside gradients."""


class SumError(ValueError):
    """What exact sums cannot hold: a number that is too large, infinite, or none."""


def unfit_error(code, where):
    """The `SumError` for what a GPU's kernels have noted: 1 + a place in `WHAT`, after which come the parameters."""
    number = code - 1 - len(WHAT)
    what = WHAT[code - 1] if number < 0 else f"the gradient of parameter {number}"
    advice = "take a smaller lr, or sums='float'"
    return SumError(f"{what} is too large for exact sums, or no number, for a granule {where}; {advice}")


class ExactSums:
    """The exact sums of a step on one device, of a minibatch of so many ``examples`` on all devices.

    ``scale``: by what gradients were multiplied, a power of two, in mixed precision: then what does not fit is no error
    but sets ``overflow``. ``where``: device and step, in words, for errors. ``first``: the number, among all of the
    network's, of the first parameter that kernels are given. ``unfit``, ``scales``: where kernels of a GPU note what
    does not fit, and find the scale; arrays of one, or None.
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
        """A granule's loss and right answers, or metrics, float64 of one axis, in whole units."""
        return self._in_units(WHAT[0], values, LOSSES)

    def moments(self, moments, count):
        """A granule's moments (3, C), of images with ``count`` places, in whole units."""
        return self._in_units(WHAT[1], moments, moments_unit(count))

    def norm_sums(self, sums):
        """A granule's sums (2, C) of the way back, likewise."""
        return self._in_units(WHAT[2], sums, NORM_SUMS * self.scale)

    def most(self, unit):
        """From which size on a term of such a unit, without the scale, does not fit."""
        return (MOST_GRADIENT if unit == GRADIENTS else unit * MOST_UNITS) / self.granules

    def check(self):
        """What GPUs have noted: SumError if something did not fit, or overflow."""
        code = 0 if self.unfit is None else int(self.unfit.get()[0])
        self.overflow = self.overflow or code > 0
        if code and not self.may_overflow:
            raise unfit_error(code, self.where)

    def _in_units(self, what, values, unit):
        self._fit(what, values, unit * MOST_UNITS)
        return array_module(values).rint(values / unit) * unit

    def _fit(self, what, values, limit):
        """Whether all ``values`` may be terms of a sum with this ``limit``; SumError unless they may overflow."""
        most, limit = float(abs(values).max()), limit / self.granules
        if most < limit:  # not so if it is no number
            return True
        if not self.may_overflow:
            raise SumError(
                f"{what} is {most:.3g} for a granule {self.where}, and exact sums of {self.granules} hold less than "
                f"{limit:.3g} of each; take a smaller lr, or sums='float'"
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
    """Of images with ``count`` places for each channel."""
    return MOMENTS * 2.0 ** math.ceil(math.log2(count))


def slices_of_granules(n):
    """Which of n examples each granule has."""
    return [slice(start, min(n, start + GRANULE)) for start in range(0, n, GRANULE)]


def sizes_of_granules(n):
    """How many of n examples each granule has."""
    return [part.stop - part.start for part in slices_of_granules(n)]


SUMS = {"float": 1, "exact": GRANULE}
"""How sums over examples are added, and of how many examples a part is a multiple."""
