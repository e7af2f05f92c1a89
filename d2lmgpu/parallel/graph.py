"""A whole training step as one CUDA graph: recorded once, then launched with a single call.

LeNet's step is some twenty kernels of a few microseconds each. Launching them
one by one from Python takes longer than they run. A *graph* is the step as a
recording: kernels, their arguments, and which waits for which, over the streams of
all devices. One call then starts it all.

    a minibatch  ──►  forward ► backward ─┐
                                          ├─ allreduce ► update
    another one  ──►  forward ► backward ─┘
                                       └► gather: the next one, out of the data set in the device's memory

Where batch norm takes sums over all devices' images, forward and backward are cut,
and there is an allreduce in between, too.

What changes from step to step must be in the devices' memory, since arguments
are frozen: the number of the step, which the step itself counts up, the order
in which examples are taken, and the learning rate of each step.
"""

import collections

import numpy as np

from ..data import epoch_size
from ..devices import put
from ..kernels.cuda import capture, finish_card, has_kernels
from ..kernels.stages import to_the_end
from ..timing import paused, span
from .graph_parts import GraphExchange, GraphPart, let_wait
from .runner import Step
from .shards import epoch_shards, most_examples

AHEAD = 8
"""Launches that the host program may be ahead of the devices."""

TOGETHER = 8
"""Steps of the longer graph, for when nothing is read in between: one call starts them all."""


