"""The training loop: epochs of steps, and after each epoch a look at how it goes."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from .. import words
from ..devices.errors import one_line
from ..devices.trials import tell as tell_user
from ..monitor import Progress, Stop, stop_on_interrupt
from ..networks import Network
from ..timing import Timeline
from .accuracy import TestSet
from .history import History, why_diverged, why_slow
from .resume import Position

LOOK = 2**12
"""Steps after which what was measured of them is summed, so that it takes no more memory in long epochs."""


@dataclass
class Loop:
    """What a run consists of. ``order(epoch)`` and ``rates(epoch)`` give an epoch's examples and learning rates.

    ``runner`` is an `EagerStep` or a `GraphStep`. ``save(position)`` writes a
    checkpoint, after every epoch, every ``save_steps`` steps, and when training is stopped.
    """

    history: History
    network: Network
    test_set: TestSet
    replicas: list
    runner: object
    order: Callable
    rates: Callable
    bar: Progress
    timeline: Timeline
    callbacks: list
    save: Callable
    save_steps: int
    stop: Stop = field(default_factory=Stop)
    evaluating: float = 0.0  # seconds, in all

    def run(self, position):
        """Train from ``position`` on, until all epochs are done, somebody asks to stop, or nothing can be learned."""
        history, seconds = self.history, 0.0
        try:
            with stop_on_interrupt() as self.stop, self.timeline:
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
        """Train what is left of an epoch, or until a stop; returns the new position and the seconds that it took."""
        before = position
        self.timeline.leave_out()  # evaluation, and what callbacks did with the devices
        position = self._steps(position)
        self.timeline.settle()
        accuracy = self._evaluate()
        loss = sum(position.losses) / max(1, self.bar.end_epoch())
        complete = position.steps == self.runner.steps
        if complete:
            self.history.add_epoch(loss, accuracy, position.seconds, self.bar.num_examples)
            self.history.diverged = why_diverged(self.history.train_loss, self.network)
        after = Position(position.epoch + 1) if complete else position
        self.save(after)  # before anything is said, which may fail
        if complete:
            self._say_epoch(loss, accuracy, position.seconds)
        if self.stop.requested and after.epoch < self.history.epochs:
            self.history.interrupted = {
                "epoch": position.epoch + 1,
                "steps": position.steps,
                "train_loss": loss,
                "test_accuracy": accuracy,
            }
            steps = words.several(position.steps, "step")
            self.bar.report(f"stopped after {steps}: loss {loss:.3f}, test acc {accuracy:.3f}")
        elif self.history.diverged:
            self.bar.report(self.history.diverged)
        return after, position.seconds - before.seconds

    def _evaluate(self):
        """The accuracy on the test set, as it is now."""
        self.tell("on_evaluate", self.history)
        self.bar.evaluate(0, self.test_set.size)
        begin = time.perf_counter()
        device_params = [replica.params for replica in self.replicas]
        statistics = [replica.statistics for replica in self.replicas]
        accuracy = self.test_set.accuracy(
            device_params, statistics, lambda done: self.bar.evaluate(done, self.test_set.size)
        )
        self.evaluating += time.perf_counter() - begin
        return accuracy

    def _steps(self, position):
        """Do steps up to the end of the epoch, or a stop; returns the new position."""
        begin = time.perf_counter() - position.seconds
        epoch, steps, batch_size = position.epoch, position.steps, self.history.batch_size
        looked = steps
        self.bar.start_epoch(epoch, steps * batch_size)
        self.runner.start_epoch(self.order(epoch), self.rates(epoch), steps, position.losses, epoch)
        while steps < self.runner.steps and not self.stop.requested:
            for examples in self.runner.several(self._unwatched(steps)):
                self.bar.step(examples, self.runner.mean_loss)
                steps += 1
                self.tell("on_step", epoch, steps, self.runner.mean_loss)
            if steps - looked >= LOOK:
                looked = steps
                self.runner.pause()
                self.timeline.settle()
            if self.save_steps and steps % self.save_steps == 0 and steps < self.runner.steps:
                self.save(Position(epoch, steps, self.runner.pause(), time.perf_counter() - begin))
        return Position(epoch, steps, self.runner.pause(), time.perf_counter() - begin)

    def _unwatched(self, steps):
        """How many of an epoch's steps may follow these before somebody looks: a callback, a checkpoint, its end."""
        left = self.runner.steps - steps
        if self.save_steps:
            left = min(left, self.save_steps - steps % self.save_steps)
        return 1 if self.callbacks else left

    def _say_epoch(self, loss, accuracy, seconds):
        """Say how a complete epoch went."""
        speed = f"{words.seconds(seconds)} s, {self.bar.num_examples / seconds:,.0f} examples/s"
        self.bar.report(f"loss {loss:.3f}, test acc {accuracy:.3f}, {speed}")
        hint = why_slow(self.history, self.network)
        if hint:
            self.bar.report(hint)
        self.tell("on_epoch", self.history)

    def tell(self, what, *arguments):
        """Call method ``what`` of all callbacks; if one answers True, request a stop."""
        for callback in list(self.callbacks):
            try:
                if getattr(callback, what)(*arguments):
                    self.stop.requested = True
            except Exception as error:
                if not getattr(callback, "only_shows", False):
                    raise
                self.callbacks.remove(callback)
                tell_user(f"{type(callback).__name__} failed ({one_line(error)}); training goes on without it")
