"""What a setting may be: how a field of `Settings` is declared, and checks of values and data before the work begins.

A field knows its default, its allowed values and a line of help for the command line and the documents, and how its
value is read from files.
"""

import math
import os
from dataclasses import field
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import get_args, get_origin

import numpy as np

from ..base.arguments import MAX_WHOLE, check_flag, check_name, check_number, check_whole, is_number, plain, shown
from ..devices import DeviceError
from ..kernels.cuda import TENSOR_CORES
from ..networks import CROSS_ENTROPY, FASHION_MNIST, INITS, NETWORKS, Network, channels, known_network
from ..networks.checks import check_images, check_network, check_trainable
from ..parallel.computation import PRECISIONS

SUM_TOLERANCE = 1e-3
"""How much the sum of an image's soft labels may differ from 1."""


def find_network(network, classes=None, input_shape=FASHION_MNIST, outputs=10, width=1, batch_statistics="local"):
    """The name and the layers of a network, given one of them; ``classes``: class names, if not Fashion-MNIST's.

    A network given by name takes images of ``input_shape`` and has ``width`` times its usual channels. If no class
    names are given, it has ``outputs`` outputs.

    Raises ValueError for an unknown name, a network without parameters, a wrong number of classes, a width that is not
    allowed, or exchanged batch statistics in a network without batch norm.
    """
    if classes is not None and len(set(classes)) < max(2, len(classes)):
        raise ValueError(f"classes are {', '.join(map(str, classes))}; give at least two, with different names")
    if isinstance(network, Network):
        check_trainable(network)
        if width != 1:
            raise ValueError(f"width is {shown(width)}, but the network is your own; leave the width at 1")
        if classes is not None and len(classes) != network.classes:
            raise ValueError(f"the network has {network.classes} classes and the data {len(classes)}")
        name = "custom"
    else:
        check_name("network", network, NETWORKS, also=", or give what networks.sequential makes")
        outputs = outputs if classes is None else len(classes)
        name, is_usual = network, (outputs, input_shape, width) == (10, FASHION_MNIST, 1)
        network = NETWORKS[name] if is_usual else known_network(name, outputs, input_shape, width)
    if batch_statistics != "local" and not channels(network):
        raise ValueError(
            f"batch_statistics is {batch_statistics!r}, but network {name!r} has no batch norm; leave it out, or train "
            "another, such as lenet-bn"
        )
    return name, network


class FixedParameters(tuple):
    """Parameters to start from. As the value of a setting, they equal only themselves and print as a short text."""

    __eq__, __hash__ = object.__eq__, object.__hash__

    def __repr__(self):
        return f"<{len(self)} arrays>"


def as_init(init):
    """The value of the setting ``init``: a name or file as text, a `Model`, or `FixedParameters`."""
    if isinstance(init, os.PathLike):
        return os.fspath(init)
    model = getattr(init, "model", init)
    return FixedParameters(model) if type(model) in (list, tuple) else plain(model)  # both are tuples


def check_init(name, init):
    """Raise ValueError unless training can start from ``init``; `options.first_params` compares it with the network."""
    if isinstance(init, str):
        if init not in INITS and not Path(init).is_file():
            check_name(name, init, INITS, also=", or give a model or its file (there is none of this name)")
    elif not isinstance(init, FixedParameters) and not hasattr(init, "params"):
        raise ValueError(
            f"{name} is {shown(init)}; choose from {', '.join(INITS)}, or give parameters as from init_params, a "
            "Model, a Result of train, or the name of a model's file"
        )


def shape_of_images(X):
    """The shape (C, H, W) for which a network given by name is made: that of the images, if ``X`` holds images."""
    return tuple(X.shape[1:]) if getattr(X, "ndim", 0) == 4 else FASHION_MNIST


def classes_of(data):
    """The names of the classes of a data set, or None if it has none."""
    return data[4] if len(data) > 4 else None


def number_of_outputs(y, usual=10):
    """The number of outputs if there are no class names: K for targets (N, K), otherwise the ``usual`` number."""
    return y.shape[1] if y.ndim == 2 and y.dtype.kind == "f" else usual


def network_for(data, network, width=1, loss=CROSS_ENTROPY, batch_statistics="local"):
    """Call `find_network` for a data set (the parts that `check_parts` returns), and check that everything fits."""
    about = classes_of(data), shape_of_images(data[0]), number_of_outputs(data[1])
    name, network = find_network(network, *about, width, batch_statistics)
    for X, y in zip(data[:4:2], data[1:4:2], strict=False):
        check_data(X, y, network, loss)
    return name, network


def check_data(X, y, network, loss):
    """Raise ValueError unless each image fits the network and has a label, or a target that the `Loss` accepts.

    A GPU would accept wrong labels silently.
    """
    check_image_data(X, network)
    if len(X) == 0:
        raise ValueError("0 images; there should be at least one")
    loss.check(y, len(X), network.classes)
    if loss is CROSS_ENTROPY and getattr(y, "ndim", 1) == 2:
        sums = np.asarray(y).sum(axis=1)
        if np.asarray(y).min() < 0 or np.abs(sums - 1).max() > SUM_TOLERANCE:
            raise ValueError(
                f"labels of shape {y.shape}: the least is {y.min():.3g}, with sums from {sums.min():.3g} to "
                f"{sums.max():.3g}; for cross_entropy they should be probabilities, with sum 1 for each image"
            )


