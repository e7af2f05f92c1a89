"""What commands work on: devices, Fashion-MNIST or pictures in folders, and users' own Python files.

A file for ``--network FILE.py`` defines ``network(input_shape, classes)``, and one for ``--metrics FILE.py`` defines
``metrics = {"top 3": function, ...}``.
"""

import argparse
import re
import runpy
import sys
from pathlib import Path

from ..base.arguments import shown
from ..base.files import target
from ..base.text import legible, one_line
from ..collectives.benchmark import parse_size
from ..data.fashion_mnist import CLASSES, load_fashion_mnist
from ..data.images import image_shape, load_image_data
from ..data.minibatches import first_examples
from ..devices import ENVIRONMENTS, choose_devices
from ..networks import FASHION_MNIST
from ..networks.checks import check_network
from ..training.evaluation import check_metrics
from .options import add_input, add_option


def add_devices(command, default, environments=ENVIRONMENTS):
    """Add --environment, --devices and --memory-limit; ``default`` is the default of --devices that the help states."""
    add_option(command, "--environment", str, "auto", ", ".join(environments))
    help = f"number of devices (2), or which ones (0,2 or gpu:0,cpu:0); default: {default}"
    command.add_argument("--devices", metavar="K", help=help)
    command.add_argument("--memory-limit", metavar="SIZE", help="bytes that each device may use, such as 512M or 1.5G")


def find_devices(options, default=None, environment=None):
    """The environment and the devices that were asked for. ``environment``: replaces that of the options."""
    environment, devices = choose_devices(environment or options.environment, options.devices or default)
    limit_memory(options, devices)
    return environment, devices


def limit_memory(options, devices):
    """Apply --memory-limit to the devices, if the command has this option and it is given."""
    if getattr(options, "memory_limit", None) is not None:
        for device in devices:
            device.limit_memory(parse_size(options.memory_limit))


def add_data(command, limit=int):
    """Add the options that choose the training data; ``limit`` is the function that reads --limit."""
    pictures = "pictures in FOLDER/train/CLASS/ and FOLDER/test/CLASS/, or MNIST's files (default: Fashion-MNIST)"
    add_input(command, "--data", pictures, "FOLDER")
    add_option(command, "--image-size", _size, None, "WxH to resize pictures to (default: their own, or 28x28)")
    add_option(command, "--channels", int, None, "1 (grey) or 3 (colour); default: as in the files")
    command.add_argument("--invert", action="store_true", help="the pictures show dark things on a bright background")
    add_option(command, "--limit", limit, None, "train on only N examples, for a quick look")


def _size(text):
    """Read "64x48" as (48, 64), and "32" as (32, 32): height and width."""
    found = re.fullmatch("([1-9][0-9]{0,4})(?:x([1-9][0-9]{0,4}))?", text.lower())
    if not found:
        raise argparse.ArgumentTypeError(f"{shown(text)} should be width and height in pixels, such as 32x32")
    return int(found[2] or found[1]), int(found[1])


def find_data(options, limit=None):
    """The data set for `train`: Fashion-MNIST or a folder's pictures, but only the `first_examples` up to ``limit``.

    Says how pictures were read.
    """
    if options.data is None:
        for flag in ("--invert", "--image-size", "--channels"):
            if getattr(options, flag[2:].replace("-", "_")):
                raise ValueError(f"{flag} is for your own pictures; add --data FOLDER")
        return first_examples(load_fashion_mnist(), limit)
    data = first_examples(load_image_data(options.data, _input_shape(options), options.invert), limit)
    N, C, H, W = data[0].shape
    print(f"pictures: {N:,} for training, read as {W} × {H} in {'grey' if C == 1 else 'colour'}")
    return data


def _input_shape(options):
    """The shape (C, H, W) in which to read a folder's pictures; if None, `load_image_data` chooses it."""
    if not options.channels and not options.image_size:
        return None
    C, H, W = image_shape(options.data)
    return options.channels or C, *(options.image_size or (H, W))


def network_from(text, data=None):
    """The network that ``--network`` names, as `Settings` accepts it: a name, or what the file's function makes.

    The function is called with the shape (C, H, W) of the images in ``data`` and the number of their classes or,
    without data, with Fashion-MNIST's. Raises the errors of `_from_file`.
    """
    if not text.endswith(".py"):
        return text
    shape = FASHION_MNIST if data is None else data[0].shape[1:]
    classes = len(data[4]) if data is not None and len(data) > 4 else len(CLASSES)

    def make(function):
        made = function(shape, classes)
        check_network(made)
        return made

    return _from_file("--network", text, "network", make)


def find_networks(texts, data):
    """A dict of the networks that `network_from` makes of texts, by their names or the files' names without ".py".

    Raises the errors of `network_from`, and ValueError for two files that have the same name.
    """
    texts = [texts] if isinstance(texts, str) else texts
    names = [legible(Path(text).stem) if text.endswith(".py") else text for text in texts]
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise ValueError(f"--network: two networks are called {twice[0]}; give the files different names")
    return {name: network_from(text, data) for name, text in zip(names, texts, strict=True)}


def metrics_from(path):
    """A file's dict of functions, in the form for ``train(metrics=…)``; None without a file.

    Raises the errors of `_from_file`.
    """
    return path and _from_file("--metrics", path, "metrics", check_metrics)


def _from_file(option, path, name, use):
    """Call ``use`` with what the file of an ``option`` defines as ``name``; return the result.

    The file can import files beside it. Raises ValueError, with a one-line message, if there is no such file, and for
    anything that goes wrong in the file or in ``use``, except Ctrl-C.
    """
    if not Path(path).is_file():
        raise ValueError(f"{option} {path}: there is no such file")
    sys.path.insert(0, str(target(path).parent))
    try:
        found = runpy.run_path(path, run_name=f"{name}_of_ones_own")
        if name not in found:
            raise ValueError(f"it should define {name}")
        return use(found[name])
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit, too
        raise ValueError(f"{option} {path}: {one_line(error)}") from error
    finally:
        sys.path.pop(0)
