"""Training with steps that are CUDA graphs: recorded once, then launched with a single call.

A step of LeNet has sixteen kernels, which take a few microseconds each. Launching them one by one from Python
takes longer than running them. A *graph* is a recording of the step in the streams of all devices: the kernels, their
arguments, and which kernel waits for which. A single call then starts everything.

One thread does the work of the textbook's `Step` for all devices, and so records it (devices/gpu.py):

    examples    ──►  loss_and_grads ─┐
                                     ├─ allreduce ► update
    other ones  ──►  loss_and_grads ─┘
                                   └► fetch the next examples from the data set in the device's memory

Values that change from step to step are in the devices' memory (training/graph_computation.py). The host program need
not do anything between steps, so it launches several at once if nothing is read in between.
"""

import collections

import numpy as np

from ..data.minibatches import epoch_size
from ..devices import DeviceArray, parts_of, put, to_host
from ..devices.gpu import GraphMemory, Recording
from ..devices.records import span
from ..devices.timeline import paused
from ..kernels.cuda import capture, finish_card, has_kernels
from ..networks import init_statistics
from ..parallel.shards import shard_bounds
from ..parallel.step import Replica, Step
from .graph_computation import GraphComputation, GraphOptimizer
from .resume import START
from .runner import AHEAD
from .textbook_steps import TextbookSteps

TOGETHER = 8
"""The number of steps in the longer graph, used when nothing is read in between: one call starts them all."""


