"""Training without a split: the steps of parallel/data.py for the loop, and the loop's access to parameters and state.

The host program is one step ahead: while the devices compute a step, it prepares the next minibatch and submits the
next step, so that no device waits for it.

    host      data 1 | submit 1 | data 2 | submit 2 | wait for 1 | data 3 | submit 3 | wait for 2 ...
    devices               step 1 ................... step 2 ................... step 3

On GPUs it may be several steps ahead. Reading one step's loss there means waiting for everything that was launched, so
the losses of several steps are read at once.
"""

import functools

import numpy as np

from ..cluster import as_cluster, gather
from ..collectives import find_algorithm
from ..data import epoch_size
from ..devices import put, synchronize, to_host
from ..language.objective import Objective
from ..monitor import Stop
from ..networks import LENET, find_loss, init_statistics
from ..networks.checks import is_random
from ..networks.losses import as_targets
from ..optimizers import init_optimizer
from ..parallel import MinibatchQueue, get_params
from ..parallel.computation import computation_for
from ..parallel.step import Replica, Step, split_batch
from ..plans import prove
from .settings import Settings
from .splits import check_memory, limits_of, plan_of
from .together import SharedStop, check_copies

AHEAD = 8
"""How many steps may be under way at once if a device is a GPU."""


class CountingReplica(Replica):
    """A `Replica` that counts its updates: those that have begun, and those that are finished (see saving.py)."""

    begun = finished = 0

    def update(self, *args):
        """As in `Replica`."""
        self.begun = self.finished + 1
        super().update(*args)
        self.finished = self.begun

    @property
    def statistics(self):
        """Batch norm's running means and variances."""
        return self.computation.statistics

    @property
    def flat_optimizer_state(self):
        """For each of the optimiser's states, a flat array."""
        return self.optimizer.flat_state


