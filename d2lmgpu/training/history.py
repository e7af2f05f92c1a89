"""What a training run was, how it went, and whether it still makes sense."""

import hashlib
import math
from dataclasses import asdict, dataclass, field

import numpy as np

from ..arguments import as_array, check_list, shown
from ..networks import check_network
from ..words import FEW, listed, seconds, several
from .settings import RECORDED, called

HOPE = 3
"""Epochs in a row after which training that has learned nothing is given up."""

FIRST, ROUGH = 5, 1.5
"""Times the loss of one who guesses: above it training has diverged, in the first epoch and later."""


@dataclass(repr=False)
class History:
    """What a training run was and how it went. Lists have an entry for each complete epoch.

    ``settings``: those of the run by name, as `Settings.recorded` gives them; ``history.lr`` is
    ``history.settings["lr"]``.     ``train_loss`` is per example, seconds exclude the evaluation. ``phases``: in all
    seconds of the run's epochs (see `Timeline.phases`), and after them those in which the
    test set was evaluated, "evaluate". ``batch_size`` and ``lr`` are those of a step, after scaling.
    ``classes`` are the names of the
    classes or None where the data came without, ``invert`` whether pictures were
    inverted when they were read. ``interrupted`` is None, or for a
    run that was stopped a dict of ``epoch`` (the one it was in, from 1), ``steps``
    done in it (all, if the stop came at its end), and the ``train_loss`` and
    ``test_accuracy`` reached. ``utilisation``: of each device, by name, the part of
    the epochs' time for which it worked on its shards. ``diverged`` is None, or says in a line why
    training was given up.
    """

    devices: list
    environment: str
    settings: dict
    classes: list = None
    invert: bool = False
    final_parameters_sha256: str = None
    train_loss: list = field(default_factory=list)
    test_accuracy: list = field(default_factory=list)
    seconds_per_epoch: list = field(default_factory=list)
    examples_per_second: float = None
    phases: dict = field(default_factory=dict)
    utilisation: dict = field(default_factory=dict)
    interrupted: dict = None
    diverged: str = None

    def __getattr__(self, name):  # which Python calls for what is no field
        try:
            return vars(self)["settings"][name]
        except KeyError:
            raise AttributeError(f"a history has no {name}") from None

    def as_dict(self):
        """As JSON has it: settings beside everything else."""
        values = asdict(self)
        return {name: values.pop(name) for name in ("devices", "environment")} | values.pop("settings") | values

    @classmethod
    def from_dict(cls, values):
        """What `as_dict` gave, maybe in an older version: what was no setting then is as it was."""
        settings = {called(about): values.get(called(about), about.default) for about in RECORDED}
        return cls(settings=settings, **{name: value for name, value in values.items() if name not in settings})

    def __repr__(self):
        done = several(len(self.train_loss), "epoch")
        return f"<History of {done} of {self.network}" + (f", {self.summary()}>" if self.test_accuracy else ">")

    def add_epoch(self, loss, accuracy, seconds, examples):
        """Enter a complete epoch of ``examples`` examples."""
        self.train_loss.append(loss)
        self.test_accuracy.append(accuracy)
        self.seconds_per_epoch.append(seconds)
        self.examples_per_second = examples * len(self.seconds_per_epoch) / sum(self.seconds_per_epoch)

    def balance(self):
        """A line on how busy the devices were."""
        parts = list(self.utilisation.values())
        mean = sum(parts) / len(parts)
        more = max(parts) / mean - 1 if mean else 0
        worked = f"{min(parts):.0%} to {max(parts):.0%}"
        if len(parts) <= FEW:
            worked = ", ".join(f"{part:.0%}" for part in parts)
        return f"devices worked {worked} of the time" + (f", the busiest {more:.0%} more than the mean" if more else "")

    def summary(self):
        """The textbook's last line: ``test acc: 0.84, 2.2 sec/epoch on [gpu(0), gpu(1)]``.

        Of many devices it names a few, and says how many they are.
        """
        accuracy = self.interrupted["test_accuracy"] if self.interrupted else self.test_accuracy[-1]
        epochs = self.seconds_per_epoch
        speed = f"{seconds(sum(epochs) / len(epochs))} sec/epoch" if epochs else "no complete epoch"
        many = several(len(self.devices), "device") + " " if len(self.devices) > FEW else ""
        return f"test acc: {accuracy:.2f}, {speed} on {many}[{listed(self.devices)}]"


class Result(tuple):
    """What `train` returns: ``history, params = train(...)``, the parameters as NumPy arrays.

    ``result.model`` is the trained `Model`, which has all that prediction needs; ``result.network``
    and ``result.statistics``, batch norm's running means and variances, are its parts. Printed, it is a line.
    """

    def __new__(cls, history, model):
        result = super().__new__(cls, (history, model.params))
        result.history, result.model = history, model
        result.params, result.statistics, result.network = model.params, model.statistics, model.network
        return result

    def __repr__(self):
        return f"<Result: {self.history!r}, {several(sum(param.size for param in self.params), 'parameter')}>"


def why_diverged(losses, network):
    """A line that says so if training losses, one an epoch, show that nothing will be learned any more; else None.

    Raises ValueError without losses, or for what is no network.
    """
    losses = check_list("losses", losses, of="numbers")
    if not losses or not all(isinstance(loss, (int, float)) for loss in losses):
        raise ValueError(f"losses are {shown(losses)}; give the training losses so far, at least one")
    check_network(network)
    guessing = math.log(network.classes)  # the loss of one who knows nothing
    advice = f"where guessing gives {guessing:.3g}; try a smaller learning rate, or a warm-up"
    most = ROUGH if len(losses) > 1 else FIRST  # a first epoch of few steps has the loss of the initial weights
    if not losses[-1] < most * guessing:  # or not a number
        return f"diverged in epoch {len(losses)}: the training loss is {losses[-1]:.3g}, {advice}"
    if len(losses) >= HOPE and min(losses[-HOPE:]) > 0.999 * guessing:  # the textbook's weights may take one epoch
        return f"nothing was learned in {HOPE} epochs: the training loss is {losses[-1]:.3g}, {advice}"
    return None


def why_slow(history, network):
    """A line on what to do if nothing was learned in the first epoch because of the initial weights; else None."""
    guessing = math.log(network.classes)
    if history.init != "normal" or len(history.train_loss) != 1:
        return None
    if not 0.99 * guessing < history.train_loss[0] < 1.01 * guessing:
        return None
    return (
        "nothing is learned yet: with the textbook's small initial weights that may take an epoch or two; "
        'with --init he (init="he") learning begins at once'
    )


def sha256(arrays):
    """A checksum of the arrays' values. Raises ValueError for what is no list of arrays."""
    arrays = [as_array("sha256: an array", array) for array in check_list("sha256: arrays", arrays, of="arrays")]
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
