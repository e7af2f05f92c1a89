"""An emergency checkpoint, where processes hang: the state of the last whole step, written by this process's watch.

A device that waits in an exchange of gradients has not begun to update, so that its parameters are those after the step
before, whole. This is checked: each replica counts its updates, when they begin and when they are finished, and the
host program counts the steps that it has waited for. A checkpoint is written only where all of these agree, before and
after the arrays are copied.

    host       waits for step 8, has the losses of 7
    cpu(0)     7 updates begun, 7 finished, waits in the allreduce of step 8      ►  the state after step 7
    cpu(1)     7 updates begun, 7 finished, waits in the allreduce of step 8

The program may be anywhere, and its devices will not run another task: so arrays are read where they are.
"""

import os
import time

import numpy as np

from ..checkpoints import save_checkpoint
from ..devices.errors import one_line
from .resume import Position, checkpoint_of

ENDING = ".hang"
"""Of the file's name, after that of the run's checkpoint: another file, which no other process holds."""


class EmergencyCheckpoint:
    """Called where the processes of a `Cluster` hang, it writes a checkpoint and returns what there is to say of it.

    ``path``: of the run's checkpoint; None: it has none, and neither has this. A single process
    waits for no other, and has none. ``state``: what stays the same all the time.
    """

    def __init__(self, path, history, runner, everybody, state, batch_statistics):
        self.path = None if path is None or everybody.size == 1 else os.fspath(path) + ENDING
        self.history, self.runner, self.replicas, self.state = history, runner, runner.replicas, state
        self.devices = len(everybody)
        self.own_statistics = batch_statistics == "local" and bool(self.replicas[0].statistics)
        self.epoch = None  # the one that is being trained

    def begin(self, epoch, steps, begin, counted):
        """Steps of an epoch begin, after so many of it; ``begin``: when they would have, had all been done now."""
        if self.path is None or self.runner.known is None:
            return
        self.before = [replica.finished - steps for replica in self.replicas]
        self.time, self.counted, self.epoch = begin, counted, epoch

    def end(self):
        """No more steps until the next `begin`."""
        self.epoch = None

    def __call__(self):
        if self.path is None:
            return None
        try:
            why, position = self._write()
        except Exception as error:
            why = one_line(error)
        if why is not None:
            return f"no checkpoint was written of the hang: {why}"
        epoch, steps = position.epoch + 1, position.steps
        return f"the state after step {steps} of epoch {epoch} was written: --resume {self.path} goes on from there"

    def _write(self):
        """Why there is no checkpoint, or None and the `Position` of that which was written."""
        epoch = self.epoch
        if self.runner.known is None:
            return "with a split no process has all parameters, and not all answer", None
        if epoch is None:
            return "no step was under way; the last checkpoint that was written stands", None
        if self.own_statistics:
            return "each device has statistics of its own (batch_statistics 'local'), and not all devices answer", None
        if any(replica.device.kind != "cpu" for replica in self.replicas):
            return "what is on GPUs cannot be read while they wait", None
        first, known = self.replicas[0], self.runner.known
        if known[0] >= self.runner.steps:
            return (
                "the epoch's steps are done, and it is not evaluated; the last checkpoint that was written stands",
                None,
            )
        if not self._is_whole(known):
            return "a device is in the midst of an update, or ahead of what the program knows", None
        params = [np.array(param.raw) for param in first.params]
        kept = [np.array(array.raw) for array in first.flat_optimizer_state]
        statistics = [[np.array(array.raw) for array in first.statistics]] * self.devices
        scaling, steps = [np.array(array) for array in self.runner.scaling()], first.steps
        if self.runner.known is not known or self.epoch != epoch or not self._is_whole(known):
            return "devices went on meanwhile", None
        done, loss, correct = known
        position = Position(epoch, done, [loss], time.perf_counter() - self.time, correct if self.counted else None)
        arrays = {"params": params, "kept": kept, "scaling": scaling}
        save_checkpoint(self.path, checkpoint_of(self.history, position, arrays, statistics, steps, self.state))
        return None, position

    def _is_whole(self, known):
        counts = {
            (replica.begun - n, replica.finished - n) for replica, n in zip(self.replicas, self.before, strict=True)
        }
        return counts == {(known[0], known[0])}