class GraphStep(TextbookSteps):
    """Like `TextbookSteps`, on GPUs of this process that use each other's memory.

    ``X`` (M, C, H, W) and ``y`` (M,) are uint8.

    The constructor records the steps, which changes nothing on the devices, even if recording fails.

    Raises RuntimeError for a network with a layer that has no kernels, and whatever CuPy raises if recording fails.
    """

    def __init__(self, X, y, params, group, network, settings):
        if not has_kernels(network):
            raise RuntimeError("the network has a layer without kernels")
        batch_size = min(settings.batch_size, len(X))
        self.full, rest = divmod(epoch_size(len(X), batch_size, settings.drop_last), batch_size)
        self.counts = [batch_size] * self.full + [rest] * (rest > 0)
        shares = [shard_bounds(n, len(group), settings.loads) for n in self.counts]
        self.sizes = np.array([[stop - start for start, stop in each] for each in shares], np.int64)
        self.data = [np.asarray(X, np.uint8), np.asarray(y, np.uint8)]
        self.memory, self.graphs = GraphMemory(group.mine), {}
        with self.memory.in_use():  # the replicas' buffers are the graph's own
            super().__init__(X, y, params, group, network, settings)
        self.busy = [device for device, sizes in zip(self.devices, self.sizes.T, strict=True) if sizes.any()]
        self._launched = collections.deque()
        self._let_first_wait()
        self.graphs = {n: self.record(n) for n in sorted(set(self.counts))}
        self.longer_graph = self.record(batch_size, TOGETHER) if self.full >= TOGETHER else None

    def _replica(self, device, params, optimizer):
        statistics = [put(array, device) for array in init_statistics(self.network)]
        data = [put(array, device).raw for array in self.data]
        about = self.network, self.loss, statistics, self.settings.precision, *data
        sizes = self.sizes[:, self.devices.index(device)].tolist()
        computation = device.submit(GraphComputation, device, *about, sizes).result()
        flat = put(np.concatenate([to_host(param).reshape(-1) for param in params]), device)
        params = [DeviceArray(part, device) for part in parts_of(flat.raw, params)]
        optimizer = GraphOptimizer(optimizer, flat, computation)
        replica = Replica(device, params, optimizer, computation)
        optimizer.grads = replica.flat_grads
        return replica

    # Recording:

    def record(self, n, steps=1):
        """A graph of ``steps`` steps with n examples each, to be launched in the first device's stream.

        The step is tried first, without lasting effect, so that all kernels are compiled and loaded, and all memory is
        allocated. Raises CuPy's error if recording fails; the state of the devices is then unchanged.
        """
        return self.devices[0].submit(self._record, n, steps).result()

    def _record(self, n, steps):
        with paused(self.devices), self.memory.in_use():
            changing = [_changing(replica) for replica in self.replicas]
            saved = self._on_each(lambda i: [array.copy() for array in changing[i]])
            try:
                for _ in range(2):  # then permanent arrays exist, and temporary arrays have found their memory
                    self.issue(n)
            finally:
                self._on_each(lambda i: finish_card())  # after an error, streams may not have been joined
                self._on_each(lambda i: self._restore(i, changing[i], saved[i]))
            for device in self.devices:
                device.stream.synchronize()
            stream = self.devices[0].stream
            graph = capture(stream, lambda: [self.issue(n) for _ in range(steps)])
            graph.upload(stream)
        return graph

    def _on_each(self, do):
        """Call ``do(i)`` for each device, while it is the current one; return the results."""
        found = []
        for i, device in enumerate(self.devices):
            with device.as_current():
                found.append(do(i))
        return found

    def _restore(self, i, arrays, saved):
        self.replicas[i].computation.branches.join()  # a failed step may not have joined them
        for array, value in zip(arrays, saved, strict=True):
            array[...] = value

    def issue(self, n):
        """Give one step's work to the devices' streams, which fork from the first device's and join it again."""
        first, *others = self.devices
        fork, batch = Recording(), Recording()
        for device in others:
            fork.wait(device, fork.record(first))
            fork.record(device)
        shares = shard_bounds(n, len(self.devices), self.settings.loads)
        pairs = zip(self.replicas, shares, strict=True)
        X, y = zip(*(replica.computation.examples(stop - start) for replica, (start, stop) in pairs), strict=True)
        Step(self.replicas, X, y, 0.0, n, self.group, self.algorithm, flat=True, batch=batch)
        for device in others:
            batch.wait(first, batch.record(device))
        batch.record(first)

    # What a `Runner` does:

    def so_far(self):
        """An epoch's results are known only when it is over."""
        return None, None

    def start_epoch(self, order, rates, position=START):
        """The losses may come from another plan or other devices."""
        losses = list(position.losses)
        if len(losses) != len(self.replicas):
            losses = [sum(losses)] + [0.0] * (len(self.replicas) - 1)
        counts, correct = np.float32(self.counts), position.correct or 0
        rates = np.float32(np.broadcast_to(rates, self.steps) / counts)
        columns = np.insert(rates, 0, 0), np.insert(counts, 0, 0)
        for i, (replica, loss) in enumerate(zip(self.replicas, losses, strict=True)):
            arrays, totals = examples_of_epoch(order, self.sizes, i), (loss, 0 if i else correct)
            begin = replica.computation.begin_epoch
            replica.device.submit(begin, *arrays, *columns, position.steps, totals).result()
        self._let_first_wait()
        self.number = position.steps

    def launch(self, most):
        """Launch `TOGETHER` steps at once, or one if ``most`` is less.

        The host program waits only if it is already `AHEAD` launches ahead.
        """
        if self.longer_graph is None or min(most, self.full - self.number) < TOGETHER:
            return self._submit(self.graphs[self.counts[self.number]], 1)
        return self._submit(self.longer_graph, TOGETHER)

    def pause(self):
        """The losses are those of each device's examples."""
        self.close()
        totals = [replica.device.submit(replica.computation.total).result() for replica in self.replicas]
        return [float(loss) for loss, _ in totals], int(sum(correct for _, correct in totals))

    def close(self):
        """Make later work on all devices wait for the steps so far; call it before you drop this object.

        The graph uses all devices' memory but runs in the first device's stream, so the other devices might otherwise
        reuse that memory for new arrays while the graph still needs it.
        """
        if self._launched:
            for device in self.devices[1:]:
                device.wait(self._launched[-1])
            self._launched.clear()

    def _submit(self, graph, steps):
        sizes = self.counts[self.number : self.number + steps]
        self.number += steps
        self._launched.append(self.devices[0].submit(self._launch, graph))
        if len(self._launched) > AHEAD:
            self._launched.popleft().result().synchronize()
        return sizes

    def _launch(self, graph):
        first = self.devices[0]
        with span("step", self.busy):
            graph.launch(first.stream)
        return first.mark()

    def _let_first_wait(self):
        """Make the graph wait for all the work that the devices have been given so far."""
        for device in self.devices[1:]:
            self.devices[0].wait(device.record())


def _changing(replica):
    """The plain arrays that a step changes and that must keep their values after it."""
    own = [replica.optimizer.params, *replica.optimizer.flat_state]
    return [*(array.raw for array in own), *replica.computation.changing()]


def examples_of_epoch(order, sizes, i):
    """The examples that device i gets in an epoch with this ``order``; ``sizes``: (steps, devices).

    Returns two int32 arrays: the examples' indices, and where each step's begin in them, (steps + 2,), as if an empty
    step followed the last one.
    """
    ends = sizes.cumsum().reshape(sizes.shape)[:, i].tolist()
    chosen = [order[stop - n : stop] for n, stop in zip(sizes[:, i].tolist(), ends, strict=True)]
    edges = np.cumsum([0, *sizes[:, i]]).tolist()
    return np.concatenate(chosen).astype(np.int32), np.array([*edges, edges[-1]], np.int32)
