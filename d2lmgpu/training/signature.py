"""The arguments of `train` as editors and type checkers see them: devices, every setting, and all others."""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from os import PathLike
from typing import Any, ParamSpec, TypeVar

from ..cluster import Across, Cluster
from ..devices import Device
from ..monitor import Callback
from ..timing import Timeline
from .settings import NAMES, Settings, by_own_names

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Ways:
    """The arguments of `train` that are not settings; `train` describes them."""

    devices: int | str | Device | Sequence[int | str | Device] | Cluster | None = None
    _: KW_ONLY
    data: Sequence[Any] | None = None
    checkpoint: str | PathLike[str] | None = None
    checkpoint_steps: int | None = None
    keep_best: str | PathLike[str] | None = None
    resume: str | PathLike[str] | None = None
    callbacks: Sequence[Callback] = ()
    timeline: Timeline | None = None
    environment: str | None = None
    num_gpus: int | None = None
    invert: bool = False
    progress: bool = True
    metrics: dict[str, Callable] | None = None


@dataclass(frozen=True)
class Arguments(Settings, Ways):
    # no docstring here: editors would show it instead of the one of `train`
    batch_size: int | Settings = Settings.batch_size  # in this position, also all settings as one value
    _: KW_ONLY
    epochs: int = Settings.num_epochs  # other names for num_epochs and algorithm
    allreduce: str | Callable | Across = Settings.algorithm


def called_with(arguments: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Let a function of `Settings` and `Ways` be called with all ``arguments`` by name: ``function(devices, lr=0.1)``.

    The arguments may also be given in order, as in the textbook: ``function(devices, 256, 0.1)``. If a `Settings` is
    given, the named arguments replace its values. Raises TypeError for unknown arguments.
    """
    known = inspect.signature(arguments).parameters.values()
    own = [each.replace(annotation=each.empty) for each in known if NAMES.get(each.name, each.name) == each.name]
    public = inspect.Signature(own)

    def decorated(function):
        @functools.wraps(function)
        def call(*args, **named):
            settings = Settings()
            if len(args) == 2 and isinstance(args[1], Settings):
                *args, settings = args
            named = by_own_names(named, function.__name__, public.parameters)
            given = public.bind(*args, **named).arguments
            changes = {name: given.pop(name) for name in NAMES.values() if name in given}
            return function(replace(settings, **changes), Ways(**given))

        call.__signature__ = public
        return call

    return decorated
