"""A whole training step as one CUDA graph: recorded once, then launched with a single call.

LeNet's step is some twenty kernels of a few microseconds each. Launching them
one by one from Python takes longer than they run. A *graph* is the step as a
recording: kernels, their arguments, and who waits for whom, over the streams of
all devices. One call then starts it all.

    data set, order of the epoch  ──►  gather ► forward ► backward ─┐
    (in every device's memory)                                      ├─ allreduce ► update ► next_step
                                       gather ► forward ► backward ─┘

What changes from step to step must be in the devices' memory, since arguments
are frozen: the number of the step, which the step itself counts up, the order
in which examples are taken, and the learning rate of each step.
"""

import collections

import numpy as np

from .. import networks
from ..collectives import ALGORITHMS, compile_algorithm, needs_staging
from ..collectives.execute import do_action
from ..data import epoch_size
from ..devices import DeviceArray, DeviceError, put
from ..kernels.cuda import PRECISIONS, has_kernels, tensor_cores
from ..networks import compute
from ..timing import paused, span
from .graph_part import Part
from .shards import most_examples, shard_bounds

AHEAD = 8
"""Steps that the host program may be ahead of the devices."""


def check_precision(precision, devices):
    """Raise ValueError for an unknown precision, DeviceError where ``devices`` cannot compute with it."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision {precision!r} is unknown; choose from {', '.join(PRECISIONS)}")
    kind = PRECISIONS[precision]
    for device in devices if kind else ():
        if device.kind != "gpu":
            if precision == "mixed":
                continue  # NumPy rounds to float16 by itself
            raise DeviceError(f"precision {precision!r} needs GPUs; {device} computes with float32 or mixed")
        needed = tensor_cores.OLDEST[kind]
        if device.compute_capability < needed:
            raise DeviceError(
                f"precision {precision!r} needs compute capability {needed / 10}; {device} has "
                f"{device.compute_capability / 10}"
            )


class GraphStep:
    """Training on GPU devices, a graph launch a step.

    ``X`` (M, C, H, W) and ``y`` (M,), both uint8, go to the memory of every
    device. ``replicas``: for each device its `Replica`, whose parameters are updated
    in place. ``precision`` is "float32", "tf32" (products of factors rounded to 10
    bits) or "mixed" (factors of float16, parameters and sums of float32, the loss
    scaled so that small gradients are not lost; Micikevicius et al. 2018).
    ``drop_last``: leave out an epoch's ragged rest.

    Raises ValueError for an unknown precision or a network with a layer that has
    no kernel, DeviceError if a GPU is too old for the precision.
    """

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
    ):
        self.devices = devices = [replica.device for replica in replicas]
        check_precision(precision, devices)
        if not has_kernels(replicas[0].network):
            raise ValueError("GraphStep: the network has a layer without a CUDA kernel; train it without graphs")
        if networks.channels(replicas[0].network):
            raise ValueError("GraphStep: the network has batch norm; train it without graphs")
        self.batch_size = min(batch_size, len(X))
        self.M = epoch_size(len(X), batch_size, drop_last)
        self.loads = loads
        sizes = [max(1, n) for n in most_examples(self.batch_size, len(devices), loads)]
        self.steps = -(-self.M // self.batch_size)
        self.parts = []
        for device, replica, size in zip(devices, replicas, sizes, strict=True):
            images, labels = put(np.asarray(X, np.uint8), device), put(np.asarray(y, np.uint8), device)
            part = device.submit(Part, images.raw, labels.raw, replica, size, self.steps, precision)
            self.parts.append(part.result())
        self.program, self.arrays = None, []
        if len(devices) > 1:
            flats = (part.flat_grads for part in self.parts)
            self.arrays = [DeviceArray(flat, device) for flat, device in zip(flats, devices, strict=True)]
            staging = needs_staging(self.arrays)
            self.program = compile_algorithm(ALGORITHMS[algorithm], len(devices), self.arrays[0].size, staging)
            for device, size in zip(devices, self.program.stage_sizes, strict=True):
                device.buffer("stage", size, np.float32)  # made now: nothing can be while the step is recorded
        self.graph = None
        self.mean_loss = None  # of the epoch so far: known when it is over
        self._launched = collections.deque()

    @staticmethod
    def can_do(X, y, devices, algorithm, network=networks.LENET):
        """Whether these can be trained in graphs: GPUs, uint8 data, an allreduce of ours, a kernel for every layer."""
        return (
            compute.USE_CUDA_KERNELS
            and all(device.kind == "gpu" for device in devices)
            and X.dtype == y.dtype == np.uint8
            and algorithm in ALGORITHMS
            and has_kernels(network)
            and not networks.channels(network)  # a graph is not interrupted where their sums are to be added up
        )

    def start_epoch(self, order, lr, done=0, losses=(0.0,), epoch=0):
        """Take the examples in this ``order`` (M,), with learning rate ``lr``: a number, or one for each step.

        Forgets the last epoch's sums. ``done``: steps of the epoch that were done
        before, with the summed ``losses`` of `pause`, maybe of other devices. Nothing
        here depends on the number of the ``epoch``.
        """
        if len(losses) != len(self.devices):
            losses = [sum(losses)] + [0.0] * (len(self.devices) - 1)
        shards = [[] for _ in self.devices]
        rates, sizes = [], []
        for start, rate in zip(range(0, self.M, self.batch_size), np.broadcast_to(lr, self.steps), strict=True):
            chosen = order[start : start + self.batch_size]
            rates.append(rate / len(chosen))
            sizes.append(len(chosen))
            bounds = shard_bounds(len(chosen), len(self.devices), self.loads)
            for shard, (begin, end) in zip(shards, bounds, strict=True):
                shard.append(chosen[begin:end])
        for device, part, shard, loss in zip(self.devices, self.parts, shards, losses, strict=True):
            starts = np.cumsum([0, *map(len, shard)], dtype=np.int32)
            indices = np.concatenate(shard).astype(np.int32)
            arrays = indices, starts, np.float32(rates), np.float32(sizes)
            device.submit(part.start_epoch, *arrays, done, loss).result()
        for device in self.devices[1:]:
            self.devices[0].wait(device.record())
        self._sizes = iter(sizes[done:])

    def step(self):
        """Launch the next step; returns how many examples it has.

        The host program does not wait, unless it is `AHEAD` steps ahead.
        """
        first = self.devices[0]
        if self.graph is None:
            self.graph = first.submit(self._record).result()
        self._launched.append(first.submit(self._launch))
        if len(self._launched) > AHEAD:
            self._launched.popleft().result().synchronize()
        return next(self._sizes)

    def pause(self):
        """Wait for all steps so far; of each device the loss summed over the epoch so far.

        What the devices are given next comes after its steps.
        """
        if self._launched:
            for device in self.devices[1:]:
                device.wait(self._launched[-1])
            self._launched.clear()
        sums = [device.submit(part.sums).result() for device, part in zip(self.devices, self.parts, strict=True)]
        return [loss for loss, _ in sums]

    def scaling(self):
        """Of precision "mixed" what a checkpoint holds, the same on all devices: NumPy arrays."""
        return list(self.devices[0].submit(self.parts[0].scaling).result()) if self.parts[0].kind else []

    def set_scaling(self, arrays):
        """Take what `scaling` gave."""
        for device, part in zip(self.devices, self.parts, strict=True):
            if part.kind:
                device.submit(part.set_scaling, *arrays).result()

    def _launch(self):
        stream = self.devices[0].stream
        with span("step"):
            self.graph.launch(stream)
        return stream.record()

    def _record(self):
        """The recorded step. Runs on the first device's thread, which plays all devices' parts.

        First for real, so that all kernels are compiled and loaded, then once more
        into the recording; in between the parameters are put back.
        """
        with paused(self.devices):
            self._on_each(Part.save)
            self._issue()
            self._on_each(Part.restore)
            for device in self.devices:
                device.stream.synchronize()
            stream = self.devices[0].stream
            stream.begin_capture()
            self._issue()
            graph = stream.end_capture()
        graph.upload(stream)
        return graph

    def _issue(self):
        """One step's work into the devices' streams, which fork from the first one's and join it again."""
        first, *others = self.devices
        for device in others:
            _let_wait(device, first)
        self._on_each(Part.compute)
        if self.program is not None:
            self._exchange()
        self._on_each(Part.update)
        for device in others:
            _let_wait(first, device)

    def _exchange(self):
        """The allreduce. Who reads waits until the source is there, and the source until it was read."""
        flat = [array.raw for array in self.arrays]
        for i, action in [(i, action) for i, phase in self.program.order for action in phase.actions]:
            device, source = self.devices[i], self.devices[action.source]
            if source is not device:
                _let_wait(device, source)
            with device.as_current():
                do_action(action, i, device, self.devices, flat, self.program.stage_sizes[i], None)
            if source is not device:
                _let_wait(source, device)

    def _on_each(self, do):
        for device, part in zip(self.devices, self.parts, strict=True):
            with device.as_current():
                do(part)


def _let_wait(device, other):
    """What the stream of ``device`` is given from now on comes after what the other's was given so far."""
    with other.as_current():
        event = other.stream.record()
    with device.as_current():
        device.stream.wait_event(event)
