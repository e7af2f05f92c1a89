"""Exact sums on GPUs (exact.py): a program for each granule of the images, whose results are added as whole numbers.

    images 0 ... 63    ──►  program 0  ──►  gradients, float32 ─┐
    images 64 ... 127  ──►  program 1  ──►  gradients, float32 ─┼─►  exact.cu: int64
    the rest           ──►  program 2  ──►  gradients, float32 ─┘

So a granule's kernels are launched in the same way wherever it is computed: the same kernels, for the same number of
images. With branches, granules are computed side by side, since one does not keep a whole GPU busy.
"""

import contextlib
import itertools
import math

import numpy as np

from ...devices import array_module
from ...exact import GRADIENTS, LOSSES, NORM_SUMS, WHAT, moments_unit, slices_of_granules
from ...layers.batch_norm import SyncStatistics
from ..stages import to_the_end
from . import launch
from .program import Program
from .run import empty, run

MOST_BRANCHES = 16
"""The most streams in which granules are computed side by side."""


def noted_here(exact):
    """The given `ExactSums`, with new arrays on the current GPU unless it already has some."""
    import cupy

    if exact.unfit is None:
        exact.unfit, exact.scales = cupy.zeros(1, np.int32), cupy.full(1, exact.scale, np.float32)
    return exact


class Granules:
    """A replacement for a `Program`, with its arguments; ``exact``, an `ExactSums`, is set before each `forward`.

    ``parts``: programs, each with the slice of the images that it computes. Gradients are added to int64 arrays; the
    loss, and the epoch's, are float64.
    """

    def __init__(self, network, params, shape, N, precision="float32", branches=None, x=None, labels=None, **options):
        import cupy

        self.one = cupy.ones(1, np.float32)
        self.scale = options.setdefault("scale", cupy.ones(1, np.float32))  # of all of them
        self.parts = []
        for part in slices_of_granules(N):
            options |= {"x": x if x is None else x[part], "labels": labels if labels is None else labels[part]}
            self.parts.append((Program(network, params, shape, part.stop - part.start, precision, **options), part))
        (first, _), count = self.parts[0], len(self.parts)
        self.with_loss, self.logits = first.with_loss, empty((N, *first.logits.shape[1:]))
        self.dx = empty((N, *shape)) if options.get("input_grad") else None
        self.grads = [empty((count, *param.shape)) for param in params]
        self.losses, self.hits = empty(count), empty(count, np.int32)
        for j, (program, _) in enumerate(self.parts):
            program.loss, program.correct = self.losses[j : j + 1], self.hits[j : j + 1]
        self.found, self.epoch_loss = cupy.zeros(2, np.float64), cupy.zeros(1, np.float64)  # loss and right answers
        self.epoch_correct, self.step = cupy.zeros(1, np.int32), cupy.zeros(1, np.int32)
        channels = [norm.x.shape[1] for norm in first.norms]
        self.terms = [SyncStatistics(*(empty((count, rows, C), np.float64) for rows in (3, 2))) for C in channels]
        self.beside = [branches.branch() for _ in range(min(count, MOST_BRANCHES))] if branches and count > 1 else []

    def own_sync_statistics(self):
        """As in `Program`."""
        return self.parts[0][0].own_sync_statistics()

    def use_statistics(self, sync_statistics=(), statistics=()):
        """As in `Program`."""
        self.sync = sync_statistics
        for program, _ in self.parts:
            program.use_statistics(sync_statistics, statistics)

    def forward(self, params, X=None, y=None, draws=None):
        """As in `Program`."""
        passes = [
            program.forward(params, X[part], None if y is None else y[part], draws and draws.after(part.start))
            for program, part in self.parts
        ]
        for i, sync in enumerate(self.sync):
            terms, places = self.terms[i].moments, math.prod(self.parts[0][0].norms[i].x.shape[2:])
            self._measure(i, passes, [sync._replace(moments=own) for own in terms])
            self._add("add_units", terms, sync.moments, self.one, moments_unit(places), 1)
            yield
        self._each(passes, to_the_end)
        for program, part in self.parts:
            self.logits[part] = program.logits
        if self.with_loss:
            books = self.found, self.epoch_loss, self.epoch_correct, self.step, self.exact.unfit
            run(launch.exact("add_losses"), self.losses, self.hits, *books, *self._numbers(LOSSES, 0))

    def sums(self, y, loss=None, scale=1):
        """As in `Program`, in float64."""
        if loss:
            terms = array_module(y).stack([program.sums(y[part], loss, scale) for program, part in self.parts])
            self._add("add_units", terms.astype(np.float64), self.found, self.one, LOSSES, 0)
        return self.found.copy()

    def backward(self, params, grads, ready=None):
        """As in `Program`, but gradients are added to ``grads``."""
        first, left, passes = self.exact.first + len(WHAT), [*zip(self.grads, grads, strict=True)], []

        def add(number):
            while len(left) > number:
                terms, total = left.pop()
                self._add("add_gradients", terms, total, self.exact.scales, GRADIENTS, first + len(left))
            if ready is not None:
                ready(number)

        for j, (program, _) in enumerate(self.parts):
            tells = j == len(self.parts) - 1 and not self.beside  # others' gradients are there when the last one's are
            passes.append(program.backward(params, [terms[j] for terms in self.grads], add if tells else None))
        for i, sync in reversed([*enumerate(self.sync)]):
            terms = self.terms[i].sums
            self._measure(i, passes, [sync._replace(sums=own) for own in terms])
            self._add("add_units", terms, sync.sums, self.exact.scales, NORM_SUMS, 2)
            yield
        self._each(passes, to_the_end)
        if left:
            add(0)
        for program, part in self.parts if self.dx is not None else ():
            self.dx[part] = program.dx

    def _measure(self, i, passes, own):
        """All programs go on to their batch norm layer i and write their sums to ``own``; then they read the totals."""
        norms = [program.norms[i] for program, _ in self.parts]
        for norm, mine in zip(norms, own, strict=True):
            norm.sync = mine
        self._each(passes, next)
        for norm in norms:
            norm.sync = self.sync[i]

    def _each(self, passes, do):
        """Go on with all programs, side by side if there are branches."""
        for one, branch in zip(passes, itertools.cycle(self.beside or [contextlib.nullcontext()]), strict=False):
            with branch:
                do(one)
        for branch in self.beside:
            branch.join()

    def _add(self, name, terms, total, scale, unit, code):
        """Run one of the kernels that add up the granules' ``terms``, in a ``total`` or to what is there."""
        arguments = terms, total, scale, self.exact.unfit, *self._numbers(unit, code), np.int32(total.size)
        run(launch.exact(name, total.size), *arguments)

    def _numbers(self, unit, code):
        """For kernels: a unit, the size from which a term does not fit, the code for this, and the number of terms."""
        return np.float64(unit), np.float64(self.exact.most(unit)), np.int32(1 + code), np.int32(len(self.parts))
