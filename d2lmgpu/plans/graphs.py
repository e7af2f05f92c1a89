"""A plan's step as a CUDA graph: recorded once, then launched with a single call.

A step of LeNet has sixteen kernels, which take a few microseconds each. Launching them one by one from Python
takes longer than running them. A *graph* is a recording of the step in the streams of all devices: the kernels, their
arguments, and which kernel waits for which. A single call then starts everything.

One thread does the work that `Step` adds for all devices, and so records it (devices/recording.py):

    a minibatch  ──►  F ► B ─┐
                             ├─ allreduce ► update
    another one  ──►  F ► B ─┘
                          └► fetch the next minibatch from the data set in the device's memory

Values that change from step to step are in the devices' memory (graph_store.py).
"""

import functools

import numpy as np

from ..devices.recording import GraphMemory, Recording
from ..kernels.cuda import capture, finish_card
from ..language.plan import COMPUTES
from ..language.ways import INNER, SCRATCH
from ..timing import paused
from .execute import Execution
from .graph_store import FUNCTIONS, GraphStore
from .lower import Action
from .step import Step
from .store import Minibatch


class GraphExecution(Execution):
    """Like `Execution`, with recorded steps: for a plan `data`, on GPUs of this process that use each other's memory.

    ``precision``: one of `kernels.cuda.PRECISIONS`; it does not change the plan's network. Raises RuntimeError if there
    are not kernels for all layers.
    """

    make_batch, functions = Recording, FUNCTIONS

    def __init__(self, plan, params, devices, optimizer="sgd", precision="float32", overlap=False):
        self.make_store = functools.partial(GraphStore, precision)
        super().__init__(plan, params, devices, optimizer, overlap=overlap)
        self.streams = [queue for queue in self.queues if queue.kind == "gpu"]  # but not those of the host
        self.memory, self.minibatches = GraphMemory(self.streams), {}
        self._add_actions(precision)
        for store in self.stores:
            if store.kernels is None or not {*store.ways.values()} <= {SCRATCH, INNER}:
                raise RuntimeError(f"in the plan {plan.name}, kernels do not compute F and B of each stage at once")

    def _add_actions(self, precision):
        """Add to the plan's actions what only graphs need (graph_store.py)."""
        after = 1 + max((n for n, (_, action) in enumerate(self.actions) if action.what in COMPUTES), default=-1)
        between = [(what, i) for i in self.store for what in ("fetch", "track")]  # this step's examples are used up
        self.actions[after:after] = [(None, Action(what, None, devices=(i,))) for what, i in between]
        self.before_updates += len(between)
        if precision == "mixed":
            each = [(i, s) for i, store in self.store.items() for s in store.parts if self.plan.stages[s].params]
            checks = [Action("find overflow", s, target=("grads", s), devices=(i,)) for i, s in each]
            self.actions[self.before_updates : self.before_updates] = [(None, check) for check in checks]
            self.before_updates += len(checks)

    def take_data(self, data, sizes):
        """Prepare the devices for epochs. ``data``: for each device, images (M, C, H, W) and labels (M,), uint8.

        ``sizes``: for each step of an epoch, a tuple with the number of examples in each micro-batch.
        """
        self.step_sizes = np.array(sizes, np.int64)
        for (i, store), (images, labels) in zip(self.store.items(), data, strict=True):
            own = sorted(m for device, m in self.begins if device == i)
            fetched = [(m, int(self.step_sizes[:, m].max())) for m in own]
            examples = int(self.step_sizes[:, own].sum())
            store.device.submit(store.take_data, images, labels, fetched, len(sizes), examples).result()

    def begin_epoch(self, order, rates, done, totals):
        """Let the next step be number ``done`` of an epoch, with the examples in this ``order``.

        ``rates``: for each step, the learning rate divided by the number of its examples. ``totals``: for each
        micro-batch, the loss and the correct answers so far.
        """
        counts = np.float32(self.step_sizes.sum(axis=1))
        columns = np.insert(rates, 0, 0), np.insert(counts, 0, 0)
        for i, store in self.store.items():
            arrays = examples_of_epoch(order, self.step_sizes, [m for m, *_ in store.fetches])
            own = {m: totals[m] for m, holder in self.holder.items() if holder == i}
            store.device.submit(store.begin_epoch, *arrays, *columns, done, own).result()

    def totals(self):
        """The loss and the correct answers of each micro-batch, summed over the epoch so far."""
        totals = np.zeros((self.plan.micro_batches, 2))
        for m, i in self.holder.items():
            totals[m] = self.store[i].device.submit(self.store[i].total, m).result()
        return totals.tolist()

    def record(self, sizes, steps=1):
        """A graph of ``steps`` steps; ``sizes``: a tuple with the number of examples in each micro-batch.

        The graph uses this object's memory, and must be launched in the first device's stream. The step is tried first,
        without lasting effect, so that all kernels are compiled and loaded, and all memory is allocated. Raises CuPy's
        error if recording fails; the state of the devices is then unchanged.
        """
        return self.devices[0].submit(self._record, sizes, steps).result()

    def _record(self, sizes, steps):
        with paused(self.streams), self.memory.in_use():
            on_each(self.stores, GraphStore.save)
            try:
                for _ in range(2):  # then permanent arrays exist, and temporary arrays have found their memory
                    self.issue(sizes)
            finally:
                on_each(self.stores, lambda store: finish_card())  # after an error, streams may not have been joined
                on_each(self.stores, GraphStore.restore)
            for queue in self.streams:
                queue.stream.synchronize()
            stream = self.devices[0].stream
            graph = capture(stream, lambda: [self.issue(sizes) for _ in range(steps)])
            graph.upload(stream)
        return graph

    def issue(self, sizes):
        """Submit one step's work to the devices' streams, which fork from the first device's and join it again."""
        first, *others = self.devices
        fork = Recording()
        for device in others:
            fork.wait(device, fork.record(first))
            fork.record(device)
        step = Step(self, self.minibatch(sizes), 0.0, 0.0)
        for end in step.ends[1:]:
            step.batch.wait(first, end)
        step.batch.record(first)

    def minibatch(self, sizes):
        """The `Minibatch` of each device, always with the same arrays for the same ``sizes``."""
        if sizes not in self.minibatches:
            self.minibatches[sizes] = {}
            for i, store in self.store.items():
                own = self.minibatches[sizes][i] = Minibatch(list(sizes), None)
                for m, x, y, *_ in store.fetches:
                    own.X[m], own.y[m] = x[: sizes[m]], y[: sizes[m]]
        return self.minibatches[sizes]


def examples_of_epoch(order, sizes, numbers):
    """The examples that the micro-batches with these ``numbers`` get in an epoch with this ``order``.

    ``sizes``: (steps, micro-batches). Returns two int32 arrays. The first has the examples' indices, one micro-batch
    after another. The second, (numbers, steps + 2), has a row for each micro-batch: where each step's examples begin in
    the first, as if an empty step followed the last one.
    """
    ends = sizes.cumsum().reshape(sizes.shape)
    chosen, starts = [np.empty(0, np.int64)], []
    for m in numbers:
        edges = np.cumsum([sum(map(len, chosen)), *sizes[:, m]])
        starts.append([*edges, edges[-1]])
        chosen += [order[stop - n : stop] for n, stop in zip(sizes[:, m].tolist(), ends[:, m].tolist(), strict=True)]
    return np.concatenate(chosen).astype(np.int32), np.array(starts, np.int32).reshape(-1, len(sizes) + 2)


def on_each(stores, do):
    """Call ``do`` with each store while the store's device is the current one."""
    for store in stores:
        with store.device.as_current():
            do(store)
