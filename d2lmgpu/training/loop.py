"""A run, and the training loop: epochs of steps, with an evaluation after each epoch."""

import functools
import time
from dataclasses import dataclass
from types import SimpleNamespace

from ..base.text import format_metrics, format_seconds, one_line, several
from ..cluster import Cluster
from ..data.minibatches import epoch_order
from ..devices import to_host
from ..devices.probes import warn as tell_user
from ..devices.timeline import Timeline
from ..networks import Network
from ..networks.losses import Loss
from .evaluation import TestSet
from .history import History, why_diverged
from .model import Model
from .monitor import Progress, stop_on_interrupt
from .resume import Position, save
from .runner import Runner

SETTLE_EVERY = 2**12
"""After this many steps, measurements are summed up, to save memory in long epochs."""


@dataclass
class Run:
    """A run that is prepared: its data, network and devices, what its steps are done by, and the loop over them.

    The loop writes a checkpoint after every epoch, every ``checkpoint_steps`` steps, and when training is stopped.
    """

    options: SimpleNamespace  # the arguments of `train`, of which settings and devices are not used
    group: Cluster
    data: list
    network: Network
    loss: Loss
    params: list  # that training starts from
    bar: Progress
    runner: Runner
    history: History
    test_set: TestSet
    timeline: Timeline
    checksum: str | None  # of the training set, if it is needed
    evaluating: float = 0.0  # seconds, in all

    def __post_init__(self):
        self.settings, self.stop, self.callbacks = self.runner.settings, self.runner.stop, [*self.options.callbacks]
        self.order_of = functools.lru_cache(2)(functools.partial(epoch_order, len(self.data[1]), self.settings.seed))

    def model(self):
        """The current `Model`; all processes of a cluster call it."""
        params, _ = self.runner.copies()[0]
        about = self.history.classes, self.history.invert, self.settings.loss
        return Model(self.network, list(map(to_host, params)), self.runner.statistics()[0], *about)

    def run(self, position):
        """Train from ``position`` on until all epochs are done, a stop is requested, or nothing more can be learned."""
        history, seconds = self.history, 0.0  # of all epochs
        try:
            with stop_on_interrupt(self.stop), self.timeline:
                self.tell("on_start", history, self.runner.steps)
                while position.epoch < history.epochs and not history.interrupted and not history.diverged:
                    position, more = self._epoch(position)
                    seconds += more
                self.timeline.leave_out()
                history.phases = self.timeline.phases(seconds) | {"evaluate": self.evaluating}
                history.utilisation = self.timeline.utilisation(seconds)
        finally:
            self.timeline.active = self.stop.listening = False  # a second Ctrl-C may come while the block above ends

    def _epoch(self, position):
        """Train to the end of an epoch, or until a stop; return the new position and the seconds that this took."""
        before = position
        self.timeline.leave_out()  # the evaluation, and whatever callbacks did on the devices
        position = self._steps(position)
        self.timeline.settle()
        tested = self._evaluate()
        examples = max(1, self.bar.end_epoch())
        train_accuracy = None if position.correct is None else position.correct / examples
        reached = {"train_loss": sum(position.losses) / examples, "train_accuracy": train_accuracy} | tested
        complete = position.steps == self.runner.steps
        if complete:
            self.history.add_epoch(reached, position.seconds, self.bar.num_examples)
            self.history.diverged = why_diverged(self.history.train_loss, self.network, self.settings.loss)
        after = Position(position.epoch + 1) if complete else position
        save(self, after, complete)  # before printing anything, which may fail
        if complete:
            speed = f"{format_seconds(position.seconds)} s, {self.bar.num_examples / position.seconds:,.0f} examples/s"
            self.bar.report(f"{format_metrics(reached)}, {speed}")
            self.tell("on_epoch", self.history)
        self.stop.settle()
        if self.stop.requested and after.epoch < self.history.epochs:
            self.history.interrupted = {"epoch": position.epoch + 1, "steps": position.steps} | reached
            self.bar.report(f"stopped after {several(position.steps, 'step')}: {format_metrics(reached)}")
        elif self.history.diverged:
            self.bar.report(self.history.diverged)
        return after, position.seconds - before.seconds

    def _evaluate(self):
        """A dict of the current results on the test set, such as the accuracy (or loss)."""
        self.tell("on_evaluate", self.history)
        begin = time.perf_counter()
        params, statistics = zip(*self.runner.copies(), strict=True)
        tested = self.test_set.evaluate(list(params), list(statistics))
        self.evaluating += time.perf_counter() - begin
        return tested

    def _steps(self, position):
        """Do steps until the end of the epoch, or until a stop; return the new position."""
        begin = time.perf_counter() - position.seconds
        epoch, steps, batch_size = position.epoch, position.steps, self.history.batch_size
        save_every = self.options.checkpoint_steps
        self.bar.start_epoch(epoch, min(steps * batch_size, self.bar.num_examples))
        counted = position.correct is not None and self.test_set.loss is None  # otherwise labels are not classes
        rates = self.settings.learning_rates(epoch, self.runner.steps)
        self.runner.start_epoch(self.order_of(epoch), rates, position)

        def reached():
            losses, correct = self.runner.pause()
            return Position(epoch, steps, losses, time.perf_counter() - begin, correct if counted else None)

        while steps < self.runner.steps and not self.stop.requested:
            for examples in self.runner.launch(self._unwatched(steps)):
                self.history.learning_rate = float(rates[steps])
                loss, accuracy = self.runner.so_far()
                self.bar.step(examples, loss, accuracy if counted else None)
                steps += 1
                self.tell("on_step", epoch, steps, loss)
            if steps % SETTLE_EVERY == 0:
                self.runner.pause()
                self.timeline.settle()
            if save_every and steps % save_every == 0 and steps < self.runner.steps:
                save(self, reached())
        self.order_of(epoch + 1)  # while the devices do their last steps
        return reached()

    def _unwatched(self, steps):
        """How many of an epoch's steps may be launched before the next callback or checkpoint."""
        if self.callbacks:
            return 1
        every = filter(None, (self.runner.steps, SETTLE_EVERY, self.options.checkpoint_steps))
        return min(some - steps % some for some in every)

    def tell(self, what, *arguments):
        """Call the method named ``what`` of all callbacks; if one returns True, request a stop."""
        for callback in list(self.callbacks):
            try:
                if getattr(callback, what)(*arguments):
                    self.stop.wanted = True
            except Exception as error:
                if not getattr(callback, "only_shows", False):
                    raise
                self.callbacks.remove(callback)
                tell_user(f"{type(callback).__name__} failed ({one_line(error)}); training goes on without it")
