"""What a device computes in a training step that is a CUDA graph: everything that changes is in the device's memory.

A graph always runs the same kernels with the same arrays. So the following values are arrays, which kernels read and
write:

    number           the number of the step; each step increases it
    order, starts    the examples of each step; each step fetches those of the next one
    rates, sizes     for each step: the learning rate divided by the size of the minibatch, and this size
    scale, overflow  for mixed precision: see kernels/cuda/mixed_precision.cu
    totals           the loss and the correct answers of the device's examples, summed over the epoch
"""

import numpy as np

from ..devices import DeviceArray
from ..kernels.cuda import PRECISIONS, SideStreams, batch_norm, launch
from ..kernels.cuda.launch import optimize, run
from ..kernels.cuda.program import Program
from ..kernels.cuda.stages import rounds_output
from ..networks import mixed
from ..parallel.computation import Computation

ALIGNED = 16
"""The alignment, in bytes, that sgd.cu needs."""


class GraphComputation(Computation):
    """A `Computation` of the cross-entropy by kernels; ``precision``: one of `PRECISIONS`. It is made on the device.

    The examples are fetched from a data set on the device, ``images`` (M, C, H, W) and ``labels`` (M,), uint8.
    ``sizes``: how many of them the device has in each step of an epoch.
    """

    def __init__(self, device, network, loss, statistics, precision, images, labels, sizes):
        import cupy

        super().__init__(device, network, loss, statistics)
        self.precision, self.mixed = precision, PRECISIONS[precision]
        self.scale = cupy.full(1, mixed.FIRST_SCALE if self.mixed else 1, np.float32)
        self.number, self.overflow, self.good_steps, self.taken = (cupy.zeros(1, np.int32) for _ in range(4))
        self.count, self.zero = (cupy.zeros(1, np.int32) for _ in range(2))
        self.totals = cupy.zeros(1, np.float32), cupy.zeros(1, np.int32)
        self.rates, self.sizes = (cupy.zeros(len(sizes) + 1, np.float32) for _ in range(2))
        self.order, self.starts = cupy.zeros(max(1, sum(sizes)), np.int32), cupy.zeros(len(sizes) + 2, np.int32)
        self.data, most = (images, labels), max(sizes)
        self.x, self.y = cupy.zeros((most, *images.shape[1:]), np.float32), cupy.zeros(most, np.int32)
        half = rounds_output(self.mixed, network)
        self.how_to_fetch = launch.rounding(launch.gather(images.size // len(images), most), out=half)
        self.programs = {}  # by the number of examples
        self.branches = SideStreams(device.stream)
        self.bookkeeping = self.branches.branch()

    # Between steps:

    def begin_epoch(self, order, starts, rates, sizes, done, totals):
        """Let the next step be number ``done`` of the epoch; ``totals``: those of earlier steps. Runs on the device."""
        self.order[: len(order)].set(order)
        self.starts.set(starts)
        self.rates.set(rates)
        self.sizes.set(sizes)
        self.device.finish()  # the host's arrays may be gone as soon as this returns
        self.number.fill(done)
        for array, value in zip(self.totals, totals, strict=True):
            array.fill(value)
        self.fetch()
        self.branches.join()

    def total(self):
        """The loss and the correct answers, summed over the epoch so far. Runs on the device."""
        return [array.get()[0] for array in self.totals]

    def arrays(self):
        arrays = [self.scale, self.good_steps] if self.mixed else []
        return [self.device.submit(array.get).result() for array in arrays]

    def set_arrays(self, arrays):
        if self.mixed and arrays:
            for array, value in zip((self.scale, self.good_steps), arrays, strict=True):
                self.device.submit(array.set, value).result()
            self.device.submit(self.device.finish).result()

    def changing(self):
        """The plain arrays that a step changes and that must keep their values after it."""
        counts = self.taken, self.number, self.scale, self.overflow, self.good_steps
        return [*(array.raw for array in self.statistics), *counts, *self.totals, self.x, self.y]

    # In a step:

    def examples(self, n):
        """The images and labels of a step in which the device has n: two device arrays."""
        return [DeviceArray(array[:n], self.device) for array in (self.x, self.y)]

    def loss_and_grads(self, X, y, params, grads, batch_size, draws):
        """Add the results to ``totals``. This is where the step is counted."""
        if len(X):
            if len(X) not in self.programs:
                options = {"precision": self.precision, "branches": self.branches, "own": (X, y, self.scale)}
                self.programs[len(X)] = Program(self.network, params, X.shape[1:], len(X), **options)
            program = self.programs[len(X)]
            program.step, (program.epoch_loss, program.epoch_correct) = self.number, self.totals
            program.use_statistics(self.moments)
            program.forward(params)  # X and y are the program's own
            program.backward(params, grads, None)
            self.branches.join()
        else:
            run(launch.count_step(), self.number, self.zero)
            for array in [*grads, *self.moments]:
                array.fill(0)
        self.fetch()
        with self.bookkeeping:
            for mean, variance, own in self.running:
                run(batch_norm.track(mean.size), own, mean.raw, variance.raw)

    def fetch(self):
        """Fetch images and labels of the next step, in parallel with the work that follows."""
        with self.bookkeeping:
            if n := len(self.y):
                place = self.order, self.starts, self.number, self.x, self.y, self.count, np.int32(n)
                run(self.how_to_fetch, *self.data, *place)

    def final(self, params, grads):
        """The gradients; only the kernels know whether they are finite."""
        return grads, 1


class GraphOptimizer:
    """A `DeviceOptimizer` for all parameters at once, by kernels, with the rates in the device's memory.

    ``params``, ``grads``: flat device arrays; ``optimizer``: the `DeviceOptimizer`.
    """

    def __init__(self, optimizer, params, computation):
        self.name, self.flat_state = optimizer.optimizer.name, optimizer.flat_state
        self.params, self.grads, self.computation = params, None, computation

    @property
    def steps(self):
        """The number of Adam's updates, which are counted on the device."""
        return int(self.computation.device.submit(self.computation.taken.get).result()[0])

    @steps.setter
    def steps(self, steps):
        self.computation.device.submit(self.computation.taken.fill, steps).result()

    def update(self, params, grads, lr, batch_size):
        """Update the parameters. In mixed precision, an infinite gradient prevents it, and the scale is adapted."""
        own, params, grads = self.computation, self.params.raw, self.grads.raw
        n, state = params.size, [array.raw for array in self.flat_state]
        if own.mixed:
            run(launch.mixed_precision("check_finite", n), grads, own.overflow, np.int32(n))
        if self.name == "sgd" and not (own.mixed or params.data.ptr % ALIGNED or grads.data.ptr % ALIGNED):
            run(launch.sgd(n), params, grads, own.rates, own.number, np.int32(n))
        else:
            numbers = own.rates, own.sizes, own.number, own.scale, own.overflow, own.taken
            optimize(self.name, params, grads, state, *numbers)
        if self.name == "adam":
            run(launch.count_step(), own.taken, own.overflow)
        if own.mixed:
            kernel = launch.mixed_precision("update_scale", 1, mixed.INTERVAL)
            run(kernel, own.scale, own.overflow, own.good_steps)
        own.branches.join()
