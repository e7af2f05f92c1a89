"""What `train` takes, as editors and type checkers see it: the devices, every setting, and arguments of its own.

These are in the signature of `train`, too, which runs; a test holds the two against each other.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from os import PathLike
from typing import Any, ParamSpec, TypeVar

from ..cluster import Across, Cluster
from ..devices import Device
from ..monitor import Callback
from ..timing import Timeline
from .settings import Settings

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Place:
    """The first argument."""

    devices: int | str | Device | Sequence[int | str | Device] | Cluster | None = None


@dataclass(frozen=True)
class Arguments(Settings, Place):
    # no docstring: editors would show it instead of that of `train`
    batch_size: int | Settings = Settings.batch_size  # by position also all settings as one value
    _: KW_ONLY
    data: Sequence[Any] | None = None
    checkpoint: str | PathLike[str] | None = None
    checkpoint_steps: int | None = None
    keep_best: str | PathLike[str] | None = None
    resume: str | PathLike[str] | None = None
    changed: Sequence[str] = ()
    callbacks: Sequence[Callback] = ()
    timeline: Timeline | None = None
    environment: str | None = None
    num_gpus: int | None = None
    invert: bool = False
    progress: bool = True
    metrics: dict[str, Callable] | None = None
    epochs: int = Settings.num_epochs  # the other words for num_epochs and algorithm
    allreduce: str | Callable | Across = Settings.algorithm


def called_with(arguments: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Declare that a function takes the arguments with which ``arguments`` are made; it stays as it is."""
    return lambda function: function