class GraphStep(Step):
    """Training on GPU devices, a graph launch a step.

    ``X`` (M, C, H, W) and ``y`` (M,), both uint8, go to the memory of every
    device. ``replicas``: for each device its `Replica`, whose parameters are updated
    in place. ``precision`` is "float32", "tf32" (dense layers' products of factors
    rounded to 10 bits) or "mixed" (products of float16, parameters and sums of float32,
    the loss scaled so that small gradients are not lost: networks/mixed.py).
    ``drop_last``: leave out an epoch's ragged rest. ``batch_statistics``: one of
    `BATCH_STATISTICS`. The step is recorded here; it changes nothing, and
    if it cannot be recorded, the devices are as they were.

    Raises ValueError for a network with a layer that has no kernel, and what CuPy
    raises if the step cannot be recorded.
    """

    mean_loss = accuracy = None  # of the epoch so far: known when it is over

    def __init__(
        self,
        X,
        y,
        replicas,
        batch_size,
        algorithm="ring",
        precision="float32",
        loads=None,
        drop_last=False,
        batch_statistics="local",
    ):
        self.replicas = replicas
        self.devices = devices = [replica.device for replica in replicas]
        if not has_kernels(replicas[0].network):
            raise ValueError("GraphStep: the network has a layer without a CUDA kernel; train it without graphs")
        self.batch_size = min(batch_size, len(X))
        self.M = epoch_size(len(X), batch_size, drop_last)
        self.loads = loads
        self.busy = [device for device, load in zip(devices, loads or [1] * len(devices), strict=True) if load]
        sizes = [max(1, n) for n in most_examples(self.batch_size, len(devices), loads)]
        self.steps = -(-self.M // self.batch_size)
        self.parts = []
        for device, replica, size in zip(devices, replicas, sizes, strict=True):
            images, labels = put(np.asarray(X, np.uint8), device), put(np.asarray(y, np.uint8), device)
            part = device.submit(GraphPart, images.raw, labels.raw, replica, size, self.steps, precision)
            self.parts.append(part.result())
        self.sync_exchanges, self.exchanges = self._plan_exchanges(algorithm, batch_statistics)
        self._launched = collections.deque()
        for device in devices[1:]:
            devices[0].wait(device.record())
        self.graph, self.longer_graph = devices[0].submit(self._record).result()

    def _plan_exchanges(self, algorithm, batch_statistics):
        """The exchanges where forward and backward are cut, in order, and those before the update."""
        if len(self.devices) == 1:
            return [], []

        def exchange(arrays):
            return GraphExchange(list(arrays), self.devices, algorithm)

        sync_exchanges, exchanges = [], [exchange(part.flat_grads for part in self.parts)]
        layers = list(zip(*(part.sync_statistics for part in self.parts), strict=True))
        if batch_statistics == "synchronised":
            sync_exchanges = [exchange(sync.moments.reshape(-1) for sync in layer) for layer in layers]
            sync_exchanges += [exchange(sync.sums.reshape(-1) for sync in layer) for layer in reversed(layers)]
        elif batch_statistics == "aggregated" and layers:
            exchanges.append(exchange(part.flat_moments for part in self.parts))
        return sync_exchanges, exchanges

    def start_epoch(self, order, lr, done=0, losses=(0.0,), epoch=0, correct=0):
        """Take the examples in this ``order`` (M,), with learning rate ``lr``: a number, or one for each step.

        Forgets the last epoch's sums. ``done``: steps of the epoch that were done
        before, with the summed ``losses`` of `pause`, maybe of other devices, and ``correct``.
        Nothing here depends on the number of the ``epoch``.
        """
        if len(losses) != len(self.devices):
            losses = [sum(losses)] + [0.0] * (len(self.devices) - 1)
        sizes = np.full(self.steps, self.batch_size, np.float32)
        sizes[-1] = self.M - (self.steps - 1) * self.batch_size
        rates = np.float32(np.broadcast_to(lr, self.steps) / sizes)
        shards = epoch_shards(order[: self.M], self.batch_size, len(self.devices), self.loads)
        counts = [correct] + [0] * (len(self.devices) - 1)
        for device, part, shard, *sums in zip(self.devices, self.parts, shards, losses, counts, strict=True):
            device.submit(part.start_epoch, *shard, rates, sizes, done, *sums).result()
        for device in self.devices[1:]:
            self.devices[0].wait(device.record())
        self._sizes = iter(sizes[done:].astype(int).tolist())

    def step(self):
        """Launch the next step; returns how many examples it has.

        The host program does not wait, unless it is `AHEAD` launches ahead.
        """
        self._submit(self.graph)
        return next(self._sizes)

    def several(self, most):
        """Launch `TOGETHER` steps at once if that is not more than ``most``, else one; how many examples each has."""
        if self.longer_graph is None or most < TOGETHER:
            return [self.step()]
        self._submit(self.longer_graph)
        return [next(self._sizes) for _ in range(TOGETHER)]

    def _submit(self, graph):
        self._launched.append(self.devices[0].submit(self._launch, graph))
        if len(self._launched) > AHEAD:
            self._launched.popleft().result().synchronize()

    def pause(self):
        """Wait for all steps so far; of each device the loss summed over the epoch so far.

        Then ``correct`` says for how many examples of the epoch so far the largest logit was the label.
        What the devices are given next comes after its steps.
        """
        self.close()
        sums = [device.submit(part.sums).result() for device, part in zip(self.devices, self.parts, strict=True)]
        self.correct = sum(correct for _, correct in sums)
        return [loss for loss, _ in sums]

    def close(self):
        """Let what all devices are given next come after the steps so far; to be called before this is let go.

        The graph uses all devices' memory, but runs in the first one's stream: the
        others would give that memory to new arrays while it is still in use.
        """
        if self._launched:
            for device in self.devices[1:]:
                device.wait(self._launched[-1])
            self._launched.clear()

    def scaling(self):
        """As `Step.scaling`."""
        return list(self.devices[0].submit(self.parts[0].scaling).result()) if self.parts[0].kind else []

    def set_scaling(self, arrays):
        """Take what `scaling` gave."""
        for device, part in zip(self.devices, self.parts, strict=True):
            if part.kind:
                device.submit(part.set_scaling, *arrays).result()

    def _launch(self, graph):
        stream = self.devices[0].stream
        with span("step", self.busy):
            graph.launch(stream)
        return stream.record()

    def _record(self):
        """The recorded step, and `TOGETHER` of them if an epoch has as many, else None.

        Runs on the first device's thread, which plays all devices' parts. First for
        real, so that all kernels are compiled and loaded, then once more into the
        recording; in between the parameters are put back.
        """
        with paused(self.devices):
            self._on_each(GraphPart.save)
            try:
                self._issue()
            finally:
                self._on_each(lambda part: finish_card())  # after an error side streams may not have been joined
                self._on_each(GraphPart.restore)
            for device in self.devices:
                device.stream.synchronize()
            return self._capture(1), self._capture(TOGETHER) if self.steps >= TOGETHER else None

    def _capture(self, steps):
        """A graph of so many steps: which they are, is in the devices' memory."""

        def issue():
            for _ in range(steps):
                self._issue()

        stream = self.devices[0].stream
        graph = capture(stream, issue)
        graph.upload(stream)
        return graph

    def _issue(self):
        """One step's work into the devices' streams, which fork from the first one's and join it again."""
        first, *others = self.devices
        for device in others:
            let_wait(device, first)
        passes = [part.compute() for part in self.parts]
        for exchange in self.sync_exchanges:
            self._on_each(next, passes)
            exchange.issue()
        self._on_each(to_the_end, passes)
        for exchange in self.exchanges:
            exchange.issue()
        self._on_each(GraphPart.update)
        for device in others:
            let_wait(first, device)

    def _on_each(self, do, things=None):
        """Call ``do`` for each device's part, or for its one of ``things``, with the device current."""
        for device, thing in zip(self.devices, things or self.parts, strict=True):
            with device.as_current():
                do(thing)