def check_image_data(X, network):
    """Raise ValueError unless images have the network's input shape and are uint8, or float32 like the parameters."""
    check_network(network)
    check_images("images", X, (), network)
    if X.dtype not in (np.uint8, np.float32):
        advice = "; give X.astype(np.float32)" if X.dtype.kind == "f" else ""
        raise ValueError(f"images of type {X.dtype}; they should be uint8, 0 to 255, or float32, 0 to 1{advice}")


def check_precision(precision, devices):
    """Raise ValueError for an unknown precision, and DeviceError if ``devices`` do not support it."""
    check_name("precision", precision, PRECISIONS)
    for device in devices if precision == "mixed" else ():
        if device.kind == "gpu" and device.compute_capability < TENSOR_CORES:
            raise DeviceError(
                f"precision {precision!r} needs compute capability {TENSOR_CORES / 10}; {device} has "
                f"{device.compute_capability / 10}"
            )


MAX_NUMBER = 1e6
"""Larger than any sensible value, but in the range of float32 even when multiplied by the number of devices."""


def setting(default, help, allowed, check=None, called=None, same=False, recorded=True, **others):
    """A field of `Settings`.

    ``allowed``: a tuple of the names that are allowed, or a description of the allowed values. ``check(name, value)``
    raises ValueError for a value that is not allowed; it is needed unless only these names are allowed. ``called``: the
    field's name on the command line and in a history, if it is different there. ``same``: whether a resumed run must
    have the same value. ``recorded``: whether a history records the field; False if it only changes how the same result
    is computed. ``without``: see `flag`. ``read(value)`` returns the value to be stored.
    """
    check = check or partial(check_name, known=allowed)
    about = {"help": help, "allowed": allowed, "check": check, "called": called, "same": same}
    return field(default=default, metadata=about | {"recorded": recorded, "without": None, "read": plain} | others)


def flag(help, without=None, **about):
    """A field that is True or False; its default is True if ``without`` describes what happens when it is False."""
    return setting(without is not None, help, "True or False", check_flag, without=without, **about)


def whole(default, help, least=1, most=MAX_WHOLE, **about):
    """A field for a whole number from ``least`` to ``most``."""
    return setting(default, help, f"at least {least}", partial(check_whole, least=least, most=most), **about)


def number(default, help, above=False, **about):
    """A field for a number that is at least 0 or, with ``above``, more than 0."""
    limit, allowed = ("above", "above 0") if above else ("least", "at least 0")
    return setting(default, help, allowed, partial(check_number, **{limit: 0}, most=MAX_NUMBER), **about)


def cli_name(about):
    """The name of a field of `Settings` on the command line (with dashes) and in a history."""
    return about.metadata["called"] or about.name


def kind_of(about):
    """The type of a field's value in commands and files: the first of the types that it may have in a program."""
    return get_args(about.type)[0] if isinstance(about.type, UnionType) else about.type


def kind_in_files(about):
    """The kind (see `of_kind`) of a dataclass's field in files, including None if that is allowed."""
    return kind_of(about) | None if NoneType in get_args(about.type) else kind_of(about)


def of_kind(what, value, kind):
    """A ``value`` from JSON as this ``kind``: NaN for null where a float should be, as JSON has no such numbers.

    A kind is a type (a whole number also counts as float), list[kind of all elements], dict[str, kind of all values],
    {name: kind} with at least these names, of which others are left out, or kind | None for a value that may be null.
    Raises ValueError for another value.
    """
    if isinstance(kind, UnionType):
        return None if value is None else of_kind(what, value, get_args(kind)[0])
    if kind is float and value is None:
        return math.nan
    wanted, parts = dict if isinstance(kind, dict) else get_origin(kind) or kind, get_args(kind)
    if not (is_number(value) if wanted is float else type(value) is wanted):
        raise ValueError(f"its {what} is a {type(value).__name__}, which should be a {wanted.__name__}")
    if isinstance(kind, dict):
        if missing := sorted(set(kind) - set(value)):
            raise ValueError(f"its {what} has no {', '.join(missing)}")
        return {name: of_kind(name, part, kind[name]) for name, part in value.items() if name in kind}
    if wanted is list:
        return [of_kind(f"element of {what}", element, *parts) for element in value]
    return {name: of_kind(name, part, parts[1]) for name, part in value.items()} if parts else value


def meaning(about):
    """What a field of `Settings` means, and its allowed values unless it is a flag."""
    help, allowed = about.metadata["help"], about.metadata["allowed"]
    return help if about.type is bool else f"{help}: {', '.join(allowed) if isinstance(allowed, tuple) else allowed}"
