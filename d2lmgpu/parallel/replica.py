"""What one device has for training a network: parameters, gradients, the optimiser's state."""

import copy

import numpy as np

from ..devices import DeviceArray, in_one_piece, parts_of, put
from ..kernels.stages import to_the_end
from ..networks import CROSS_ENTROPY, LENET, in_parts
from ..optimizers import OPTIMIZERS
from .batch_statistics import BatchStatistics
from .precision import FullPrecision, MixedPrecision


class Replica:
    """A device's copy of the parameters, with it gradients and the optimiser's state.

    ``params``: of `get_params`, updated in place. Gradients, in one buffer, lie in
    the same memory for all replicas of a device: a step uses them up.
    ``optimizer``: an `Optimizer`, or its name. ``optimizer_state``: lists of arrays, as its function takes them.
    ``loss``: a `Loss`.

    ``precision`` is "float32" (or whatever the parameters' dtype is), or "mixed". It decides what the
    device computes with: ``network`` and ``compute_params``. ``batch_norm`` has that layer's statistics.
    """

    def __init__(
        self, params, device, network=LENET, optimizer="sgd", statistics=None, precision="float32", loss=CROSS_ENTROPY
    ):
        dtype = params[0].dtype
        self.device, self.params, self.loss = device, params, loss
        flat = device.buffer("gradients", sum(param.size for param in params), dtype)
        self.grads = [DeviceArray(part, device) for part in parts_of(flat, params)]
        self.flat_grads = DeviceArray(flat, device)
        pieces = in_one_piece([param.raw for param in params])  # what lies together is updated as one
        self._pieces = pieces, [flat] if len(pieces) == 1 else [grad.raw for grad in self.grads]
        self.optimizer = OPTIMIZERS[optimizer] if isinstance(optimizer, str) else optimizer
        self.optimizer_state = [
            [put(np.zeros(piece.shape, dtype), device) for piece in pieces] for _ in range(self.optimizer.states)
        ]
        self.steps = 0  # updates of the optimiser
        mixed = precision == "mixed"
        self.precision = MixedPrecision(params, network, device) if mixed else FullPrecision(params, network)
        self.network, self.compute_params = self.precision.network, self.precision.params
        self.batch_norm = BatchStatistics(network, device, dtype, statistics)
        self.statistics = self.batch_norm.running
        self.draws = None  # see `with_draws`

    def loss_and_grads(self, X, y):
        """Runs on the device, with plain arrays: `networks.loss_and_grads` with the gradients written to ``grads``."""
        with self.precision.quiet():
            return to_the_end(self.in_parts(X, y))

    def in_parts(self, X, y):
        """Runs on the device: the same as a generator, which should be advanced where the precision is ``quiet``."""
        params, grads = ([array.raw for array in arrays] for arrays in (self.compute_params, self.grads))
        sync_statistics, scale = self.batch_norm.plain_sync, self.precision.scale
        arguments = X, y, params, self.network, grads, None, sync_statistics, scale
        return in_parts(*arguments, self.draws, self.loss)

    def with_draws(self, draws):
        """This replica, with the `Draws` of a shard, for networks with dropout."""
        replica = copy.copy(self)
        replica.draws = draws
        return replica

    def update(self, tasks, lr, batch_size):
        """Runs on the device, with the gradients summed: a step of the optimiser, unless one of ``tasks`` failed."""
        if any(task.error for task in tasks):  # all were waited for in the allreduce
            return
        self.batch_norm.track()
        params, grads = self._pieces
        scale = self.precision.scale
        if self.precision.accept(grads):
            self.steps += 1
            state = [[array.raw for array in arrays] for arrays in self.optimizer_state]
            self.optimizer.update(params, grads, *state, self.steps, lr, batch_size * scale)
            self.precision.follow()

    @property
    def flat_optimizer_state(self):
        """The optimiser's state in one list."""
        return [array for arrays in self.optimizer_state for array in arrays]

    def set_params(self, values):
        """Take ``params`` as NumPy arrays."""
        for param, value in zip(self.params, values, strict=True):
            param[...] = put(value, self.device)

    def set_state(self, optimizer_state, statistics, steps):
        """Take `flat_optimizer_state` and ``statistics``, as NumPy arrays, of a replica after so many steps."""
        values = [*optimizer_state, *statistics]
        for array, value in zip([*self.flat_optimizer_state, *self.statistics], values, strict=True):
            array[...] = put(value.reshape(array.shape), self.device)
        self.steps = steps
        self.device.submit(self.precision.follow).result()
