"""A training run's settings and results, and functions that tell whether the run still makes sense."""

import hashlib
import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np

from ..base.text import FEW, REACHED, format_seconds, listed, several
from ..networks import CROSS_ENTROPY, find_loss
from .checks import cli_name, kind_in_files, of_kind
from .settings import RECORDED

UNLEARNED_EPOCHS = 3
"""Training is given up after this many epochs in a row in which nothing was learned."""

DIVERGED_AT_FIRST, DIVERGED = 5, 1.5
"""Multiples of the loss of guessing above which training has diverged: in the first epoch, and in later ones."""

TRY = "try a smaller learning rate, or a warm-up; are the data finite, and about 0 to 1?"


@dataclass(repr=False)
class History:
    """The settings and results of a training run. Lists have an entry for each complete epoch.

    ``settings``: the run's settings by name, as `Settings.recorded` gives them; ``history.lr`` is
    ``history.settings["lr"]``. ``batch_size`` and ``lr`` are the values after any scaling. ``learning_rate``: the rate
    of the last step that was submitted, after warm-up and schedule; ``learning_rates``: the rate of each epoch's last
    step.

    ``train_loss``: the loss per example. ``train_accuracy``: the fraction of training examples whose label had the
    largest logit, measured in each step before its update, while the network was still learning; None if labels are
    not classes. ``test_accuracy`` is measured if labels are classes; otherwise it is empty and ``test_loss``, also per
    example, takes its place. ``metrics``: a list for each of your own metrics, by name.

    Seconds exclude the evaluation of the test set. ``phases``: how the seconds of all epochs divide into phases (see
    `Timeline.phases`), and under "evaluate" the seconds that the evaluation took. ``utilisation``: for each device, by
    name, the fraction of the epochs' time during which it worked on its shards.

    ``classes``: the names of the classes, or None if the data had none; ``invert``: whether pictures were inverted when
    they were read. ``processes``: how many processes the devices belong to. ``interrupted``: None or, for a run that
    was stopped, a dict of the current ``epoch`` (counted from 1), the ``steps`` done in it (all, if the stop came at
    its end), and the ``train_loss``, ``train_accuracy`` and ``test_accuracy`` (or ``test_loss``) reached.
    ``diverged``: None, or a line that says why training was given up.

    ``peak_memory``: for a run with a split, the most bytes that each device holds in a step, as `plans.prove` counts
    them; None without a split, and with CUDA graphs, which hold more.
    """

    devices: list[str]
    environment: str
    settings: dict
    classes: list[str] | None = None
    invert: bool = False
    processes: int = 1
    final_parameters_sha256: str | None = None
    train_loss: list[float] = field(default_factory=list)
    train_accuracy: list[float | None] = field(default_factory=list)
    test_accuracy: list[float] = field(default_factory=list)
    test_loss: list[float] = field(default_factory=list)
    metrics: dict[str, list[float]] = field(default_factory=dict)
    learning_rates: list[float] = field(default_factory=list)
    seconds_per_epoch: list[float] = field(default_factory=list)
    examples_per_second: float | None = None
    phases: dict = field(default_factory=dict)
    utilisation: dict = field(default_factory=dict)
    learning_rate: float | None = None
    interrupted: dict | None = None
    diverged: str | None = None
    peak_memory: list[int] | None = None

    def __getattr__(self, name) -> Any:  # Python calls it for names that are not fields
        try:
            return vars(self)["settings"][name]
        except KeyError:
            raise AttributeError(f"a history has no {name}") from None

    def as_dict(self):
        """A dict for JSON, with the settings and all other fields side by side."""
        values = asdict(self)
        return {name: values.pop(name) for name in ("devices", "environment")} | values.pop("settings") | values

    @classmethod
    def from_dict(cls, values):
        """The history from which `as_dict` made ``values``; from JSON, null in a list of floats is NaN.

        Raises ValueError for anything else.
        """
        values = of_kind("history", values, HISTORY)
        settings = {cli_name(about): values[cli_name(about)] for about in RECORDED}
        return cls(settings=settings, **{name: value for name, value in values.items() if name not in settings})

    def __repr__(self):
        done = several(len(self.train_loss), "epoch")
        return f"<History of {done} of {self.network}" + (f", {self.summary()}>" if self.train_loss else ">")

    def add_epoch(self, reached, seconds, examples):
        """Add a complete epoch of ``examples`` examples; ``reached``: its results, a dict like the one from `last`."""
        for name in REACHED.keys() & reached.keys():
            getattr(self, name).append(reached[name])
        for name, value in reached.get("metrics", {}).items():
            self.metrics[name].append(value)
        self.learning_rates.append(self.learning_rate)
        self.seconds_per_epoch.append(seconds)
        self.examples_per_second = examples * len(self.seconds_per_epoch) / sum(self.seconds_per_epoch)

    def last(self):
        """A dict of the results of the last epoch, or of those at the stop; its keys are the names of the lists."""
        if self.interrupted:
            return {name: value for name, value in self.interrupted.items() if name not in ("epoch", "steps")}
        last = {name: getattr(self, name)[-1] for name in REACHED if getattr(self, name)}
        metrics = {name: values[-1] for name, values in self.metrics.items() if values}
        return last | ({"metrics": metrics} if metrics else {})

    @property
    def best(self) -> dict | None:
        """A dict of the epoch (from 1) that did best on the test set and its results; None before the first epoch ends.

        The best epoch has the highest ``test_accuracy``, or the lowest ``test_loss``; of several equal ones, it is the
        first. An epoch whose results are not all finite is never the best; if there is no other, this is None.
        """
        reached = self.test_accuracy or [-loss for loss in self.test_loss]
        both = enumerate(zip(reached, self.train_loss, strict=False))
        number = max((i for i, each in both if np.isfinite(each).all()), key=reached.__getitem__, default=None)
        if number is None:
            return None
        return {"epoch": number + 1} | {name: getattr(self, name)[number] for name in REACHED if getattr(self, name)}

    def balance(self) -> str:
        """A line on how busy the devices were."""
        parts = list(self.utilisation.values())
        mean = sum(parts) / len(parts)
        more = max(parts) / mean - 1 if mean else 0
        worked = f"{min(parts):.0%} to {max(parts):.0%}"
        if len(parts) <= FEW:
            worked = ", ".join(f"{part:.0%}" for part in parts)
        return f"devices worked {worked} of the time" + (f", the busiest {more:.0%} more than the mean" if more else "")

    def summary(self) -> str:
        """The textbook's last line: ``test acc: 0.84, 2.2 sec/epoch on [gpu(0), gpu(1)]``.

        If there are many devices, the line gives their number and names only a few.
        """
        last = self.last()
        if "test_loss" in last:
            tested = f"test loss: {last['test_loss']:.3f}"
        else:
            tested = f"test acc: {last['test_accuracy']:.2f}"
        epochs = self.seconds_per_epoch
        speed = f"{format_seconds(sum(epochs) / len(epochs))} sec/epoch" if epochs else "no complete epoch"
        many = several(len(self.devices), "device") + " " if len(self.devices) > FEW else ""
        return f"{tested}, {speed} on {many}[{listed(self.devices)}]"


