"""What a checkpoint stores about a training run, when it is written, and how a run resumes from it.

A run is the same run if its settings, its data and its network's layers are. Your own functions are compared by their
names. The file may come from an earlier version: what this version does not know of it is ignored.
"""

from dataclasses import dataclass, field, fields

import numpy as np

from ..base.text import REACHED
from ..networks.known import described, restored
from ..networks.mixed import are_finite
from .checkpoints import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from .checks import kind_in_files, of_kind
from .history import HISTORY, History, sha256
from .model import MODEL, model_state
from .settings import SAME


@dataclass
class Position:
    """How far a run has got: complete epochs, steps done in the next one, and these steps' summed losses and seconds.

    ``correct``: for how many examples of these steps the label had the largest logit; None if labels are not classes.
    """

    epoch: int = 0
    steps: int = 0
    losses: list[float] = field(default_factory=lambda: [0.0])
    seconds: float = 0.0
    correct: int | None = 0


START = Position()
"""Where a run begins."""

POSITION = {about.name: kind_in_files(about) for about in fields(Position)}
STATE = {"history": HISTORY, "position": POSITION, "optimizer_steps": int, "model": MODEL, "data": str}
"""The kinds of values in a run's checkpoint."""


def load_run(path):
    """Load the `Checkpoint` of a training run from a file.

    Raises CheckpointError if the file is not a run's checkpoint or is damaged, OSError if it cannot be read.
    """
    checkpoint = load_checkpoint(path)
    try:
        state = of_kind("state", checkpoint.state, STATE)
    except ValueError as error:
        raise CheckpointError(f"{path} is no checkpoint of a run that this version can read: {error}") from None
    if state["history"].get("sums") == "exact" and state["history"].get("split"):
        raise CheckpointError(f"{path} is of a run with exact sums and a split, which went; start again without one")
    return checkpoint._replace(state=state)


def data_checksum(X, y):
    """A checksum of the training set, which must be unchanged when a run is resumed."""
    form = repr((X.shape, X.dtype.str, y.dtype.str)).encode()
    return sha256([np.frombuffer(form, np.uint8), X, y])


def restore(run, checkpoint):
    """Restore a `Run` from its checkpoint: return its `Position`, and enter the results so far in its history.

    Raises CheckpointError if the run's settings, data or layers differ from the checkpoint's, or if the saved run was
    given up.
    """
    history, runner = run.history, run.runner
    saved = History.from_dict(checkpoint.state["history"])
    if saved.diverged:
        raise CheckpointError(f"resume: the run was given up: {saved.diverged}; start again without resume")
    _check_same_run(checkpoint, saved, history, run.network, run.checksum)
    position = Position(**checkpoint.state["position"])
    if position.epoch > history.epochs or (position.epoch == history.epochs and position.steps):
        raise CheckpointError(f"resume: the checkpoint is beyond epoch {history.epochs}; ask for more epochs")
    runner.set_state(checkpoint.arrays, checkpoint.state["optimizer_steps"])
    run.params = checkpoint.arrays["params"]
    seconds = "seconds_per_epoch", "examples_per_second"
    for name in (*REACHED, "metrics", "learning_rates", "learning_rate", *seconds):
        setattr(history, name, getattr(saved, name))
    return position


def _check_same_run(checkpoint, saved, history, network, checksum):
    """Raise CheckpointError, listing all differences, unless the checkpoint is from a run like this one."""
    different = [
        f"{name} is {getattr(history, name)!r} here and {getattr(saved, name)!r} in the checkpoint"
        for name in (*SAME, "classes")
        if getattr(history, name) != getattr(saved, name)
    ]
    if set(history.metrics) != set(saved.metrics):
        here, there = (", ".join(names) or "none" for names in (history.metrics, saved.metrics))
        different.append(f"metrics are {here} here and {there} in the checkpoint")
    if checkpoint.state["data"] != checksum and saved.invert != history.invert:
        different.append(f"invert is {history.invert} here and {saved.invert} in the checkpoint")
    elif checkpoint.state["data"] != checksum:
        different.append("the training examples are others: other data, or another limit to them")
    saved_shapes = [param.shape for param in checkpoint.arrays["params"]]
    layers = checkpoint.state["model"]["network"]
    if saved_shapes != [shape for layer in network for shape in layer.shapes]:
        different.append(f"the network's parameters have shapes {saved_shapes} in the checkpoint")
    elif layers is not None and described(restored(layers)) != described(network):
        different.append("the network has other layers than in the checkpoint")
    if different:
        raise CheckpointError(f"resume: this is another run: {'; '.join(different)}")


def save(run, position, of_epoch=False):
    """Write the checkpoint of a `Run` at a `Position`; after an epoch, also the best model. All processes call it."""
    if run.options.checkpoint is not None:
        arrays, steps = run.runner.state()  # processes may hold parts of it
        if run.group.rank == 0:
            model = model_state(run.network, run.history.classes, run.history.invert, run.loss)
            state = {"model": model, "data": run.checksum, "history": run.history.as_dict(), "position": vars(position)}
            save_checkpoint(run.options.checkpoint, Checkpoint(state | {"optimizer_steps": steps}, arrays))
    if of_epoch:
        _keep_best(run)


def _keep_best(run):
    """After an epoch, write the model for `load_model` if it is the best so far.

    A model that is not finite is never the best: the last update of a good epoch may have made it so.
    """
    best = run.options.keep_best and run.history.best
    if not best or best["epoch"] < len(run.history.train_loss):
        return
    model = run.model()  # processes may hold parts of it
    if run.group.rank == 0 and are_finite([*model.params, *model.statistics]):
        model.save(run.options.keep_best)
