"""What one device does in a plan whose steps are CUDA graphs: everything that changes is in the device's memory.

A graph always runs the same kernels with the same arguments. So the following values are arrays, which kernels read and
write:

    number           the number of the step; each step increases it
    order, starts    the examples of each step; at its end, a step fetches those of the next one
    rates, sizes     for each step: the learning rate divided by the size of the minibatch, and this size
    scale, overflow  for mixed precision: see kernels/cuda/mixed_precision.cu
    totals           for each micro-batch: the loss and the correct answers, summed over the epoch
"""

import functools

import numpy as np

from ..kernels.cuda import PRECISIONS, Branches, Program, batch_norm, launch, optimize, run, tensor_cores
from ..kernels.cuda.stages import rounds_output
from ..language.ways import SCRATCH
from ..parallel import loss_scale
from . import compute
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
        self.moments_of_run = {}  # by micro-batch
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
        fetch(self)
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


def begin(store, minibatch):
    """The step is counted with the first loss; if no loss is computed, it is counted here."""
    compute.begin(store, minibatch)
    store.counts = any(minibatch.examples[m] for _, m in store.ways)
    if not store.counts:
        run(launch.count_step(), store.number, store.zero)


def there_and_back(store, action, final=()):
    """As in compute.py, by a `Program`."""
    s, m = action.stage, action.micro_batch
    if m not in store.moments_of_run:
        store.moments_of_run[m] = [store.new_moments(i) for i in range(s, len(store.layers))]
    compute.compute_run(store, action, final, store.moments_of_run[m], functools.partial(_by_program, store, m))
    store.minibatch.sums[m] = None  # they stay on the device


def _by_program(store, m, x, params, layers, grads, ready, moments, **_):
    key, labels = (m, len(x)), store.minibatch.y[m]
    if key not in store.programs:
        options = {"precision": store.precision_of_kernels, "scale": store.scale, "labels": labels}
        options |= {"x": x} if ready else {"x": x, "branches": store.branches}
        store.programs[key] = Program(layers, params, x.shape[1:], len(x), **options)
    program = store.programs[key]
    program.step, store.counts = (store.number, False) if store.counts else (store.unused, False)
    program.epoch_loss, program.epoch_correct = store.totals[m]
    program.use_statistics(moments)
    program.forward(params, x, labels)
    program.backward(params, grads, ready)
    store.branches.join()


def fetch(store, action=None):
    """Fetch images and labels of the next step, in parallel with the work that follows."""
    with store.bookkeeping:
        for _, x, y, how, starts in store.fetches:
            if len(y):
                run(how, *store.data, store.order, starts, store.number, x, y, store.count, np.int32(len(y)))


def track(store, action):
    """Move the running statistics, in parallel with the work that follows."""
    with store.bookkeeping:
        for mean, variance, moments in compute.running_statistics(store):
            run(batch_norm.track(mean.size), moments, mean, variance)


def find_overflow(store, action):
    """For mixed precision: note whether any final gradient of the stage is not finite."""
    grads = store.final(action.stage)
    how = tensor_cores.mixed_precision("check_finite", grads.size)
    run(how, grads, store.overflow, np.int32(grads.size))


def update(store, action, *_):
    """Do a step of the optimiser, with the rates in the device's memory."""
    params, grads, state = compute.updated(store, action.stage), store.final(action.stage), store.state[action.stage]
    n = params.size
    is_aligned = not (params.data.ptr % ALIGNED or grads.data.ptr % ALIGNED)
    if n and store.optimizer.name == "sgd" and is_aligned and not store.kind:
        run(launch.sgd(n), params, grads, store.rates, store.number, np.int32(n))
    elif n:
        numbers = store.rates, store.sizes, store.number, store.scale, store.overflow, store.taken
        optimize(store.optimizer.name, params, grads, state, *numbers)


def end(store):
    """End a step: count it, and adapt the scale of mixed precision."""
    if store.optimizer.name == "adam":
        run(launch.count_step(), store.taken, store.overflow)
    if store.kind:
        how = tensor_cores.mixed_precision("update_scale", 1, loss_scale.INTERVAL)
        run(how, store.scale, store.overflow, store.good_steps)
    store.forget()
    store.branches.join()


FUNCTIONS = compute.FUNCTIONS | {
    "begin": begin,
    ("F", SCRATCH): there_and_back,
    ("fetch", None): fetch,
    ("track", None): track,
    ("find overflow", None): find_overflow,
    ("update", None): update,
    "end": end,
}
"""As in compute.py, and what only graphs need: `GraphExecution` adds these actions to those of the plan."""
