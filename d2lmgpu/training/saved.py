"""What a saved run must be: whoever reads a checkpoint finds what `resume.snapshot` puts into one, or an error.

A checkpoint that is whole, with the right checksum, may still have been written by another program, or by somebody
who wants to see what happens.
"""

from dataclasses import MISSING, asdict, dataclass, field, fields

import numpy as np

from ..checkpoints import CheckpointError, load_checkpoint
from ..networks import NETWORKS, init_params, init_statistics, known_network
from ..parallel import check_loads
from .history import History

ELEMENTS = {"devices": str, "classes": str, "loads": float, "train_loss": float, "test_accuracy": float}
ELEMENTS |= {"seconds_per_epoch": float}
"""What a history's lists are of."""

MOST = 2**53
"""Steps and seconds, at most: whole numbers that a float can be."""


@dataclass
class Position:
    """How far a run is: complete epochs, steps done in the next, and of these steps the summed losses and seconds."""

    epoch: int = 0
    steps: int = 0
    losses: list = field(default_factory=lambda: [0.0])
    seconds: float = 0.0


def load_run(path):
    """The `Checkpoint` of a training run in a file.

    Raises CheckpointError for a file that is none, damaged, or of something else; OSError if it cannot be read.
    """
    checkpoint = load_checkpoint(path)
    try:
        _check_state(checkpoint.state)
        if not checkpoint.arrays.get("params"):
            raise ValueError("it has no parameters")
    except ValueError as error:
        raise CheckpointError(f"{path} is no checkpoint of a run that this version can read: {error}") from None
    return checkpoint


def network_of(path, checkpoint, classes):
    """The network, one with a name, whose parameters are in the `Checkpoint` of a file, for so many ``classes``.

    Raises CheckpointError if these are not the parameters of such a network, ValueError for a network without a name.
    """
    name, arrays = checkpoint.state["history"]["network"], checkpoint.arrays
    if name not in NETWORKS:
        raise ValueError(f"{path} is of a network of your own: use d2lmgpu.predict in a program")
    check_shapes("biases of the classes", arrays["params"][-1:], [np.empty(classes)])  # before a million are made
    network = known_network(name, classes)
    check_shapes("parameters", arrays["params"], init_params(network=network))
    check_shapes("statistics", arrays.get("statistics of 0", []), init_statistics(network))
    return network


def check_shapes(what, arrays, expected):
    """Raise CheckpointError unless the arrays of a checkpoint have the shapes of those ``expected``."""
    found, wanted = [array.shape for array in arrays], [array.shape for array in expected]
    if found != wanted:
        raise CheckpointError(f"the checkpoint's {what} have shapes {found}; they should have {wanted}")


def _check_state(state):
    """Raise ValueError unless it is the state of a run."""
    _check_kinds("state", state, {"history": dict, "position": dict, "optimizer_steps": int, "data": str})
    history, position = state["history"], state["position"]
    known = {field.name: field for field in fields(History)}
    if set(history) - set(known):
        raise ValueError(f"its history has {', '.join(sorted(set(history) - set(known)))}, which it does not know")
    missing = {name for name, field in known.items() if name not in history or history[name] is None}
    left_out = {name for name in missing if _may_be_left_out(known[name], name in history)}
    _check_kinds("history", history, {name: known[name].type for name in known if name not in left_out})
    history |= asdict(History(**history))  # what was left out is what it was before there was a choice
    for name in ELEMENTS:
        if history[name] is not None:
            _check_elements(name, history[name], ELEMENTS[name])
    _check_kinds("position", position, {field.name: field.type for field in fields(Position)})
    _check_elements("losses", position["losses"], float)
    for number in (position["epoch"], position["steps"], position["seconds"], state["optimizer_steps"]):
        if not 0 <= number < MOST:
            raise ValueError(f"it has a number of steps, epochs or seconds that is {number:.3g}")
    if {len(history[name]) for name in ("train_loss", "test_accuracy", "seconds_per_epoch")} != {position["epoch"]}:
        raise ValueError("its history is not of as many epochs as were trained")
    alike = state.get("likeness", {})  # which older files lack
    _check_kinds("state", {"likeness": alike}, {"likeness": dict})
    for name, numbers in alike.items():
        if numbers is not None:
            _check_kinds("likeness", {name: numbers}, {name: list})
            _check_elements(name, numbers, float)
    if history["loads"] is not None:
        check_loads(history["loads"], len(history["devices"]))


def _may_be_left_out(field, is_null):
    """Whether a field of the history may be null, or not there at all, as in files of older versions."""
    return field.default is None or (not is_null and (field.default, field.default_factory) != (MISSING, MISSING))


def _check_elements(what, values, kind):
    """Raise ValueError unless all values of a list are of this kind."""
    _check_kinds(what, dict(enumerate(values)), dict.fromkeys(range(len(values)), kind))


def _check_kinds(what, given, kinds):
    """Raise ValueError unless a dict has for each name of ``kinds`` a value of this kind."""
    for name, kind in kinds.items():
        if name not in given:
            raise ValueError(f"its {what} has no {name}")
        found = type(given[name])
        if found is not kind and not (kind is float and found is int):
            raise ValueError(f"its {what} has a {found.__name__} as {name}, which should be a {kind.__name__}")
