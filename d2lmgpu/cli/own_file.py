"""Users' own Python files: ``--network FILE.py`` and ``--metrics FILE.py``.

The first defines ``network(input_shape, classes)``, and the second ``metrics = {"top 3": function, ...}``.
"""

import runpy
import sys
from pathlib import Path

from ..devices.errors import one_line
from ..fashion_mnist import CLASSES
from ..networks import FASHION_MNIST, INITS, NETWORKS
from ..networks.checks import check_network
from ..output import target
from ..training.metrics import check_metrics
from ..words import legible
from .options import declare


def declare_files(command, action):
    """Declare that an option for networks or initial weights reads files; known names are not files."""
    known = INITS if action.dest == "init" else NETWORKS
    declare(
        command, action, lambda options: [text for text in _texts(getattr(options, action.dest)) if text not in known]
    )


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
    texts = _texts(texts)
    names = [legible(Path(text).stem) if text.endswith(".py") else text for text in texts]
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise ValueError(f"--network: two networks are called {twice[0]}; give the files different names")
    return {name: network_from(text, data) for name, text in zip(names, texts, strict=True)}


def _texts(given):
    return [given] if isinstance(given, str) else given


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
