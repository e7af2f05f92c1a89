"""All that one device keeps for training a network."""

import contextlib

import numpy as np

from ..devices import DeviceArray, in_one_piece, parts_of, put
from ..kernels.stages import to_the_end
from ..layers import Meeting, track_statistics
from ..networks import LENET, channels, half_weights, in_half, in_parts, init_statistics
from ..optimizers import OPTIMIZERS
from .loss_scale import LossScale


class Replica:
    """A device's copy of the parameters, and with it gradients, what the optimiser keeps, and batch norm's statistics.

    ``params``: of `get_params`, updated in place. Gradients, in one buffer, lie in
    the same memory for all replicas of a device: a step uses them up.

    ``precision``: "float32" (or whatever the parameters' dtype is), or "mixed":
    the device then computes with ``working``, copies of the parameters with
    weights rounded to float16, and the loss is scaled.
    """

    def __init__(self, params, device, network=LENET, optimizer="sgd", statistics=None, precision="float32"):
        dtype = params[0].dtype
        self.device, self.params = device, params
        self.mixed = precision == "mixed"
        self.network = in_half(network) if self.mixed else network
        self.scaling = LossScale() if self.mixed else None
        self.working = params
        if self.mixed:
            raws = device.submit(half_weights, [param.raw for param in params]).result()
            self.working = [DeviceArray(raw, device) for raw in raws]
        flat = device.buffer("gradients", sum(param.size for param in params), dtype)
        self.grads = [DeviceArray(part, device) for part in parts_of(flat, params)]
        self.flat_grads = DeviceArray(flat, device)
        pieces = in_one_piece([param.raw for param in params])
        self.updated = (pieces, [flat] if len(pieces) == 1 else [grad.raw for grad in self.grads])
        self.optimizer, self.optimizer_name = OPTIMIZERS[optimizer], optimizer
        self.kept = [
            [put(np.zeros(piece.shape, dtype), device) for piece in pieces] for _ in range(self.optimizer.kept)
        ]
        self.steps = 0
        self.statistics = [put(array, device) for array in statistics or init_statistics(network, dtype)]
        self.meetings = [
            Meeting(put(np.zeros((3, C)), device), put(np.zeros((2, C)), device)) for C in channels(network)
        ]
        self.plain_meetings = [Meeting(moments.raw, sums.raw) for moments, sums in self.meetings]

    def loss_and_grads(self, X, y, params, out, ready=None):
        """Runs on the device: see `networks.loss_and_grads`; ``params`` should be ``working``."""
        with self.quiet():
            return to_the_end(self.in_parts(X, y, params, out, ready))

    def warm_up(self, size, shape, label_dtype):
        """Let a GPU compute gradients of ``size`` black images, so that no step's time is that of compiling kernels."""
        if self.device.kind == "gpu":
            X, y = np.zeros((size, *shape), self.params[0].dtype), np.zeros(size, label_dtype)
            arrays = put(X, self.device), put(y, self.device), self.working, self.grads
            self.device.run(self.loss_and_grads, *arrays).result()

    def in_parts(self, X, y, params, out, ready=None):
        """Runs on the device: the same of plain arrays, as a generator, which should be advanced in `quiet`."""
        return in_parts(X, y, params, self.network, out, ready, self.plain_meetings, self._scale())

    @property
    def flat_kept(self):
        """What the optimiser keeps, in one list."""
        return [array for arrays in self.kept for array in arrays]

    def set_state(self, kept, statistics, steps):
        """Take `flat_kept` and ``statistics``, as NumPy arrays, of a replica after so many steps."""
        for array, value in zip([*self.flat_kept, *self.statistics], [*kept, *statistics], strict=True):
            array[...] = put(value.reshape(array.shape), self.device)
        self.steps = steps
        if self.mixed:
            self.device.submit(self._round_weights).result()

    def update(self, tasks, lr, batch_size):
        """Runs on the device, with the gradients summed: a step of the optimiser, unless one of ``tasks`` failed."""
        if any(task.error for task in tasks):  # all were waited for in the allreduce
            return
        raws = [array.raw for array in self.statistics]
        for mean, variance, meeting in zip(raws[::2], raws[1::2], self.plain_meetings, strict=True):
            track_statistics(mean, variance, meeting.moments)
        scale = self._scale()
        if self.mixed and not self.scaling.accept(self.updated[1]):
            return
        self.steps += 1
        kept = [[array.raw for array in arrays] for arrays in self.kept]
        self.optimizer.update(*self.updated, *kept, self.steps, lr, batch_size * scale)
        if self.mixed:
            self._round_weights()

    def quiet(self):
        """Where NumPy does not warn of infinite gradients: in mixed precision they are found and left out."""
        return np.errstate(over="ignore", invalid="ignore") if self.mixed else contextlib.nullcontext()

    def _scale(self):
        return self.scaling.scale if self.mixed else 1

    def _round_weights(self):
        """Runs on the device."""
        for copy, rounded in zip(self.working, half_weights([param.raw for param in self.params]), strict=True):
            if copy.raw is not rounded:
                copy.raw[...] = rounded
