"""What a saved run must be: whoever reads a checkpoint finds what `resume.snapshot` puts into one, or an error.

A checkpoint that is whole, with the right checksum, may still have been written by another program, or by somebody
who wants to see what happens.
"""

from dataclasses import MISSING, dataclass, field, fields

from ..arguments import is_number, shown
from ..checkpoints import CheckpointError, load_checkpoint
from ..parallel import check_loads
from .history import History
from .settings import RECORDED, called

ELEMENTS = {"devices": str, "classes": str, "loads": float, "train_loss": float, "test_accuracy": float}
ELEMENTS |= {"train_accuracy": float, "test_loss": float, "seconds_per_epoch": float}
ELEMENTS |= {"peak_memory": int}
"""What a history's lists are of."""

TOLD_BY_ALL = ("batch_size", "lr", "epochs", "seed", "allreduce", "init")
"""Settings that histories of all versions tell."""

MOST = 2**53
"""Steps and seconds, at most: whole numbers that a float can be."""


@dataclass
class Position:
    """How far a run is: complete epochs, steps done in the next, and of these steps the summed losses and seconds.

    ``correct``: for how many of their examples the largest logit was the label; None in a checkpoint of an older
    version, which did not count.
    """

    epoch: int = 0
    steps: int = 0
    losses: list = field(default_factory=lambda: [0.0])
    seconds: float = 0.0
    correct: int = 0


def load_run(path):
    """The `Checkpoint` of a training run in a file.

    Raises CheckpointError for a file that is none, damaged, or of something else; OSError if it cannot be read.
    """
    checkpoint = load_checkpoint(path)
    try:
        check_run(checkpoint.state)
        if not checkpoint.arrays.get("params"):
            raise ValueError("it has no parameters")
    except (ValueError, RecursionError) as error:  # the latter of a thousand brackets
        raise CheckpointError(f"{path} is no checkpoint of a run that this version can read: {error}") from None
    return checkpoint


def check_shapes(what, arrays, expected):
    """Raise CheckpointError unless the arrays of a checkpoint have the shapes of those ``expected``."""
    found, wanted = [array.shape for array in arrays], [array.shape for array in expected]
    if found != wanted:
        raise CheckpointError(f"the checkpoint's {what} have shapes {found}; they should have {wanted}")


def check_run(state):
    """Raise ValueError unless it is the state of a run."""
    check_kinds("state", state, {"history": dict, "position": dict, "optimizer_steps": int, "data": str})
    history, position = state["history"], state["position"]
    known = {field.name: field for field in fields(History) if field.name != "settings"}
    known |= {called(about): about for about in RECORDED}
    if set(history) - set(known):
        raise ValueError(f"its history has {', '.join(sorted(set(history) - set(known)))}, which it does not know")
    missing = {name for name, field in known.items() if name not in history or history[name] is None}
    left_out = {name for name in missing if name not in TOLD_BY_ALL and _may_be_left_out(known[name], name in history)}
    check_kinds("history", history, {name: known[name].type for name in known if name not in left_out})
    history |= History.from_dict(history).as_dict()  # what was left out is what it was before there was a choice
    for name in ELEMENTS:
        if history[name] is not None:
            uncounted = [None] if name == "train_accuracy" else []  # of older versions
            check_elements(name, [value for value in history[name] if value not in uncounted], ELEMENTS[name])
    check_kinds("position", position, {field.name: field.type for field in fields(Position) if field.name != "correct"})
    if position.setdefault("correct", None if position["steps"] else 0) is not None:
        check_kinds("position", position, {"correct": int})
    check_elements("losses", position["losses"], float)
    for number in (position["epoch"], position["steps"], position["seconds"], state["optimizer_steps"]):
        if not 0 <= number < MOST:
            raise ValueError(f"it has a number of steps, epochs or seconds that is {shown(number)}")
    if not 0 <= (position["correct"] or 0) <= position["steps"] * history["batch_size"]:
        raise ValueError(f"its position has {position['correct']} right answers after {position['steps']} steps")
    tested = "test_loss" if history["test_loss"] else "test_accuracy"
    by_epoch = "train_loss", "train_accuracy", tested, "seconds_per_epoch"
    if {len(history[name]) for name in by_epoch} != {position["epoch"]}:
        raise ValueError("its history is not of as many epochs as were trained")
    check_kinds("metrics", history["metrics"], dict.fromkeys(history["metrics"], list))
    for name, values in history["metrics"].items():
        check_elements(f"metric {name}", values, float)
        if len(values) != position["epoch"]:
            raise ValueError(f"its metric {name} is not of as many epochs as were trained")
    fingerprint = state.get("likeness", {})  # which older files lack
    check_kinds("state", {"likeness": fingerprint}, {"likeness": dict})
    for name, numbers in fingerprint.items():
        if numbers is not None:
            check_kinds("likeness", {name: numbers}, {name: list})
            check_elements(name, numbers, float)
    if history["loads"] is not None:
        check_loads(history["loads"], len(history["devices"]))


def _may_be_left_out(field, is_null):
    """Whether a field of the history may be null, or not there at all, as in files of older versions."""
    return field.default is None or (not is_null and (field.default, field.default_factory) != (MISSING, MISSING))


def check_elements(what, values, kind):
    """Raise ValueError unless all values of a list are of this kind."""
    check_kinds(what, dict(enumerate(values)), dict.fromkeys(range(len(values)), kind))


def check_kinds(what, given, kinds):
    """Raise ValueError unless a dict has for each name of ``kinds`` a value of this kind; an int is a float, too."""
    for name, kind in kinds.items():
        if name not in given:
            raise ValueError(f"its {what} has no {name}")
        found = type(given[name])
        if not is_number(given[name]) if kind is float else found is not kind:
            raise ValueError(f"its {what} has a {found.__name__} as {name}, which should be a {kind.__name__}")
