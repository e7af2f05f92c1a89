"""How a device computes a stage of a plan in a CUDA graph: with permanent programs and without local copies.

Each micro-batch has its own program for each run, and for each stage that is computed separately. So a program's
results stay where the kernels wrote them until the next program reads them. Only data for other devices are copied, and
arranged by units.

    F 0 ──► logits of program 0 ═ x of program 1 ──► F 1
    B 0 ◄── dlogits of program 0 ═ dx of program 1 ◄── B 1

If a device computes only one micro-batch of a stage, it writes batch norm's sums directly where they are exchanged.
"""

from collections import Counter

import numpy as np

from ..devices import array_module
from ..kernels.cuda import PRECISIONS, Branches, Pass, Program
from ..kernels.cuda.stages import rounds_output
from ..kernels.stages import images_last
from ..language.plan import COMPUTES
from ..language.split import ROWS, norm_views
from .store import Store


class GraphPrograms(Store):
    """Like `Store`, but ``precision``, one of `PRECISIONS`, replaces the argument ``mixed``: kernels do the rounding.

    ``travels``: the values that are sent to other devices, or received from them. ``tracks_early``: whether moments are
    final as soon as all computations are done. ``targets``: for each stage and micro-batch, the value to which B adds
    gradients. ``alone``: for each stage with batch norm, the device's micro-batch, if the device has only one.
    """

    def __init__(self, precision, *arguments):
        import cupy

        self.precision_of_kernels = precision
        self.scale, self.number, self.unused = cupy.ones(1, np.float32), *(cupy.zeros(1, np.int32) for _ in range(2))
        self.programs, self.totals, self.travels, self.targets = {}, {}, set(), {}
        super().__init__(*arguments[:-1], False)
        self.branches = Branches(self.device.stream)
        counts = Counter(s for s, _ in self.ways)
        self.alone = {s: m for s, m in self.ways if self.norms[s] and self.splits[s] is None and counts[s] == 1}
        for value in ((kind, s) for s in self.alone for kind in ROWS):
            start, stop = self.extent(value)
            self.fixed[value] = cupy.zeros(stop - start, np.float64)

    def do(self, action, *more):
        """As in `Store`."""
        super().do(action, *more)
        if action.what in COMPUTES:
            self.branches.join()

    def begin(self, minibatch):
        """As in `Store`. ``counts``: whether a loss will be computed; the step is counted with the first loss."""
        super().begin(minibatch)
        last = len(self.layers) - 1
        self.counts = any(s == last and minibatch.examples[m] for s, m in self.ways)

    # Runs, and stages that are computed separately:

    def _run_in_parts(self, s, m, x, params, layers, grads, ready, sync_statistics, draws, loss, dx):
        key, options = (s, m, len(x)), {} if ready else {"branches": self.branches}
        if key not in self.programs:
            options |= self._options(s, m, x) | {"input_grad": dx is not None}
            self.programs[key] = Program(layers, params, x.shape[1:], len(x), **options)
        program = self.programs[key]
        self._count(program, m)
        program.use_statistics(sync_statistics)
        yield from program.forward(params, x, self.minibatch.y[m])
        yield from program.backward(params, grads, ready)
        self.branches.join()
        if dx is not None:
            self.values["dy", s - 1, m] = with_images_last(program.dx, ("dy", s - 1, m) in self.travels)

    def _pass(self, s, m, x, params, loss):
        key = s, m, len(x)
        if key not in self.programs:
            new = self.programs[key] = GraphPass(*self._of_pass(s, x, params, loss), **self._options(s, m, x))
            new.sync = self._new_sync(s)
            new.copies_y, new.copies_dx = ("y", s, m) in self.travels, ("dy", s - 1, m) in self.travels
            new.program.use_statistics(new.sync)
        self._count(self.programs[key].program, m)
        return self.programs[key]

    def _options(self, s, m, x):
        """Options of a new program. It reads its input in place if this stays there and is rounded correctly."""
        options = {"precision": self.precision_of_kernels, "scale": self.scale}
        if s == len(self.layers) - 1 or (s, m) in self.runs:
            options["labels"] = self.minibatch.y[m]
        rounds = rounds_output(PRECISIONS[self.precision_of_kernels], self.layers[s])
        if s == 0 or (x.flags.c_contiguous and ("y", s - 1, m) not in self.travels and not rounds):
            options["x"] = x
        return options

    def _count(self, program, m):
        """Set where a program with a loss counts the step and accumulates the loss."""
        if program.with_loss:
            program.step, self.counts = (self.number, False) if self.counts else (self.unused, False)
            program.epoch_loss, program.epoch_correct = self.totals[m]

    # Batch norm:

    def _is_alone(self, s):
        return s in self.alone and self.minibatch.examples[self.alone[s]] > 0

    def _flat(self, value):
        if value[0] in ROWS and self._is_alone(value[1]):  # it will be overwritten, so it need not be zero
            self._begin(value)
            self.unwritten.discard(value)
        return super()._flat(value)

    def _new_sync(self, s):
        made = super()._new_sync(s)
        for kind, rows in ROWS.items() if s in self.alone else ():
            views = norm_views(self.fixed[kind, s], rows, self.norms[s], None)
            made = [sync._replace(**{kind: view}) for sync, view in zip(made, views, strict=True)]
        return made

    def _sync_of_run(self, s, m):
        key = "sync", s, m
        if key not in self.programs:
            self.programs[key] = super()._sync_of_run(s, m)
        return self.programs[key]

    def _add_norms(self, kind, s, sync):
        if self._is_alone(s):
            self._flat((kind, s))
        else:
            super()._add_norms(kind, s, sync)

    def _take_norms(self, kind, s, sync):
        if not self._is_alone(s):
            super()._take_norms(kind, s, sync)

    def _places_of_half(self, action):
        return self._written_to([self.targets[action.stage, action.micro_batch]])


class GraphPass(Pass):
    """Like `Pass`. ``copies_y``, ``copies_dx``: whether to copy the result, arranged by units, for other devices."""

    def forward(self, X, params, y=None, draws=None):
        """As in `Pass`; the loss is in the program's totals."""
        yield from self.program.forward(params, X, y)
        if self.with_loss:
            return None
        return with_images_last(self.program.logits, self.copies_y)

    def backward(self, params, grads, dy=None, scale=1):
        """As in `Pass`; the program has its own scale."""
        if dy is not None:
            dy = array_module(dy).ascontiguousarray(dy)
            self.program.dlogits = dy
        yield from self.program.backward(params, grads)
        return with_images_last(self.program.dx, self.copies_dx) if self.input_grad else None


def with_images_last(x, copies):
    """A plain array (N, ...) as (..., N): a copy if ``copies`` is true, otherwise a view."""
    return images_last(x) if copies else array_module(x).moveaxis(x, 0, -1)
