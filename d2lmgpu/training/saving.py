"""The checkpoints of a run, which are written after epochs and steps, and the best model so far."""

from ..checkpoints import Checkpoint, save_checkpoint
from ..parallel.loss_scale import are_finite


class Saver:
    """Writes the checkpoints of a run.

    ``path``: the checkpoint file, or None to write nothing. ``best``: the file that keeps the best model so far, or
    None. ``state``: the part of a checkpoint's state that never changes. ``model()`` returns the current `Model`.
    ``writes``: whether this process writes the files.
    """

    def __init__(self, path, best, history, runner, state, model, writes):
        self.path, self.best, self.history, self.runner = path, best, history, runner
        self.state, self.model, self.writes = state, model, writes

    def save(self, position, of_epoch=False):
        """Write the state of a run at a `Position`; after an epoch, also the best model. All processes call it."""
        if self.path is not None:
            checkpoint = self._checkpoint(position)
            if self.writes:
                save_checkpoint(self.path, checkpoint)
        if of_epoch:
            self.keep_best()

    def keep_best(self):
        """After an epoch, write the model for `load_model` if it is the best so far. All processes call it.

        A model that is not finite is never the best: the last update of a good epoch may have made it so.
        """
        best = self.best and self.history.best
        if not best or best["epoch"] < len(self.history.train_loss):
            return
        model = self.model()  # processes may hold parts of it
        if self.writes and are_finite([*model.params, *model.statistics]):
            model.save(self.best)

    def _checkpoint(self, position):
        """The `Checkpoint` of a run at a `Position`."""
        arrays, steps = self.runner.state()
        now = {"history": self.history.as_dict(), "position": vars(position), "optimizer_steps": steps}
        return Checkpoint(self.state | now, arrays)
