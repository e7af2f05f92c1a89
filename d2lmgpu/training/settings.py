"""All settings of a training run, each declared in one place: its default, its allowed values, and a line of help.

The fields of `Settings` define the arguments of `train`, the options of the command line, what a sweep can vary, what
a history and a checkpoint record, what must match when a run is resumed, and the table in the documents. To add a
setting, declare it here and in `train`'s signature, and use it where it matters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from os import PathLike
from typing import Any

from ..base.arguments import MAX_SEED, check_arguments, check_name, shown
from ..base.text import name_of
from ..cluster import Across, as_cluster
from ..collectives import TRAINING_NAMES, check_algorithm
from ..data.images import TRANSFORMS, find_transform
from ..layers.exact import SUMS
from ..networks import INITS, LOSSES, NETWORKS, Network, check_width, find_loss
from ..networks.optimizers import OPTIMIZERS, SCHEDULES, learning_rates
from ..parallel import check_loads
from ..parallel.computation import BATCH_STATISTICS, PRECISIONS
from ..plans.plan import MAX_MICRO_BATCHES, Plan
from .checks import as_init, check_init, check_precision, cli_name, find_network, flag, meaning, number, setting, whole
from .splits import EXAMPLE, PIPELINES, SPLITS, USUAL_PIPELINE, check_number_of_devices, check_split, check_together

MAX_EPOCHS = 10**6
"""Larger than any sensible value, but within what the progress bar can show."""


def _check_loads(name, loads):
    if isinstance(loads, list) and loads:
        check_loads(loads, len(loads))
    elif loads is not None and not (isinstance(loads, str) and loads == "auto"):
        raise ValueError(f"{name} are {shown(loads)}; give a number for each device, such as [1, 1, 0.5], or 'auto'")


def _check_algorithm(name, algorithm):
    if not (isinstance(algorithm, str) and algorithm == "mpi"):  # `Cluster.across` checks it
        check_algorithm(algorithm, training=True)


@dataclass(frozen=True)
class Settings:
    """All the settings of a training run, apart from its data and its devices; for example ``Settings(lr=0.1)``.

    You can print and compare settings, and copy them with changes using `dataclasses.replace`. NumPy numbers become
    Python numbers. The fields are described below.

    Raises ValueError for settings that make no sense on any devices, TypeError for unknown names.
    """

    batch_size: int = whole(256, "examples in a minibatch, all devices together", same=True)
    lr: float = number(0.2, "learning rate, applied to the mean gradient of a minibatch", above=True, same=True)
    num_epochs: int = whole(10, "passes over the training set", most=MAX_EPOCHS, called="epochs")
    algorithm: str | Callable | Across = setting(
        "ring",
        "allreduce that sums gradients over the devices (in a program, also a function of k and n)",
        (*TRAINING_NAMES, "mpi"),
        _check_algorithm,
        called="allreduce",
    )
    seed: int = whole(
        0,
        "seed of initial weights and shuffling; the same seed and number of devices give the same history, bit for bit",
        least=0,
        most=MAX_SEED,
        same=True,
    )
    init: str | PathLike | Sequence | object = setting(
        "normal",
        "initial weights, by name (normal: the textbook's) or from a model's file (in a program, also from a model or "
        "parameters)",
        tuple(INITS),
        check_init,
        read=as_init,
    )
    network: str | Network = setting(
        "lenet",
        "the network to train (in a program, also a network made by networks.sequential)",
        tuple(NETWORKS),
        lambda _, network: find_network(network),
        same=True,
    )
    width: float = setting(
        1,
        "factor that multiplies the channels of all hidden layers, for a network given by name",
        "at least 0.05",
        lambda _, width: check_width(width),
        same=True,
    )
    loss: str | tuple[Callable, Callable] = setting(
        "cross_entropy",
        "the loss to minimise (in a program, also a pair of functions (forward, grad): see networks.losses)",
        tuple(LOSSES),
        lambda _, loss: find_loss(loss),
        same=True,
    )
    optimizer: str = setting("sgd", "how parameters are updated", tuple(OPTIMIZERS), same=True)
    weight_decay: float = number(
        0, "fraction of each parameter that is added to its gradient (L2 regularisation)", same=True
    )
    loads: list[float] | Sequence[float] | str | None = setting(
        None,
        "each device's share of every minibatch, in any unit (0: idle); auto measures the devices' speeds",
        "numbers, such as 1,1,0.5, or auto",
        _check_loads,
    )
    batch_statistics: str = setting(
        "local", "the images of which batch norm's running statistics are", BATCH_STATISTICS, same=True
    )
    scale_batch: bool = flag("multiply batch size and learning rate by the number of devices", recorded=False)
    preprocess: str | Callable | None = setting(
        None,
        "random changes to each training minibatch (in a program, also a function (X, y, rng) → (X, y))",
        (*TRANSFORMS, "+".join(TRANSFORMS)),
        lambda _, preprocess: find_transform(preprocess),
        same=True,
    )
    drop_last: bool = flag("leave out the last, smaller minibatch of each epoch", same=True)
    warmup: float = number(0, "epochs, fewer than all, over which the learning rate rises to its value", same=True)
    schedule: str | Callable = setting(
        "constant",
        "the learning rate after the warm-up (in a program, also a function: see schedules.learning_rates)",
        tuple(SCHEDULES),
        lambda *_: None,  # `learning_rates` checks it, together with the others
        same=True,
    )
    flat: bool = flag(
        "exchange all gradients as one message", without="exchange each parameter's gradient on its own", recorded=False
    )
    overlap: bool = flag("exchange gradients in buckets while others are still being computed", recorded=False)
    prefetch: bool = flag(
        "prepare the next minibatch while the devices compute",
        without="prepare each minibatch only when it is needed",
        recorded=False,
    )
    graphs: bool = flag(
        "on GPUs, launch each step as a CUDA graph where possible",
        without="on GPUs, launch kernels one by one",
        recorded=False,
    )
    precision: str = setting(
        "float32", "the precision of factors in products: mixed rounds them to float16", tuple(PRECISIONS), same=True
    )
    sums: str = setting(
        "float",
        "how gradients and all other sums over examples are added: exact gives the same bits on any devices",
        tuple(SUMS),
        same=True,
    )
    split: str | Plan | None = setting(
        None,
        "which part of a step each device does: the name of a plan, or a product of two; in a program, also your own "
        "plan (by default, data parallelism)",
        (*SPLITS, EXAMPLE),
        check_split,
    )
    pipeline: str | None = setting(
        None,
        f"for a split over layers, the order of micro-batches (by default {USUAL_PIPELINE} if there are several)",
        PIPELINES,
        lambda name, pipeline: pipeline is None or check_name(name, pipeline, PIPELINES),
    )
    micro_batches: int = whole(
        1,
        "parts of a minibatch that a split computes one after another (per device, unless it splits layers)",
        most=MAX_MICRO_BATCHES,
    )

    def __post_init__(self):
        for about in fields(self):
            value = about.metadata["read"](getattr(self, about.name))
            about.metadata["check"](cli_name(about), value)
            object.__setattr__(self, about.name, bool(value) if about.type is bool else value)
        self.learning_rates(0, 1)  # raises now instead of later
        check_together(self)

    @classmethod
    def of(cls, given):
        """The settings among the arguments of `train`, a dict: beside a `Settings`, only what is not `Usual` counts."""
        settings = given["batch_size"]
        if isinstance(settings, cls):
            given = given | {"batch_size": settings.batch_size}
        else:
            settings = cls()
        return replace(settings, **{name: given[name] for name in _NAMES if not isinstance(given[name], Usual)})

    def learning_rates(self, epoch, steps):
        """The learning rate of each of the ``steps`` of an ``epoch``: see `schedules.learning_rates`."""
        return learning_rates(self.lr, epoch, steps, self.num_epochs, self.warmup, self.schedule)

    def on(self, devices):
        """These settings, adapted to ``devices``: one load per device, and batch size and rate scaled if requested.

        Raises ValueError if loads or a split are meant for another number of devices, and for settings that several
        processes cannot use; DeviceError if a device does not support the precision, or if the processes cannot
        exchange gradients.
        """
        group = as_cluster(devices)
        group.across(self.algorithm)
        if group.size > 1 and self.loads == "auto":
            raise ValueError("loads 'auto' are measured in one process; give numbers, one for each device")
        check_precision(self.precision, group.mine)
        changes, k = {}, len(group)
        check_number_of_devices(self.split, k)
        if isinstance(self.loads, list):
            changes["loads"] = check_loads(self.loads, k).tolist()
        if self.scale_batch:
            changes |= {"batch_size": self.batch_size * k, "lr": self.lr * k, "scale_batch": False}
        return replace(self, **changes)

    def recorded(self, which=None):
        """A dict of the settings as a history records them, under the history's names; objects are recorded by name.

        ``which``: the fields to record, by default those of a history.
        """
        return {cli_name(about): _recorded(about.name, getattr(self, about.name)) for about in which or RECORDED}


if Settings.__doc__:  # there is none with -OO
    Settings.__doc__ += "".join(f"\n    {one.name} = {one.default!r}: {meaning(one)}" for one in fields(Settings))


_NAMES = tuple(about.name for about in fields(Settings))
_set_fields = Settings.__init__


@wraps(_set_fields)
def _init(self, *args, **named):
    check_arguments("Settings", named, _NAMES)  # which suggests names that are similar, or the same elsewhere
    _set_fields(self, *args, **named)


Settings.__init__ = _init


RECORDED = tuple(about for about in fields(Settings) if about.metadata["recorded"])
SAME = tuple(cli_name(about) for about in RECORDED if about.metadata["same"])
"""The settings that a history records, and those that must match in a resumed run; devices, loads, … may change."""


def _recorded(name, value):
    if name == "init":
        return value if isinstance(value, str) and value in INITS else "given"
    if name == "loss":
        return find_loss(value).name
    if isinstance(value, Network) or (name == "schedule" and callable(value)):
        return "custom"
    return name_of(value) if callable(value) else getattr(value, "name", value)  # the name of a `Plan`


class Usual:
    """Stands for a default in the signature of `train`, and prints like it: so `train` knows what it was given."""

    def __init__(self, default):
        self.default = default

    def __repr__(self):
        return repr(self.default)


USUAL: dict[str, Any] = {about.name: Usual(about.default) for about in fields(Settings)}
"""By a setting's name what stands for its default; for type checkers, it is of any type."""
