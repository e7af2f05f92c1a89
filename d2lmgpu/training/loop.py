"""The training loop: epochs of steps, with an evaluation after each epoch."""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .. import words
from ..data import epoch_order
from ..devices import to_host
from ..devices.errors import one_line
from ..devices.trials import tell as tell_user
from ..monitor import Progress, stop_on_interrupt
from ..timing import Timeline
from .accuracy import TestSet
from .history import History, why_diverged, why_slow
from .plan_step import PlanStep
from .resume import Position
from .saving import Saver
from .together import check_replicas

SETTLE_EVERY = 2**12
"""After this many steps, measurements are summed up, to save memory in long epochs."""


@dataclass
class Loop:
    """The loop of a run, and the parts that it uses.

    ``make_again()`` makes a runner and a test set for the remaining devices when processes of an elastic cluster have
    died. ``saver`` writes a checkpoint after every epoch, every ``save_steps`` steps, when training is stopped, and
    when the processes hang.
    """

    runner: PlanStep
    history: History
    test_set: TestSet
    bar: Progress
    saver: Saver
    timeline: Timeline
    callbacks: list
    save_steps: int
    make_again: Callable
    evaluating: float = 0.0  # seconds, in all

    def __post_init__(self):
        self.settings, self.stop = self.runner.settings, self.runner.stop
        self.everybody, self.position = self.runner.execution.everybody, Position()
        self.order_of = functools.lru_cache(2)(functools.partial(epoch_order, len(self.runner.y), self.settings.seed))

    def run(self, position):
        """Train from ``position`` on until all epochs are done, a stop is requested, or nothing more can be learned."""
        history, seconds, self.position = self.history, 0.0, position
        self._enter_devices()
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
        self.position = position
        position = self.surely(self._steps)
        self.timeline.settle()
        tested = self.surely(self._evaluate)
        examples = max(1, self.bar.end_epoch())
        train_accuracy = None if position.correct is None else position.correct / examples
        reached = {"train_loss": sum(position.losses) / examples, "train_accuracy": train_accuracy} | tested
        complete = position.steps == self.runner.steps
        if complete:
            self.history.add_epoch(reached, position.seconds, self.bar.num_examples)
            self.history.diverged = why_diverged(self.history.train_loss, self.runner.plan.network, self.settings.loss)
        after = Position(position.epoch + 1) if complete else position
        self.surely(self.saver.save, after, complete)  # before printing anything, which may fail
        if complete:
            self._say_epoch(reached, position.seconds)
        self.surely(self.stop.settle)
        if self.stop.requested and after.epoch < self.history.epochs:
            self.history.interrupted = {"epoch": position.epoch + 1, "steps": position.steps} | reached
            self.bar.report(f"stopped after {words.several(position.steps, 'step')}: {words.figures(reached)}")
        elif self.history.diverged:
            self.bar.report(self.history.diverged)
        return after, position.seconds - before.seconds

    def _evaluate(self):
        """A dict of the current results on the test set, such as the accuracy (or loss)."""
        self.tell("on_evaluate", self.history)
        self.bar.evaluate(0, self.test_set.size)
        begin = time.perf_counter()
        replicas = self.runner.replicas
        tested = self.test_set.evaluate(
            [replica.params for replica in replicas],
            [replica.statistics for replica in replicas],
            lambda done: self.bar.evaluate(done, self.test_set.size),
        )
        self.evaluating += time.perf_counter() - begin
        return tested

    def surely(self, work, *args):
        """Like `Cluster.surely`; if processes die, the run goes on without them."""
        return self.everybody.surely(work, *args, again=self._go_on)

    def _go_on(self):
        """After processes have died, go on with the remaining devices, from the last step that all of them know."""
        old, devices, position = self.runner, self.everybody.mine, self.position
        for device in devices:
            device.end().wait()
            device.failures.take()
        if old.known:
            done, loss, correct = old.known
            seconds, counted = time.perf_counter() - self.begin, position.correct is not None
            self.position = Position(position.epoch, done, [loss], seconds, correct if counted else None)
        mine, steps = old.replicas[0], old.execution.stores[0].steps
        held = mine.params, mine.flat_optimizer_state, mine.statistics
        params, state, statistics = ([np.array(to_host(array)) for array in arrays] for arrays in held)
        runner, test_set = self.make_again()
        runner.set_state(params, state, [statistics] * len(devices), steps)
        if self.settings.precision == "mixed":
            runner.set_scaling(old.scaling())
        runner.stop = self.stop
        self.runner = self.saver.runner = runner
        self.saver.execution, self.test_set = runner.execution, test_set
        self._enter_devices()

    def _enter_devices(self):
        """Note in an elastic run's history how many devices there are from this step on."""
        history, everybody = self.history, self.everybody
        if everybody.is_elastic:
            history.devices, history.processes = everybody.names, everybody.size
            history.peak_memory = self.runner.peak_memory
            now = [self.position.epoch * self.runner.steps + self.position.steps, len(everybody)]
            history.elastic += [now] if history.elastic[-1:] != [now] else []

    def _steps(self):
        """Do steps until the end of the epoch, or until a stop; return the new position."""
        position = self.position
        begin = self.begin = time.perf_counter() - position.seconds
        epoch, steps, batch_size = position.epoch, position.steps, self.history.batch_size
        before, check_every = epoch * self.runner.steps, self.settings.check_every
        self.bar.start_epoch(epoch, min(steps * batch_size, self.bar.num_examples))
        counted = position.correct is not None and self.test_set.loss is None  # otherwise labels are not classes
        rates = self.settings.learning_rates(epoch, self.runner.steps)
        self.runner.start_epoch(self.order_of(epoch), rates, steps, position.losses, epoch, position.correct or 0)
        self.saver.begin(epoch, steps, begin, counted)

        def reached():
            losses = self.runner.pause()
            return Position(epoch, steps, losses, time.perf_counter() - begin, self.runner.correct if counted else None)

        while steps < self.runner.steps and not self.stop.requested:
            for examples in self.runner.several(self._unwatched(before, steps)):
                self.history.learning_rate = float(rates[steps])
                loss, accuracy = self.runner.so_far
                self.bar.step(examples, loss, accuracy if counted else None)
                steps += 1
                self.tell("on_step", epoch, steps, loss)
            if steps % SETTLE_EVERY == 0:
                self.runner.pause()
                self.timeline.settle()
            if check_every and (before + steps) % check_every == 0:
                self.runner.pause()
                check_replicas(self.runner.execution, self.settings.batch_statistics, epoch + 1, steps)
            if self.save_steps and steps % self.save_steps == 0 and steps < self.runner.steps:
                self.saver.save(reached())
        self.order_of(epoch + 1)  # while the devices do their last steps
        return reached()

    def _unwatched(self, before, steps):
        """How many of an epoch's steps may be launched before the next callback, checkpoint or check.

        ``before``: how many steps the run did before this epoch.
        """
        if self.callbacks:
            return 1
        counts = (self.save_steps, steps), (SETTLE_EVERY, steps), (self.settings.check_every, before + steps)
        return min([self.runner.steps - steps, *(every - done % every for every, done in counts if every)])

    def _say_epoch(self, reached, seconds):
        """Print how a complete epoch went."""
        speed = f"{words.seconds(seconds)} s, {self.bar.num_examples / seconds:,.0f} examples/s"
        self.bar.report(f"{words.figures(reached)}, {speed}")
        hint = why_slow(self.history, self.runner.plan.network)
        if hint:
            self.bar.report(hint)
        self.tell("on_epoch", self.history)

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
