"""What `train` is given besides settings, and on which devices it trains."""

from pathlib import Path

from ..base.arguments import MOST_DEVICES, check_flag, check_list, check_path, check_whole, shown
from ..base.files import check_writable, same_file
from ..cluster import Cluster, as_cluster
from ..devices import choose_devices
from ..devices.choose import are_asked_for, kinds_of
from ..devices.timeline import Timeline
from .metrics import check_metrics
from .monitor import Callback


def check_options(options):
    """Put the arguments of `train` other than settings and devices into plain form, in place.

    Raises ValueError unless `train` can use them; ``data`` are checked elsewhere.
    """
    options.metrics = check_metrics(options.metrics)
    options.progress, options.invert = check_flag("progress", options.progress), check_flag("invert", options.invert)
    options.callbacks = check_list("callbacks", options.callbacks, of="monitor.Callback objects", one=Callback)
    for callback in options.callbacks:
        if not isinstance(callback, Callback):
            raise ValueError(f"callbacks: {shown(callback)} is not a Callback; derive its class from d2lmgpu.Callback")
    if options.timeline is not None and not isinstance(options.timeline, Timeline):
        raise ValueError(f"timeline is {shown(options.timeline)}; it should be a timing.Timeline")
    for name in ("checkpoint", "keep_best", "resume"):
        if getattr(options, name) is not None:
            check_path(name, getattr(options, name))
    if options.checkpoint_steps is not None:
        steps = options.checkpoint_steps = check_whole("checkpoint_steps", options.checkpoint_steps)
        if options.checkpoint is None:
            raise ValueError(f"checkpoint_steps is {steps}, which needs a file; give checkpoint, too")


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
        for name, other in (("checkpoint", checkpoint), ("resume", resume)):
            if other is not None and same_file(keep_best, other):
                raise ValueError(f"keep_best {keep_best} would be written over {name} {other}; give another name")
        check_writable(keep_best)
        if Path(keep_best).exists() and resume is None:
            raise ValueError(f"keep_best {keep_best} exists, and may hold another run's model; give another name")
