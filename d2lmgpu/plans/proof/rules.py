"""The rules of computations: which values each needs, and what it makes from them."""

import numpy as np

from ...collectives.columns import InvalidStep
from ..plan import computed_with

OLD, NEW = 1, 2
"""Parameters before and after the update."""


class Rules:
    """A part of `PlanReplay`, which has the tables: one method for each kind of computation.

    Each method yields what the computation makes, as triples (value, pieces, sums).
    """

    def computed(self, compute):
        """Yield what a computation makes: (value, pieces, sums). Raises `InvalidStep` if what it reads is wrong."""
        try:
            yield from getattr(self, f"_{compute.what}")(*compute[1:4], compute.grads)
        except InvalidStep as wrong:
            raise InvalidStep(f"{compute}: {wrong}") from None

    def _F(self, device, s, m, _):  # noqa: N802
        start, stop = self._own(device, s)
        self.use(device, ("params", s), (start, stop))
        if s:
            self.use(device, ("y", s - 1, m))
        has_none = start == stop and self.plan.stages[s].params > 0
        self._set_aside("cache", device, s, m, alone=has_none or s == len(self.plan.stages) - 1)
        if s < len(self.plan.stages) - 1:
            yield ("y", s, m), self.pieces(("y", s, m), self._own_units(device, s)), 1

    def _B(self, device, s, m, grads):  # noqa: N802
        yield from self._I(device, s, m, grads)
        yield from self._W(device, s, m, grads)

    def _I(self, device, s, m, _):  # noqa: N802
        self.use(device, ("params", s), self._own(device, s))
        self._check_kept("cache", device, s, m)
        if s < len(self.plan.stages) - 1:
            self.use(device, ("dy", s, m), self._own_units(device, s))
        self._set_aside("delta", device, s, m, alone=True)
        if s:
            yield ("dy", s - 1, m), slice(None), self._share(device, s)

    def _W(self, device, s, m, grads):  # noqa: N802
        for kind in "cache", "delta":
            self._check_kept(kind, device, s, m)
            self.kept_on_device.remove((kind, device, s, m))
        some = self.pieces(grads, self._own(device, s))
        there = self.sums(grads)[device, some]
        there = np.where(np.equal(there, None).astype(bool), 0, there)
        if (there & 1 << m).any():
            raise InvalidStep("the gradients contain this micro-batch's contribution already")
        yield grads, some, there | 1 << m

    def _update(self, device, s, m, grads):
        part = self.parts[device].get(s)
        if part is None or part.state[0] == part.state[1]:
            raise InvalidStep("the layout gives this device nothing of this stage to update")
        self.use(device, ("params", s), part.state)
        self.use(device, grads, part.state)
        yield ("params", s), self.pieces(grads, part.state), NEW

    def _own(self, device, s):
        """The elements of the stage with which the device computes."""
        bounds = computed_with(self.plan, device, s)
        if bounds is None:
            raise InvalidStep("the layout gives this device no part of this stage")
        return bounds

    def _own_units(self, device, s):
        """The units of y (start, stop) that the device makes, and of dy those that it needs; None for all."""
        return None if self.splits[s] is None else self.splits[s].units_of(self._own(device, s))

    def _share(self, device, s):
        """The shares of the dy that the stage hands back, of those which devices with other parts of it make, too."""
        if self.splits[s] is None:
            return 1
        first, last = map(self.borders[s].index, self._own(device, s))
        return (1 << last) - (1 << first)

    def _set_aside(self, kind, device, s, m, alone):
        """Note that a cache or delta is made.

        To make it a second time before its use is a waste if it is made ``alone``: nobody may want it for the y that
        comes with it.
        """
        if alone and (kind, device, s, m) in self.kept_on_device:
            self.waste(f"device {device}: {kind} of stage {s}, micro-batch {m}, is made again, and nobody has used it")
        self.kept_on_device.add((kind, device, s, m))

    def _check_kept(self, kind, device, s, m):
        if (kind, device, s, m) not in self.kept_on_device:
            raise InvalidStep(f"{kind} of stage {s}, micro-batch {m}, is not there")
