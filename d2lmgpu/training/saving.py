"""The checkpoints of a run, which are written after epochs and steps, and in an emergency when processes hang.

When processes hang, a watch thread writes the state after the last complete step. A device that waits in an exchange of
gradients has not begun its update, so its parameters are still those from the end of the previous step. This is
checked: each device counts its updates when they begin and when they are finished, and the host program counts the
steps that it has waited for. A checkpoint is written only if all these counts agree, both before and after the arrays
are copied.

    host       waits for step 8, has the losses of 7 steps
    cpu(0)     7 updates begun, 7 finished, waits in the allreduce of step 8      ►  the state after step 7
    cpu(1)     7 updates begun, 7 finished, waits in the allreduce of step 8

The program may be at any point, and its devices will not run another task, so the thread reads the arrays directly.
"""

import os
import time

import numpy as np

from ..checkpoints import Checkpoint, save_checkpoint
from ..devices import to_host
from ..devices.errors import one_line
from .resume import Position

ENDING = ".hang"
"""An emergency checkpoint's name is the run's file name plus this ending: a new file that no process has locked."""


class Saver:
    """Writes the checkpoints of a run.

    ``path``: the checkpoint file, or None to write nothing. ``best``: the file that keeps the best model so far, or
    None. ``state``: the part of a checkpoint's state that never changes. ``model()`` returns the current `Model`.
    """

    def __init__(self, path, best, history, runner, state, model):
        self.path, self.best, self.history, self.runner = path, best, history, runner
        self.state, self.model = state, model
        self.execution, self.everybody = runner.execution, runner.execution.everybody
        self.own_statistics = runner.settings.batch_statistics == "local" and bool(runner.replicas[0].statistics)
        self.epoch = None  # the epoch that is being trained

    def save(self, position, of_epoch=False):
        """Write the state of a run at a `Position`; after an epoch, also the best model. All processes call it."""
        if self.path is not None:
            checkpoint = self._checkpoint(position, to_host, self.execution.statistics())
            if self.everybody.rank == 0:
                save_checkpoint(self.path, checkpoint)
        if of_epoch:
            self.keep_best()

    def keep_best(self):
        """After an epoch, write the model for `load_model` if it is the best so far. All processes call it."""
        if self.best is None or self.history.best["epoch"] < len(self.history.train_loss):
            return
        model = self.model()  # processes may hold parts of it
        if self.everybody.rank == 0:
            model.save(self.best)

    def _checkpoint(self, position, read, statistics):
        """A `Checkpoint` of the arrays that ``read`` returns; ``statistics``: those of each device, already read."""
        first = self.runner.replicas[0]  # parameters and the optimiser's state are the same on all devices
        arrays = {"params": list(map(read, first.params)), "kept": list(map(read, first.flat_optimizer_state))}
        arrays |= {"scaling": self.runner.scaling()} | {f"statistics of {i}": own for i, own in enumerate(statistics)}
        steps = self.execution.stores[0].steps
        now = {"history": self.history.as_dict(), "position": vars(position), "optimizer_steps": steps}
        return Checkpoint(self.state | now, arrays)

    def begin(self, epoch, steps, begin, counted):
        """Note that an epoch continues after ``steps`` steps; ``begin``: when it would have begun without a break."""
        if self.path is not None:
            self.before = [store.finished - steps for store in self.execution.stores]
            self.time, self.counted, self.epoch = begin, counted, epoch

    def in_emergency(self):
        """Called when the processes hang: write a checkpoint if possible; return a message about it.

        The result is None if the run has no checkpoints.
        """
        if self.path is None:
            return None
        known, epoch = self.runner.known, self.epoch
        try:
            why = self._why_none(known) or self._write(known, epoch)
        except Exception as error:
            why = one_line(error)
        if why is not None:
            return f"no checkpoint was written of the hang: {why}"
        path = os.fspath(self.path) + ENDING
        return f"the state after step {known[0]} of epoch {epoch + 1} was written: --resume {path} goes on from there"

    def _why_none(self, known):
        """The reason why no emergency checkpoint can be written, or None; ``known``: the runner's ``known``."""
        if not self.runner.are_copies:
            return "with a split no process has all parameters, and not all answer"
        if self.own_statistics:
            return "each device has statistics of its own (batch_statistics 'local'), and not all devices answer"
        if any(store.device.kind != "cpu" for store in self.execution.stores):
            return "what is on GPUs cannot be read while they wait"
        if self.epoch is None or known[0] >= self.runner.steps:
            return "no step was under way; the last checkpoint that was written stands"
        if not self._is_whole(known):
            return "a device is in the midst of an update, or ahead of what the program knows"
        return None

    def _write(self, known, epoch):
        """Write the checkpoint; if devices go on meanwhile, write nothing and return the reason."""
        done, loss, correct = known
        position = Position(epoch, done, [loss], time.perf_counter() - self.time, correct if self.counted else None)
        statistics = [[np.array(array.raw) for array in self.runner.replicas[0].statistics]] * len(self.everybody)
        checkpoint = self._checkpoint(position, lambda array: np.array(array.raw), statistics)
        if self.runner.known is not known or self.epoch != epoch or not self._is_whole(known):
            return "devices went on meanwhile"
        save_checkpoint(os.fspath(self.path) + ENDING, checkpoint)
        return None

    def _is_whole(self, known):
        """Whether all devices have done exactly the steps that the program knows of, and no part of another."""
        stores = zip(self.execution.stores, self.before, strict=True)
        counts = {(store.begun - before, store.finished - before) for store, before in stores}
        return counts == {(known[0], known[0])}
