"""Training by a plan: its steps for the loop, the parameters as a whole, and the test set on the plan's devices."""

import itertools

import numpy as np

from ..cluster import gather
from ..data import batch_rng, epoch_size, to_float
from ..devices import put, synchronize, to_host
from ..language.actions import chunk_bounds
from ..language.objective import Objective
from ..language.plan import Compute, norms_of, shapes_of
from ..layers import Draws
from ..networks import CROSS_ENTROPY, HALF, find_loss, logits
from ..optimizers import make_optimizer
from ..parallel import Step
from ..parallel.eager import AHEAD_ON_GPU
from ..parallel.minibatch_queue import largest_label, preprocess_batch
from ..parallel.shards import shard_bounds
from ..plans import Execution, prove
from ..plans.execute import give_back, whole_state
from ..timing import span
from ..transforms import find_transform
from .accuracy import PREDICTION_BATCH, TestSet, sums_of
from .splits import check_memory, limits_of, plan_of


class SplitStep(Step):
    """Training as ``settings.split`` says. ``peak_memory``: the bytes on each device, at most, as `prove` counts them.

    ``devices``: a `Cluster`, with a `SplitStep` in each of its processes; ``stop``: as of `ClusterStep`.

    Raises ValueError for what no plan can train, DeviceMemoryError where a device's limit is too low.
    """

    def __init__(self, X, y, params, devices, network, settings, stop=None):
        self.X, self.y, self.stop, self.settings = np.asarray(X), np.asarray(y), stop, settings
        batch_size, k = min(settings.batch_size, len(X)), len(devices)
        self.plan = plan_of(settings, k, network)
        loss = find_loss(settings.loss)
        objective = Objective.of(loss, self.y, params[0].dtype)
        examples = self._examples(batch_size) or batch_size
        self.peak_memory = prove(self.plan, examples, settings.optimizer, objective=objective).peak
        check_memory(network, devices, self.peak_memory, settings, batch_size, objective)
        self.steps = -(-epoch_size(len(X), settings.batch_size, settings.drop_last) // settings.batch_size)
        self.preprocess, self.largest = find_transform(settings.preprocess), largest_label(self.y)
        how = {"mixed": settings.precision == "mixed", "overlap": settings.overlap}
        self.whole = Whole(self.plan, params, devices, make_optimizer(settings), loss, **how)
        self.replicas, self.devices = [self.whole], devices.mine
        limited = any(device.accounting for device in devices.mine)  # memory for one minibatch at a time
        self.on_gpu = any(device.kind == "gpu" for device in devices.mine)
        at_once = limited or devices.size > 1 or not settings.prefetch
        self.ahead = 0 if at_once else AHEAD_ON_GPU if self.on_gpu else 1

    def start_epoch(self, order, lr, done=0, losses=(0.0,), epoch=0, correct=0):
        """As `EagerStep.start_epoch`."""
        self.order = order[: epoch_size(len(order), self.settings.batch_size, self.settings.drop_last)]
        self.rates, self.epoch, self.number = np.broadcast_to(lr, self.steps).tolist(), epoch, done
        self.loss, self.examples, self.correct = sum(losses), done * self.settings.batch_size, correct
        self._under_way = []

    def several(self, most):
        """Do the next step; how many examples it has, in a list."""
        X, y = self._minibatch()
        draws = Draws(self.settings.seed, self.epoch, self.number)
        wanted = getattr(self.stop, "wanted", False)
        step = self.whole.submit(X, y, self.rates[self.number], draws, self._examples(len(y)))
        self._under_way.append(((step, wanted), len(y)))
        self.number += 1
        self._wait(self.ahead)
        return [len(y)]

    def pause(self):
        """Wait for all steps so far; the loss summed over the epoch so far, in a list."""
        self._wait(0)
        synchronize(self.devices)
        return [self.loss]

    def statistics(self, everybody):
        """As `Step.statistics`."""
        return self.whole.execution.statistics()

    def set_state(self, params, optimizer_state, statistics, steps):
        """As `Step.set_state`."""
        self.whole.set_params(params)
        self.whole.set_state(optimizer_state, statistics, steps)

    def scaling(self):
        """As `Step.scaling`."""
        return self.whole.execution.stores[0].precision.arrays()

    def set_scaling(self, arrays):
        """Take what `scaling` gave."""
        for store in self.whole.execution.stores:
            store.precision.set_arrays(*arrays)

    def sums(self, step):
        """As `EagerStep.sums`, over all processes."""
        step, wanted = step
        loss, correct, told = self.whole.finish(step, wanted)
        if wanted or any(told):
            self.stop.agree()
        return loss, correct

    def _examples(self, n):
        """With loads, how many of n examples each micro-batch has: a device's share in even parts."""
        if self.settings.loads is None:
            return None
        shares = shard_bounds(n, self.plan.k, self.settings.loads)
        parts = (chunk_bounds(stop - start, self.settings.micro_batches) for start, stop in shares)
        return tuple(stop - start for part in parts for start, stop in part)

    def _minibatch(self):
        size = self.settings.batch_size
        part = self.order[self.number * size : (self.number + 1) * size]
        with span("data"):
            X, y = to_float(self.X[part]), self.y[part]
            if self.preprocess is None:
                return X, y
            rng = batch_rng(self.settings.seed, self.epoch, self.number)
            return preprocess_batch(self.preprocess, X, y, rng, self.largest)


class Whole:
    """All parameters and the optimiser's state that devices have parts of, on the host: as of a single `Replica`.

    Of a `Cluster` every process has one, and all ask for them at the same time. Before the first step they are what was
    given, so that processes can compare what they begin with.
    """

    def __init__(self, plan, params, devices, optimizer, loss, **how):
        self.plan, self.devices, self.optimizer, self.loss, self.how = plan, devices, optimizer, loss, how
        self.set_params(params)

    def submit(self, X, y, lr, *arguments):
        """Begin a training step."""
        self.given = self.given_state = None
        return self.execution.submit(X, y, lr, *arguments)

    def finish(self, step, tell):
        """Wait for it: the summed loss, for how many examples the largest logit was the label, what all tell."""
        loss = self.execution.finish(step, tell)
        return loss, self.execution.correct, self.execution.told

    @property
    def steps(self):
        """How many were done."""
        return self.execution.steps

    @property
    def params(self):
        """As of `init_params`."""
        return self.execution.params() if self.given is None else self.given

    @property
    def statistics(self):
        """Batch norm's running statistics, in which each layer's are those of the first device that computes it."""
        return self.execution.statistics()[0]

    @property
    def flat_optimizer_state(self):
        """For each of the optimiser's states an array with a number for each parameter, in their order."""
        return whole_state(self.execution) if self.given_state is None else self.given_state

    def set_params(self, values):
        """Take `params`."""
        self.execution = None  # frees memory that the next line takes
        self.execution = Execution(self.plan, values, self.devices, self.optimizer, self.loss, **self.how)
        self.given = list(map(to_host, values))
        count, dtype = sum(param.size for param in self.given), self.execution.dtype
        self.given_state = [np.zeros(count, dtype)] * self.optimizer.states

    def set_state(self, optimizer_state, statistics, steps):
        """Take `flat_optimizer_state` after so many steps, and of each device of this process the statistics."""
        give_back(self.execution, optimizer_state)
        self.execution.set_statistics(statistics)
        self.given_state, self.execution.steps = list(map(to_host, optimizer_state)), steps


class SplitTestSet(TestSet):
    """Images and labels on the host, evaluated by the devices of a ``plan``: each stage where the plan has it.

    ``devices``: a list, or a `Cluster`, of which all processes have one. ``batch_size``: that of training, where a
    device's memory has a limit: then no more images are on a device at a time than a micro-batch has.

    No device has all parameters, unless it trains all. A stage's are copied from the host for as long as its images go
    through, which takes no more memory than its gradients did in the step. Images go in as many batches at a time as
    there are devices for a stage.

    Of P processes each takes every P-th batch through all stages on its own devices, each stage where the plan has it.
    So no image travels. A stage that the plan has in other processes is computed on arrays of the host, which no limit
    counts.
    """

    def __init__(self, X, y, plan, devices, batch_size, loss=CROSS_ENTROPY, metrics=()):
        self.plan, self.batch_size = plan, batch_size
        super().__init__(X, y, devices, plan.network, loss, metrics)

    def _place(self, X, y):
        """Only find out which of the devices have each stage."""
        self.X, self.y, plan = X, y, self.plan
        limited = any(limits_of(self.everybody))
        self.batch = PREDICTION_BATCH
        if limited:
            self.batch = max(1, min(PREDICTION_BATCH, self.batch_size // plan.micro_batches))
        computing = {(c.device, c.stage) for step in plan.steps for c in step if isinstance(c, Compute)}
        self.holders = [  # of each stage the devices that compute it
            [device for i, device in enumerate(self.devices, self.everybody.first) if (i, s) in computing]
            for s in range(len(plan.stages))
        ]

    def evaluate(self, device_params, statistics=(), tell=None):
        """As `TestSet.evaluate`, but there is one list of parameters, all of them, on the host: ``[params]``.

        Likewise of statistics.
        """
        own, rest, fixed = [], itertools.chain(*device_params), itertools.chain(*statistics)
        for stage in self.plan.stages:
            params = [next(rest) for _ in shapes_of(stage, self.plan.network)]
            own.append(
                (params, [next(fixed) for _ in norms_of(stage, self.plan.network) for _ in ("mean", "variance")])
            )
        parts = [slice(a, min(self.size, a + self.batch)) for a in range(0, self.size, self.batch)]
        rank, size = self.everybody.rank, self.everybody.size
        found, together = np.zeros((len(parts), 1 + len(self.metrics))), max(map(len, self.holders))
        mine = range(len(parts))[rank::size]
        for start in range(0, len(mine), together):
            some = mine[start : start + together]
            found[some] = self._evaluate([parts[i] for i in some], own)
            if tell:
                tell(min(self.size, parts[some[-1]].stop * size))
        return self._reached(sum(self._of_all(found)))

    def _of_all(self, found):
        """What all processes have found: a row for each batch, in their order."""
        size, first = self.everybody.size, self.everybody.owners.index
        if size == 1:
            return found
        rows = gather(self.everybody, [found.reshape(-1)] * len(self.everybody.mine)).reshape(-1, *found.shape)
        return [rows[first(i % size), i] for i in range(len(found))]

    def _evaluate(self, parts, own):
        """Batches side by side through all stages: for each the right answers and the metrics."""
        batches = [to_float(self.X[part]) for part in parts]
        for stage, holders, arrays in zip(self.plan.stages, self.holders, own, strict=True):
            layers, tasks = [each for each in self.plan.network[stage.first : stage.stop] if each is not HALF], []
            for i, batch in enumerate(batches):
                if holders:
                    device = holders[i % len(holders)]
                    here = [[put(array, device) for array in some] for some in arrays]
                    tasks.append(device.run(_forward, put(batch, device), *here, layers))
                else:
                    device = self.devices[i % len(self.devices)]  # any, since none has the stage
                    tasks.append(device.submit(_forward, to_host(batch), *arrays, layers))
            batches = [task.result() for task in tasks]
        each = zip(map(to_host, batches), parts, strict=True)
        return [sums_of(outputs, self.y[part], self.loss, self.metrics) for outputs, part in each]


def _forward(x, params, statistics, layers):
    """Runs on a device."""
    with span("evaluate"):
        return logits(x, params, layers, statistics)