class StepRunner:
    """The steps of `train` without a split; PlanStep has the same methods and describes them.

    ``replicas``: one for each device of this process. ``known``: how many steps of the epoch are done, their loss, and
    the number of right answers.
    """

    known, peak_memory, are_copies = None, None, True

    def __init__(self, X, y, params, everybody, network, settings):
        self.y = as_targets(np.asarray(y), params[0].dtype)
        self.everybody, self.network, self.settings = everybody, network, settings
        self.devices, self.errors, self.under_way = everybody.mine, [], []
        self.stop = Stop() if everybody.size == 1 else SharedStop(everybody)
        self.algorithm = find_algorithm(everybody.across(settings.algorithm))
        self.limited = any(limits_of(everybody))  # memory for one minibatch at a time, and not for the test set
        if self.limited:
            self._check_memory(min(settings.batch_size, len(X)), params[0].dtype)
        copies = [get_params(params, device) for device in self.devices]
        optimizers = init_optimizer(settings.optimizer, copies, settings.weight_decay)
        computation = computation_for(network, settings.precision, settings.sums)
        how = network, find_loss(settings.loss)
        aggregated = settings.batch_statistics == "aggregated"
        self.replicas = []
        for device, *own in zip(self.devices, copies, optimizers, strict=True):
            statistics = [put(array, device) for array in init_statistics(network)]
            own_computation = computation(device, *how, statistics, aggregated)
            self.replicas.append(CountingReplica(device, *own, own_computation))
        self.steps = -(-epoch_size(len(X), settings.batch_size, settings.drop_last) // settings.batch_size)
        self.on_gpu = any(device.kind == "gpu" for device in self.devices)
        self.ahead = 0 if self.limited or not settings.prefetch else AHEAD if self.on_gpu else 1
        options = {name: getattr(settings, name) for name in ("loads", "preprocess", "drop_last", "seed", "sums")}
        self.queue = MinibatchQueue(X, self.y, everybody, settings.batch_size, **options)

    @classmethod
    def of(cls, X, y, params, devices, network=LENET, **settings):
        """The steps of `train` on ``devices``, a list or a `Cluster`; ``settings``: fields of `Settings`, by name."""
        everybody = as_cluster(devices)
        return cls(X, y, params, everybody, network, Settings(**settings).on(everybody))

    def start_epoch(self, order, lr, done=0, losses=(0.0,), epoch=0, correct=0):
        """Start an epoch with the examples in this ``order`` and a learning rate ``lr`` for each step, or for all."""
        self.rates, self.epoch, self.number = np.broadcast_to(lr, self.steps).tolist(), epoch, done
        self.known = done, sum(losses), correct  # in one assignment, as other threads read it
        self.queue.start_epoch(order, epoch, done)

    def several(self, most):
        """Submit the next step, and wait while too many are under way; return how many examples it has, in a list."""
        return [self.step()]

    def step(self):
        """Like `several`; return the number itself."""
        n, settings = self.queue.size, self.settings
        draws = self.queue.draws if is_random(self.network) else None
        how = {"algorithm": self.algorithm, "flat": settings.flat, "draws": draws, "tell": self.stop.wanted}
        shards, lr = self._shards(), self.rates[self.number]
        step = Step(self.replicas, *shards, lr, n, self.everybody, errors=self.errors, **how)
        self.under_way.append(step)
        self.number += 1
        self._wait(self.ahead)
        return n

    def _shards(self):
        """The next minibatch's shards. With limited memory there is no room for the queue's two minibatches."""
        if not self.limited:
            return self.queue.next()
        X, y = self.queue.next_whole()
        return split_batch(X, y, self.everybody, self.settings.loads, self.settings.sums)

    def _wait(self, ahead):
        """If more than ``ahead`` steps are under way, wait until only this many are; on GPUs, wait for all of them."""
        if len(self.under_way) <= ahead:
            return
        while len(self.under_way) > (0 if self.on_gpu else ahead):
            loss, right, told = self.under_way.pop(0).finish()
            done, before, correct = self.known
            self.known = done + 1, before + loss, correct + int(right)
            if told:
                self.stop.agree()

    def pause(self):
        """Wait for all steps so far; return the loss summed over the epoch so far, in a list. Sets `correct`."""
        self._wait(0)
        synchronize(self.devices)
        _, loss, self.correct = self.known
        return [loss]

    @property
    def so_far(self):
        """The loss per example and the fraction of correct examples in the epoch's steps that are known to be done."""
        done, loss, correct = self.known
        n = min(done * self.settings.batch_size, len(self.y))
        return (loss / n, correct / n) if n else (None, None)

    def close(self):
        """Do nothing: each device does its steps' work in its own queue."""

    # The state of a run:

    def statistics(self):
        """Batch norm's running statistics, as NumPy arrays, for each device of all processes."""
        arrays = [replica.statistics for replica in self.replicas]
        rows = [[number for array in own for number in to_host(array).tolist()] for own in arrays]
        dtype, shapes = self.replicas[0].params[0].dtype, [array.shape for array in arrays[0]]
        ends = np.cumsum([0, *(C for (C,) in shapes)])
        found = gather(self.everybody, rows) if shapes else np.zeros((len(self.everybody), 0))
        return [[row[a:b].astype(dtype) for a, b in zip(ends, ends[1:], strict=False)] for row in found]

    def set_statistics(self, statistics):
        """Set the statistics of each of this process's devices."""
        for replica, arrays in zip(self.replicas, statistics, strict=True):
            _set(replica.statistics, arrays)

    @property
    def updates(self):
        """How many steps the optimiser has done."""
        return self.replicas[0].optimizer.steps

    def set_state(self, params, optimizer_state, statistics, steps):
        """Restore NumPy arrays from a checkpoint; ``statistics``: a list for each of this process's devices."""
        for replica in self.replicas:
            _set(replica.params, params)
            _set(replica.optimizer.flat_state, optimizer_state)
            replica.optimizer.steps = steps
        self.set_statistics(statistics)

    def scaling(self):
        """The NumPy arrays that a checkpoint stores for precision "mixed"; they are the same on all devices."""
        return self.replicas[0].computation.arrays()

    def set_scaling(self, arrays):
        """Restore what `scaling` returned."""
        for replica in self.replicas:
            replica.computation.set_arrays(arrays)

    def counts(self):
        """For each device of this process, how many updates have begun, and how many are finished."""
        return [(replica.begun, replica.finished) for replica in self.replicas]

    def check_replicas(self, epoch, step):
        """Raise DriftError, in all processes, if the devices' copies of the parameters differ."""
        check_copies(self.replicas, self.everybody, self.settings.batch_statistics != "local", epoch, step)

    # With limited memory, where plan "data" counts what a step needs, and evaluates the test set piece by piece:

    @functools.cached_property
    def plan(self):
        """Plan "data": what `Step` does, as a plan."""
        return plan_of(self.settings, len(self.everybody), self.network, self.everybody)

    def _check_memory(self, batch_size, dtype):
        settings = self.settings
        objective = Objective.of(find_loss(settings.loss), self.y, dtype)
        peaks = prove(self.plan, batch_size, settings.optimizer, objective=objective).peak
        if settings.sums == "exact":  # gradients have 8 bytes instead of 4, and a granule's have 4 more
            peaks = [peak + 8 * sum(stage.params for stage in self.plan.stages) for peak in peaks]
        check_memory(self.network, self.everybody, peaks, settings, batch_size, objective)


def _set(arrays, values):
    for array, value in zip(arrays, values, strict=True):
        array[...] = put(value, array.device)
