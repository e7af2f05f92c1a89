"""All that one device keeps for training a network."""

import functools

import numpy as np

from ..devices import DeviceArray, in_one_piece, parts_of, put
from ..layers import Meeting, track_statistics
from ..networks import LENET, channels, init_statistics, loss_and_grads
from ..optimizers import OPTIMIZERS


class Replica:
    """A device's copy of the parameters, and with it gradients, what the optimiser keeps, and batch norm's statistics.

    ``params``: of `get_params`, updated in place. Gradients, in one buffer, lie in
    the same memory for all replicas of a device: a step uses them up.
    """

    def __init__(self, params, device, network=LENET, optimizer="sgd", statistics=None):
        dtype = params[0].dtype
        self.device, self.params, self.network = device, params, network
        flat = device.buffer("gradients", sum(param.size for param in params), dtype)
        self.grads = [DeviceArray(part, device) for part in parts_of(flat, params)]
        self.flat_grads = DeviceArray(flat, device)
        pieces = in_one_piece([param.raw for param in params])
        self.updated = (pieces, [flat] if len(pieces) == 1 else [grad.raw for grad in self.grads])
        self.optimizer = OPTIMIZERS[optimizer]
        self.kept = [
            [put(np.zeros(piece.shape, dtype), device) for piece in pieces] for _ in range(self.optimizer.kept)
        ]
        self.steps = 0
        self.statistics = [put(array, device) for array in statistics or init_statistics(network, dtype)]
        self.meetings = [
            Meeting(put(np.zeros((3, C)), device), put(np.zeros((2, C)), device)) for C in channels(network)
        ]
        self.plain_meetings = [Meeting(moments.raw, sums.raw) for moments, sums in self.meetings]
        self.loss_and_grads = functools.partial(loss_and_grads, network=network, meetings=self.plain_meetings)

    @property
    def flat_kept(self):
        """What the optimiser keeps, in one list."""
        return [array for arrays in self.kept for array in arrays]

    def set_state(self, kept, statistics, steps):
        """Take `flat_kept` and ``statistics``, as NumPy arrays, of a replica after so many steps."""
        for array, value in zip([*self.flat_kept, *self.statistics], [*kept, *statistics], strict=True):
            array[...] = put(value.reshape(array.shape), self.device)
        self.steps = steps

    def update(self, tasks, lr, batch_size):
        """Runs on the device, with the gradients summed: a step of the optimiser, unless one of ``tasks`` failed."""
        if any(task.exception() for task in tasks):  # all were waited for in the allreduce
            return
        self.steps += 1
        kept = [[array.raw for array in arrays] for arrays in self.kept]
        self.optimizer.update(*self.updated, *kept, self.steps, lr, batch_size)
        raws = [array.raw for array in self.statistics]
        for mean, variance, meeting in zip(raws[::2], raws[1::2], self.plain_meetings, strict=True):
            track_statistics(mean, variance, meeting.moments)