HISTORY = {about.name: kind_in_files(about) for about in fields(History) if about.name != "settings"}
HISTORY |= {cli_name(about): kind_in_files(about) for about in RECORDED}
"""The kind of each value in a file's dict from `History.as_dict`, as `of_kind` takes it."""


def why_diverged(losses, network, loss="cross_entropy"):
    """A line that says why training should be given up, or None. ``losses``: the training losses, one per epoch.

    The loss of guessing is known only for cross_entropy; with another ``loss``, training is given up only if a value is
    not finite.
    """
    losses, guessing, known = list(losses), math.inf, ""  # the loss of a network that knows nothing
    if find_loss(loss) is CROSS_ENTROPY:
        guessing = math.log(network.classes)
        known = f", where guessing gives {guessing:.3g}"
    # if the first epoch has few steps, its loss is mainly that of the initial weights
    most = DIVERGED if len(losses) > 1 else DIVERGED_AT_FIRST
    if not losses[-1] < most * guessing:  # also true for not a number
        what = f"diverged in epoch {len(losses)}"
    # with the textbook's initial weights, an epoch may pass before anything is learned
    elif len(losses) >= UNLEARNED_EPOCHS and min(losses[-UNLEARNED_EPOCHS:]) > 0.999 * guessing:
        what = f"nothing was learned in {UNLEARNED_EPOCHS} epochs"
    else:
        return None
    return f"{what}: the training loss is {losses[-1]:.3g}{known}; {TRY}"


def sha256(arrays):
    """A checksum of the arrays' values."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
