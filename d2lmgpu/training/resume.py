"""What a checkpoint holds of a training run, and how a run goes on from it."""

import hashlib

import numpy as np

from ..checkpoints import Checkpoint, CheckpointError
from ..devices import to_host
from ..words import REACHED
from .fingerprint import changed_functions
from .history import History
from .saved import Position, check_shapes
from .settings import SAME
from .together import statistics_of_all


def data_checksum(X, y):
    """A checksum of the training set, whose examples a resumed run must find as they were."""
    digest = hashlib.sha256(repr((X.shape, X.dtype.str, y.dtype.str)).encode())
    for array in (X, y):
        digest.update(np.ascontiguousarray(array))
    return digest.hexdigest()


def snapshot(history, position, runner, replicas, everybody, state):
    """The `Checkpoint` of a run that is paused; ``state``: what stays the same all the time.

    All processes of ``everybody``, a `Cluster`, call it.
    """
    first = replicas[0]  # parameters and the optimiser's state are the same on all devices
    arrays = {"params": list(map(to_host, first.params)), "kept": list(map(to_host, first.flat_optimizer_state))}
    arrays["scaling"] = runner.scaling()
    statistics = statistics_of_all(everybody, replicas)
    return checkpoint_of(history, position, arrays, statistics, first.steps, state)


def checkpoint_of(history, position, arrays, statistics, steps, state):
    """The `Checkpoint` of these, all on the host: ``statistics`` of each device, ``steps`` of the optimiser."""
    arrays = arrays | {f"statistics of {i}": each for i, each in enumerate(statistics)}
    now = {"history": history.as_dict(), "position": vars(position), "optimizer_steps": steps}
    return Checkpoint(state | now, arrays)


def restore(checkpoint, history, runner, replicas, everybody, checksum, fingerprint, changed=()):
    """Put a run where a checkpoint was; returns its `Position`, and enters what was done in ``history``.

    ``replicas`` are those of this process's devices of the `Cluster` ``everybody``.
    ``fingerprint``: that of the run, which should be that of the checkpoint but for
    the functions ``changed``. Raises CheckpointError if the run's settings or data are
    not those of the checkpoint, or its run was given up.
    """
    saved = History.from_dict(checkpoint.state["history"])
    if saved.diverged:
        raise CheckpointError(f"resume: the run was given up: {saved.diverged}; begin anew, without resume")
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
    shapes = [param.shape for param in checkpoint.arrays["params"]]
    if shapes != [param.shape for param in replicas[0].params]:
        different.append(f"the network's parameters have shapes {shapes} in the checkpoint")
    for name in changed_functions(fingerprint, checkpoint.state.get("likeness", {})):
        if name not in changed:
            meant = f"if that is meant, give changed=[{name!r}]"
            different.append(f"{name} does something else here than in the checkpoint ({meant})")
    if different:
        raise CheckpointError(f"resume: this is another run: {'; '.join(different)}")
    state, scaling = checkpoint.arrays.get("kept", []), checkpoint.arrays.get("scaling", [])
    expected = [np.empty(array.size) for array in replicas[0].flat_optimizer_state]
    check_shapes("optimiser's arrays", map(np.ravel, state), expected)
    check_shapes("loss scale", scaling, runner.scaling())
    first = checkpoint.arrays.get("statistics of 0", [])
    numbers = everybody.part(range(len(everybody)))
    # a split has one replica for all its devices
    statistics = [checkpoint.arrays.get(f"statistics of {i}") or first for i, _ in zip(numbers, replicas, strict=False)]
    for replica, arrays in zip(replicas, statistics, strict=True):
        check_shapes("statistics", arrays, replica.statistics)
    position = Position(**checkpoint.state["position"])
    if position.epoch > history.epochs or (position.epoch == history.epochs and position.steps):
        raise CheckpointError(f"resume: the checkpoint is beyond epoch {history.epochs}; ask for more epochs")
    if position.steps and position.steps >= runner.steps:
        raise CheckpointError(f"resume: the checkpoint is at step {position.steps} of an epoch of {runner.steps}")
    for replica, arrays in zip(replicas, statistics, strict=True):
        replica.set_params(checkpoint.arrays["params"])
        replica.set_state(state, arrays, checkpoint.state["optimizer_steps"])
    runner.set_scaling(scaling)
    for name in (*REACHED, "metrics", "seconds_per_epoch", "examples_per_second"):
        setattr(history, name, getattr(saved, name))
    return position
