"""What commands work on: Fashion-MNIST or pictures in folders, and users' own Python files.

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
from ..data.fashion_mnist import CLASSES, load_fashion_mnist
from ..data.images import image_shape, load_image_data
from ..data.minibatches import first_examples
from ..networks import FASHION_MNIST
from ..networks.checks import check_network
from ..training.evaluation import check_metrics
from .options import add_input


def add_data(command, limit=int):
    """Add the options that choose the training data; ``limit`` is the function that reads --limit."""
    pictures = "pictures in FOLDER/train/CLASS/ and FOLDER/test/CLASS/, or MNIST's files (default: Fashion-MNIST)"
    add_input(command, "--data", pictures, "FOLDER")
    size = "width and height to which pictures are resized (default: their own, or 28x28 if they differ)"
    command.add_argument("--image-size", type=_size, metavar="WxH", help=size)
    command.add_argument("--channels", type=int, metavar="C", help="1 (grey) or 3 (colour); default: as in the files")
    command.add_argument("--invert", action="store_true", help="the pictures show dark things on a bright background")
    command.add_argument("--limit", type=limit, metavar="N", help="train on only N examples, for a quick look")


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
        if not callable(function):
            raise ValueError("it should define network(input_shape, classes), which returns what sequential makes")
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

    def checked(found):
        if not isinstance(found, dict) or not found:
            raise ValueError("it should define metrics, a dict of functions of outputs and labels by their names")
        return check_metrics(found)

    return path and _from_file("--metrics", path, "metrics", checked)


def _from_file(option, path, name, use):
    """Call ``use`` with what the file of an ``option`` defines as ``name``, or with None; return the result.

    The file can import files beside it. Raises ValueError, with a one-line message, if there is no such file, and for
    anything that goes wrong in the file or in ``use``, except Ctrl-C.
    """
    if not Path(path).is_file():
        raise ValueError(f"{option} {path}: there is no such file")
    sys.path.insert(0, str(target(path).parent))
    try:
        return use(runpy.run_path(path, run_name=f"{name}_of_ones_own").get(name))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit, too
        raise ValueError(f"{option} {path}: {one_line(error)}") from error
    finally:
        sys.path.pop(0)
