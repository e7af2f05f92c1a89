"""What `train` is given besides settings, and on which devices it trains."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any

from ..arguments import check_flag, check_list, check_path, check_whole, shown
from ..cluster import Cluster, as_cluster
from ..devices import MOST_DEVICES, choose_devices
from ..devices.choose import are_asked_for, kinds_of
from ..monitor import Callback
from ..output import check_apart, check_writable, same_file
from ..timing import Timeline


@dataclass
class Options:
    """The arguments of `train` that are neither settings nor devices, in plain form; `train` describes them.

    Raises ValueError unless `train` can use them; ``data`` and ``metrics`` are checked elsewhere.
    """

    data: Sequence[Any] | None
    checkpoint: str | PathLike[str] | None
    checkpoint_steps: int | None
    keep_best: str | PathLike[str] | None
    resume: str | PathLike[str] | None
    callbacks: list[Callback]
    timeline: Timeline | None
    invert: bool
    progress: bool
    metrics: dict[str, Callable] | None

    @classmethod
    def of(cls, given):
        """The options among the arguments of `train`, a dict."""
        return cls(**{about.name: given[about.name] for about in fields(cls)})

    def __post_init__(self):
        self.progress, self.invert = check_flag("progress", self.progress), check_flag("invert", self.invert)
        self.callbacks = check_list("callbacks", self.callbacks, of="monitor.Callback objects", one=Callback)
        for callback in self.callbacks:
            if not isinstance(callback, Callback):
                raise ValueError(
                    f"callbacks: {shown(callback)} is not a Callback; derive its class from d2lmgpu.Callback"
                )
        if self.timeline is not None and not isinstance(self.timeline, Timeline):
            raise ValueError(f"timeline is {shown(self.timeline)}; it should be a timing.Timeline")
        for name in ("checkpoint", "keep_best", "resume"):
            if getattr(self, name) is not None:
                check_path(name, getattr(self, name))
        if self.checkpoint_steps is not None:
            self.checkpoint_steps = check_whole("checkpoint_steps", self.checkpoint_steps)
            if self.checkpoint is None:
                raise ValueError(
                    f"checkpoint_steps is {self.checkpoint_steps}, which needs a file; give checkpoint, too"
                )


def find_everybody(devices, environment, num_gpus):
    """The `Cluster` to train on and its environment's name, from the arguments of `train`.

    Raises ValueError for arguments that do not fit together, and whatever `choose_devices` raises.
    """
    if num_gpus is not None:
        if devices is not None:
            raise ValueError("num_gpus and devices are both given; give one of them")
        devices = check_whole("num_gpus", num_gpus, least=0, most=MOST_DEVICES) or "cpu:0"
    if environment is not None and (devices is None or are_asked_for(devices)):
        environment, devices = choose_devices(environment, devices)
    everybody = as_cluster(devices)
    kinds = kinds_of(everybody.mine)
    known = ["auto", kinds] + ["multi-gpu"] * (kinds == "gpu") + ["parallel"] * isinstance(devices, Cluster)
    if environment is not None and not (isinstance(environment, str) and environment in known):
        raise ValueError(f"environment is {shown(environment)}, but devices are given: {shown(devices)}; leave one out")
    return everybody, kinds if environment in (None, "auto") else environment


def check_files(options):
    """Raise now any error that these files would cause later. The files of other runs are never overwritten."""
    checkpoint, keep_best, resume = options.checkpoint, options.keep_best, options.resume
    if checkpoint is not None:
        check_writable(checkpoint)
        if Path(checkpoint).exists() and not (resume and same_file(checkpoint, resume)):
            raise ValueError(f"checkpoint {checkpoint} exists; resume from it, give another name, or remove it")
    if keep_best is not None:
        check_apart({"keep_best": keep_best}, {"checkpoint": checkpoint, "resume": resume})
        check_writable(keep_best)
        if Path(keep_best).exists() and resume is None:
            raise ValueError(f"keep_best {keep_best} exists, and may hold another run's model; give another name")
