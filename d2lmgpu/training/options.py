"""What `train` is given besides settings, and on which devices it trains."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from ..base.arguments import MAX_DEVICES, check_flag, check_list, check_path, check_whole, shown
from ..base.files import check_writable, same_file
from ..cluster import Cluster, as_cluster
from ..devices import choose_devices, to_host
from ..devices.choose import are_asked_for, kinds_of
from ..devices.timeline import Timeline
from ..networks import INITS, NETWORKS, described, init_params
from ..networks.checks import check_params
from .checks import FixedParameters, classes_of, find_network, number_of_outputs, shape_of_images
from .evaluation import check_metrics
from .model import Model, load_model
from .monitor import Callback
from .settings import Settings


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
        raise ValueError(f"timeline is {shown(options.timeline)}; it should be a devices.timeline.Timeline")
    for name in ("checkpoint", "keep_best", "resume"):
        if getattr(options, name) is not None:
            check_path(name, getattr(options, name))
    if options.checkpoint_steps is not None:
        steps = options.checkpoint_steps = check_whole("checkpoint_steps", options.checkpoint_steps)
        if options.checkpoint is None:
            raise ValueError(f"checkpoint_steps is {steps}, which needs a file; give checkpoint, too")


def find_group(devices, environment, num_gpus):
    """The `Cluster` to train on and its environment's name, from the arguments of `train`.

    Raises ValueError for arguments that do not fit together, and whatever `choose_devices` raises.
    """
    if num_gpus is not None:
        if devices is not None:
            raise ValueError("num_gpus and devices are both given; give one of them")
        devices = check_whole("num_gpus", num_gpus, least=0, most=MAX_DEVICES) or "cpu:0"
    if environment is not None and (devices is None or are_asked_for(devices)):
        environment, devices = choose_devices(environment, devices)
    group = as_cluster(devices)
    kinds = kinds_of(group.mine)
    known = ["auto", kinds] + ["multi-gpu"] * (kinds == "gpu") + ["parallel"] * isinstance(devices, Cluster)
    if environment is not None and not (isinstance(environment, str) and environment in known):
        raise ValueError(f"environment is {shown(environment)}, but devices are given: {shown(devices)}; leave one out")
    return group, kinds if environment in (None, "auto") else environment


def check_files_of_run(options):
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


# What training starts from, set by ``train(init=…)``: parameters drawn at random, or given ones.
#
#     train(init="he")                                # drawn at random, see networks.init_params
#     train(init=params, network="cnn")               # arrays, from init_params or an earlier run
#     train(init=model), train(init="fashion.model")  # a Model, a Result, or a file: the network is the model's
#     train(init=model, data=pets)                    # another number of classes: a new last layer
#
# Only parameters and batch norm's running statistics are used, and the optimiser starts from scratch. To continue a run
# that was interrupted, use ``resume`` instead.


def start_from(settings, data):
    """What a run on a data set starts from: a `Model`, a list of arrays, or None if parameters are drawn at random.

    The function also returns a line for the user, or None, and the settings. A given model's network is trained, unless
    the settings name a network other than LeNet; if the data have another number of classes, the last layer starts from
    scratch. Raises the errors of `load_model`.
    """
    given, note, classes = settings.init, None, classes_of(data)
    if isinstance(given, str):
        given = None if given in INITS else load_model(given)
    if not isinstance(given, Model):
        return given, note, settings
    own = given.network.classes
    wanted = len(classes) if classes else number_of_outputs(data[1], own)
    if wanted != own:
        note = f"init: the model has {own} classes and the data {wanted}: its last layer begins anew"
        given = given.with_classes(wanted, seed=settings.seed)
    if settings.network == Settings.network and settings.width == 1:
        about = classes, shape_of_images(data[0]), wanted
        same = (name for name in NETWORKS if is_known(given.network, name, *about))
        settings = replace(settings, network=next(same, given.network))
    return given, note, settings


def is_known(network, name, *about):
    """Whether ``name`` is this network's name. ``about``: classes, input shape and outputs, as in `find_network`."""
    try:
        return described(find_network(name, *about)[1]) == described(network)
    except ValueError:  # there is no such network for these images
        return False


def first_params(given, network, settings):
    """The ``given`` or random parameters, as float32 NumPy arrays. Raises ValueError if given ones do not fit."""
    if given is None:
        return init_params(settings.seed, init=settings.init, network=network)
    params = given.params if isinstance(given, Model) else given
    check_params("init", FixedParameters(params), network)
    return [np.array(to_host(param), np.float32) for param in params]
