"""A device's part of a plan whose steps are CUDA graphs: everything that changes is in the device's memory.

A graph always runs the same kernels with the same arguments. So the following values are arrays, which kernels read and
write:

    number           the number of the step; each step increases it
    order, starts    the examples of each step; at its end, a step fetches those of the next one
    rates, sizes     for each step: the learning rate divided by the size of the minibatch, and this size
    scale, overflow  for mixed precision: see kernels/cuda/mixed_precision.cu
    totals           for each micro-batch: the loss and the correct answers, summed over the epoch
"""

import numpy as np

from ..kernels.cuda import PRECISIONS, Branches, Program, batch_norm, launch, optimize, run
from ..kernels.cuda.stages import rounds_output
from ..language.plan import COMPUTES
from ..parallel import loss_scale
from .store import Store

ALIGNED = 16
"""The alignment, in bytes, that sgd.cu needs."""


class GraphStore(Store):
    """Like `Store`, but ``precision``, one of `PRECISIONS`, replaces the argument ``mixed``: kernels do the rounding.

    Each micro-batch has a permanent program. It reads its examples where they were fetched to, and its results stay
    where the kernels wrote them.
    """

    def __init__(self, precision, *arguments):
        import cupy

        self.precision_of_kernels, self.programs, self.totals = precision, {}, {}
        self.scale, self.number, self.unused = cupy.ones(1, np.float32), *(cupy.zeros(1, np.int32) for _ in range(2))
        self.kind = PRECISIONS[precision] if precision == "mixed" else None
        self.count, self.zero, self.overflow, self.good_steps, self.taken = (cupy.zeros(1, np.int32) for _ in range(5))
        self.fetches = []  # for each micro-batch: its number, images, labels, how to launch, starts
        super().__init__(*arguments[:-1], False)
        self.scale.fill(loss_scale.FIRST_SCALE if self.kind else 1)
        self.branches = Branches(self.device.stream)
        self.bookkeeping = self.branches.branch()

    @property
    def steps(self):
        """The number of Adam's updates, which are counted on the device."""
        return int(self.device.submit(self.taken.get).result()[0])

    @steps.setter
    def steps(self, steps):
        self.device.submit(self.taken.fill, steps).result()

    # Between steps:

    def take_data(self, images, labels, fetched, steps, examples):
        """Prepare for epochs of ``steps`` steps and ``examples`` examples from a data set: uint8 arrays on the device.

        ``fetched``: for each of the device's micro-batches, its number and its largest number of examples.
        """
        import cupy

        half = rounds_output(PRECISIONS[self.precision_of_kernels], self.layers[0])
        self.rates, self.sizes = cupy.zeros(steps + 1, np.float32), cupy.zeros(steps + 1, np.float32)
        self.starts = cupy.zeros((len(fetched), steps + 2), np.int32)
        self.order, self.data = cupy.zeros(max(1, examples), np.int32), (images, labels)
        for starts, (m, n) in zip(self.starts, fetched, strict=True):
            x = cupy.zeros((n, *images.shape[1:]), np.float32)
            how = launch.gather(images.size // len(images), n)
            self.fetches.append((m, x, cupy.zeros(n, np.int32), launch.rounding(how, out=half), starts))
            self.totals[m] = cupy.zeros(1, np.float32), cupy.zeros(1, np.int32)

    def begin_epoch(self, order, starts, rates, sizes, done, totals):
        """Let the next step be number ``done`` of the epoch; ``totals``: those of earlier steps, by micro-batch."""
        self.order[: len(order)].set(order)
        self.starts.set(starts)
        self.rates.set(rates)
        self.sizes.set(sizes)
        self.device.finish()  # the host's arrays may be gone as soon as this returns
        self.number.fill(done)
        for m, own in self.totals.items():
            for array, value in zip(own, totals.get(m, (0, 0)), strict=True):
                array.fill(value)
        self.fetch()
        self.branches.join()

    def total(self, m):
        """A micro-batch's loss and correct answers, summed over the epoch so far."""
        return [array.get()[0] for array in self.totals[m]]

    def scaling(self):
        """For mixed precision: arrays with the loss's scale, and with the number of good steps since it changed."""
        return [self.scale, self.good_steps] if self.kind else []

    def changing(self):
        """The arrays that a step changes and that must keep their values after it."""
        own = [self.flat, *self.flat_state, *(array for s in sorted(self.running) for array in self.running[s])]
        own += [self.taken, self.number, self.scale, self.overflow, self.good_steps]
        own += [array for total in self.totals.values() for array in total]
        return own + [array for _, *each in self.fetches for array in each[:2]]

    def save(self):
        """Save copies of the arrays that a step changes, for `restore`."""
        self.saved = [(array, array.copy()) for array in self.changing()]

    def restore(self):
        """Restore the values that `save` saved."""
        self.branches.join()  # a failed step may not have joined them
        self.forget()
        for array, saved in self.saved:
            array[...] = saved
        self.saved = None

    # In a step:

    def do(self, action, *more):
        """As in `Store`."""
        super().do(action, *more)
        if action.what in COMPUTES:
            self.branches.join()

    def begin(self, minibatch):
        """As in `Store`. The step is counted with the first loss; if no loss is computed, it is counted here."""
        super().begin(minibatch)
        self.counts = any(minibatch.examples[m] for _, m in self.ways)
        if not self.counts:
            run(launch.count_step(), self.number, self.zero)

    def _run_in_parts(self, s, m, x, params, layers, grads, ready, moments, draws, loss, dx):
        key = m, len(x)
        if key not in self.programs:
            options = {"precision": self.precision_of_kernels, "scale": self.scale, "labels": self.minibatch.y[m]}
            options |= {"x": x} if ready else {"x": x, "branches": self.branches}
            self.programs[key] = Program(layers, params, x.shape[1:], len(x), **options)
        program = self.programs[key]
        program.step, self.counts = (self.number, False) if self.counts else (self.unused, False)
        program.epoch_loss, program.epoch_correct = self.totals[m]
        program.use_statistics(moments)
        program.forward(params, x, self.minibatch.y[m])
        program.backward(params, grads, ready)
        self.branches.join()

    def _moments_of_run(self, s, m):
        key = "moments", m
        if key not in self.programs:
            self.programs[key] = super()._moments_of_run(s, m)
        return self.programs[key]

    def fetch(self):
        """Fetch images and labels of the next step, in parallel with the work that follows."""
        with self.bookkeeping:
            for _, x, y, how, starts in self.fetches:
                if len(y):
                    run(how, *self.data, self.order, starts, self.number, x, y, self.count, np.int32(len(y)))

    def find_overflow(self):
        """Note whether any final gradient is not finite."""
        for grads in self._all_final():
            how = launch.mixed_precision("check_finite", grads.size)
            run(how, grads, self.overflow, np.int32(grads.size))

    def clear(self):
        """As in `Store`."""
        if self.optimizer.name == "adam":
            run(launch.count_step(), self.taken, self.overflow)
        if self.kind:
            how = launch.mixed_precision("update_scale", 1, loss_scale.INTERVAL)
            run(how, self.scale, self.overflow, self.good_steps)
        self.forget()
        self.branches.join()

    def track(self):
        """As in `Store`, in parallel with the work that follows."""
        with self.bookkeeping:
            super().track()

    def _track(self, mean, variance, moments):
        run(batch_norm.track(mean.size), moments, mean, variance)

    def _optimize(self, params, grads, state, lr, batch_size):
        n = params.size
        is_aligned = not (params.data.ptr % ALIGNED or grads.data.ptr % ALIGNED)
        if n and self.optimizer.name == "sgd" and is_aligned and not self.kind:
            run(launch.sgd(n), params, grads, self.rates, self.number, np.int32(n))
        elif n:
            numbers = self.rates, self.sizes, self.number, self.scale, self.overflow, self.taken
            optimize(self.optimizer.name, params, grads, state, *numbers)
