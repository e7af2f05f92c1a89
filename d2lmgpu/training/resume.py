"""What a checkpoint holds of a training run, and how a run goes on from it."""

import hashlib
from dataclasses import dataclass, field

import numpy as np

from ..checkpoints import Checkpoint, CheckpointError
from ..devices import put, to_host
from .history import History

SAME = (
    "network classes optimizer seed batch_size preprocess drop_last lr warmup schedule batch_statistics precision"
).split()
"""Settings without which a run would not be the same; devices, loads, epochs and allreduce may change."""


@dataclass
class Position:
    """How far a run is: complete epochs, steps done in the next, and of these steps the summed losses and seconds."""

    epoch: int = 0
    steps: int = 0
    losses: list = field(default_factory=lambda: [0.0])
    seconds: float = 0.0


def data_checksum(X, y):
    """A checksum of the training set, whose examples a resumed run must find as they were."""
    digest = hashlib.sha256(repr((X.shape, X.dtype.str, y.dtype.str)).encode())
    for array in (X, y):
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


def snapshot(history, position, runner, replicas, checksum):
    """The `Checkpoint` of a run that is paused."""
    first = replicas[0]  # parameters and what the optimiser keeps are the same on all devices
    arrays = {"params": list(map(to_host, first.params)), "kept": list(map(to_host, first.flat_kept))}
    for i, replica in enumerate(replicas):
        arrays[f"statistics of {i}"] = list(map(to_host, replica.statistics))
    arrays["scaling"] = runner.scaling()
    state = {
        "history": history.as_dict(),
        "position": vars(position),
        "optimizer_steps": first.steps,
        "data": checksum,
    }
    return Checkpoint(state, arrays)


def restore(checkpoint, history, runner, replicas, checksum):
    """Put a run where a checkpoint was; returns its `Position`, and enters what was done in ``history``.

    Raises CheckpointError if the run's settings or data are not those of the checkpoint.
    """
    saved = History(**checkpoint.state["history"])
    different = [
        f"{name} is {getattr(history, name)!r} here and {getattr(saved, name)!r} in the checkpoint"
        for name in SAME
        if getattr(history, name) != getattr(saved, name)
    ]
    if checkpoint.state["data"] != checksum:
        different.append("the training examples are others")
    shapes = [param.shape for param in checkpoint.arrays["params"]]
    if shapes != [param.shape for param in replicas[0].params]:
        different.append(f"the network's parameters have shapes {shapes} in the checkpoint")
    if different:
        raise CheckpointError(f"resume: this is another run: {'; '.join(different)}")
    position = Position(**checkpoint.state["position"])
    if position.epoch > history.epochs or (position.epoch == history.epochs and position.steps):
        raise CheckpointError(f"resume: the checkpoint is beyond epoch {history.epochs}; ask for more epochs")
    for i, replica in enumerate(replicas):
        for param, value in zip(replica.params, checkpoint.arrays["params"], strict=True):
            param[...] = put(value, replica.device)
        statistics = checkpoint.arrays.get(f"statistics of {i}") or checkpoint.arrays.get("statistics of 0", [])
        replica.set_state(checkpoint.arrays.get("kept", []), statistics, checkpoint.state["optimizer_steps"])
    runner.set_scaling(checkpoint.arrays.get("scaling", []))
    for name in ("train_loss", "test_accuracy", "seconds_per_epoch", "examples_per_second"):
        setattr(history, name, getattr(saved, name))
    return position
