"""Training steps by a plan, for the loop as `EagerStep` does them for the walk; and the parameters as a whole."""

import numpy as np

from ..data import batch_rng, epoch_size, to_float
from ..devices import to_host
from ..layers.labels import check_labels
from ..optimizers import make_optimizer
from ..parallel.minibatch_queue import largest_label, preprocess_batch
from ..plans import Execution, prove
from ..plans.state import give_back, whole_state
from ..timing import span
from ..transforms import find_transform
from .splits import check_memory, make_plan


class SplitStep:
    """Training as ``settings.split`` says. ``peak_memory``: the bytes on each device, at most, as `prove` counts them.

    ``devices``: a list, or a `Cluster`, of whose processes each has one; ``stop``: as of `ClusterStep`.

    Raises ValueError for what no plan can train, DeviceMemoryError where a device's limit is too low.
    """

    known = None  # of whole steps, when others hang: see training/emergency.py

    def __init__(self, X, y, params, devices, network, settings, stop=None):
        if np.ndim(y) != 1:
            raise ValueError("with a split labels are whole numbers, one for each image; train others without one")
        check_labels(y, len(X), network.classes)
        self.X, self.y, self.stop, self.settings = np.asarray(X), np.asarray(y), stop, settings
        batch_size, k = min(settings.batch_size, len(X)), len(devices)
        self.plan = make_plan(settings.split, k, settings.pipeline, settings.micro_batches, network, settings.algorithm)
        check_memory(self.plan, devices, settings.split, settings, batch_size)
        self.peak_memory = prove(self.plan, batch_size, settings.optimizer).peak
        self.steps = -(-epoch_size(len(X), settings.batch_size, settings.drop_last) // settings.batch_size)
        self.preprocess, self.largest = find_transform(settings.preprocess), largest_label(self.y)
        self.whole = Whole(self.plan, params, devices, make_optimizer(settings))
        self.replicas = [self.whole]

    def start_epoch(self, order, lr, done=0, losses=(0.0,), epoch=0, correct=0):
        """As `EagerStep.start_epoch`."""
        self.order = order[: epoch_size(len(order), self.settings.batch_size, self.settings.drop_last)]
        self.rates, self.epoch, self.number = np.broadcast_to(lr, self.steps).tolist(), epoch, done
        self.loss, self.examples, self.correct = sum(losses), done * self.settings.batch_size, correct

    @property
    def mean_loss(self):
        """Of the epoch so far per example; None before the first step."""
        return self.loss / self.examples if self.examples else None

    @property
    def accuracy(self):
        """As `mean_loss`, the fraction of examples whose largest logit was their label."""
        return self.correct / self.examples if self.examples else None

    def several(self, most):
        """Do the next step; how many examples it has, in a list."""
        X, y = self._minibatch()
        wanted = getattr(self.stop, "wanted", False)
        loss, correct, told = self.whole.step(X, y, self.rates[self.number], wanted)
        if wanted or any(told):
            self.stop.agree()
        self.number += 1
        self.loss, self.correct, self.examples = self.loss + loss, self.correct + correct, self.examples + len(y)
        return [len(y)]

    def pause(self):
        """The loss summed over the epoch so far, in a list."""
        return [self.loss]

    def close(self):
        """Nothing: each device does its steps' work in its own queue."""

    def scaling(self):
        """Nothing: no precision with a loss scale goes together with a split."""
        return []

    def set_scaling(self, arrays):
        """Take what `scaling` gave."""

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

    statistics = ()

    def __init__(self, plan, params, devices, optimizer):
        self.plan, self.devices, self.optimizer = plan, devices, optimizer
        self.set_params(params)

    def step(self, X, y, lr, tell=False):
        """A training step: the summed loss, for how many examples the largest logit was the label, what all tell."""
        self.given = self.given_state = None
        loss = self.execution.step(X, y, lr, tell)
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
    def flat_optimizer_state(self):
        """For each of the optimiser's states an array with a number for each parameter, in their order."""
        return whole_state(self.execution) if self.given_state is None else self.given_state

    def set_params(self, values):
        """Take `params`."""
        self.execution = None  # frees memory that the next line takes
        self.execution = Execution(self.plan, values, self.devices, self.optimizer)
        self.given = list(map(to_host, values))
        count, dtype = sum(param.size for param in self.given), self.execution.dtype
        self.given_state = [np.zeros(count, dtype)] * self.optimizer.states

    def set_state(self, optimizer_state, statistics, steps):
        """Take `flat_optimizer_state` after so many steps."""
        give_back(self.execution, optimizer_state)
        self.given_state, self.execution.steps = list(map(to_host, optimizer_state)), steps
