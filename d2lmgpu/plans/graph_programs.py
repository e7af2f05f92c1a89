"""How a device computes a stage of a plan in a CUDA graph: with permanent programs and without local copies.

Each micro-batch has its own program for each run, and for each stage that is computed separately. So a program's
results stay where the kernels wrote them until the next program reads them. Only data for other devices are copied, and
arranged by units.

    F 0 ──► logits of program 0 ═ x of program 1 ──► F 1
    B 0 ◄── dlogits of program 0 ═ dx of program 1 ◄── B 1
"""

import numpy as np

from ..devices import array_module
from ..kernels.cuda import PRECISIONS, Branches, Pass, Program
from ..kernels.cuda.stages import rounds_output
from ..kernels.stages import images_last
from ..language.plan import COMPUTES
from .store import Store


class GraphPrograms(Store):
    """Like `Store`, but ``precision``, one of `PRECISIONS`, replaces the argument ``mixed``: kernels do the rounding.

    ``travels``: the values that are sent to other devices, or received from them.
    """

    def __init__(self, precision, *arguments):
        import cupy

        self.precision_of_kernels = precision
        self.scale, self.number, self.unused = cupy.ones(1, np.float32), *(cupy.zeros(1, np.int32) for _ in range(2))
        self.programs, self.totals, self.travels = {}, {}, set()
        super().__init__(*arguments[:-1], False)
        self.branches = Branches(self.device.stream)

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

    def _run_in_parts(self, s, m, x, params, layers, grads, ready, moments, draws, loss, dx):
        key, options = (s, m, len(x)), {} if ready else {"branches": self.branches}
        if key not in self.programs:
            options |= self._options(s, m, x) | {"input_grad": dx is not None}
            self.programs[key] = Program(layers, params, x.shape[1:], len(x), **options)
        program = self.programs[key]
        self._count(program, m)
        program.use_statistics(moments)
        program.forward(params, x, self.minibatch.y[m])
        program.backward(params, grads, ready)
        self.branches.join()
        if dx is not None:
            self.values["dy", s - 1, m] = with_images_last(program.dx, ("dy", s - 1, m) in self.travels)

    def _pass(self, s, m, x, params, loss):
        key = s, m, len(x)
        if key not in self.programs:
            new = self.programs[key] = GraphPass(*self._of_pass(s, x, params, loss), **self._options(s, m, x))
            new.moments = self._new_moments(s)
            new.copies_y, new.copies_dx = ("y", s, m) in self.travels, ("dy", s - 1, m) in self.travels
            new.program.use_statistics(new.moments)
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

    def _moments_of_run(self, s, m):
        key = "moments", s, m
        if key not in self.programs:
            self.programs[key] = super()._moments_of_run(s, m)
        return self.programs[key]


class GraphPass(Pass):
    """Like `Pass`. ``copies_y``, ``copies_dx``: whether to copy the result, arranged by units, for other devices."""

    def forward(self, X, params, y=None, draws=None):
        """As in `Pass`; the loss is in the program's totals."""
        self.program.forward(params, X, y)
        if self.with_loss:
            return None
        return with_images_last(self.program.logits, self.copies_y)

    def backward(self, params, grads, dy=None, scale=1):
        """As in `Pass`; the program has its own scale."""
        if dy is not None:
            dy = array_module(dy).ascontiguousarray(dy)
            self.program.dlogits = dy
        self.program.backward(params, grads)
        return with_images_last(self.program.dx, self.copies_dx) if self.input_grad else None


def with_images_last(x, copies):
    """A plain array (N, ...) as (..., N): a copy if ``copies`` is true, otherwise a view."""
    return images_last(x) if copies else array_module(x).moveaxis(x, 0, -1)
