"""Python files of a person's own: ``--network FILE.py`` and ``--metrics FILE.py``.

The first defines ``network(input_shape, classes)``, the second ``metrics = {"top 3": function, ...}``.
"""

import contextlib
import runpy
import sys
from pathlib import Path

from ..devices.errors import one_line
from ..fashion_mnist import CLASSES
from ..networks import FASHION_MNIST, INITS, NETWORKS, Network
from ..training.metrics import check_metrics
from .options import declare


def declare_files(command, action):
    """Declare that an option, of networks or of initial weights, reads what is a file."""
    known = INITS if action.dest == "init" else NETWORKS
    declare(
        command, action, lambda options: [text for text in _texts(getattr(options, action.dest)) if text not in known]
    )


def is_file(text):
    """Whether ``--network`` names a file."""
    return text.endswith(".py")


def network_from(text, data=None):
    """What `Settings` takes as the network that ``--network`` names: a name, or what the file's function makes.

    The function is called with the shape (C, H, W) of the images in ``data`` and the number of their classes, without
    data with Fashion-MNIST's. Raises as `made_by` does.
    """
    if not is_file(text):
        return text
    shape = FASHION_MNIST if data is None else data[0].shape[1:]
    return made_by(text, shape, len(data[4]) if data is not None and len(data) > 4 else len(CLASSES))


def made_by(path, input_shape, classes):
    """The `Network` that the function in a file makes.

    Raises ValueError for a file without it, and whatever goes wrong in it, in a line.
    """
    with _running("--network", path):
        function = _defined_in(path, "network")
        if not callable(function):
            raise ValueError("it should define network(input_shape, classes), which returns what sequential makes")
        made = function(input_shape, classes)
    if not isinstance(made, Network):
        raise ValueError(
            f"--network {path}: network() returned a {type(made).__name__}; it should be what "
            "d2lmgpu.networks.sequential makes"
        )
    return made


def find_networks(texts, data):
    """`network_from` each of the texts, by its name: that of its file, without ".py", or the name that it is.

    Raises as `network_from` does, and ValueError for two files of one name.
    """
    texts = _texts(texts)
    names = [Path(text).stem if is_file(text) else text for text in texts]
    twice = [name for i, name in enumerate(names) if name in names[:i]]
    if twice:
        raise ValueError(f"--network: two networks are called {twice[0]}; give each file a name of its own")
    return {name: network_from(text, data) for name, text in zip(names, texts, strict=True)}


def _texts(given):
    return [given] if isinstance(given, str) else given


def metrics_from(path):
    """A file's dict of functions by name, as ``train(metrics=…)`` takes it; None without a file.

    Raises ValueError for a file without it, and whatever goes wrong in it, in a line.
    """
    if path is None:
        return None
    with _running("--metrics", path):
        found = _defined_in(path, "metrics")
        if not isinstance(found, dict) or not found:
            raise ValueError("it should define metrics, a dict of functions of outputs and labels by their names")
        return check_metrics(found)


@contextlib.contextmanager
def _running(option, path):
    """A ``with`` block that runs what is in the file that an ``option`` names.

    Raises ValueError, in a line, unless there is such a file, and for whatever goes wrong in the block but Ctrl-C.
    """
    if not Path(path).is_file():
        raise ValueError(f"{option} {path}: there is no such file")
    try:
        yield
    except KeyboardInterrupt:
        raise
    except Exception as error:
        raise ValueError(f"{option} {path}: {one_line(error)}") from error
    except BaseException as error:  # sys.exit, and what else would end the program
        from ..exercises.checking import what_ends

        raise ValueError(f"{option} {path}: it {what_ends(error)}; let it define functions, and no more") from error


def _defined_in(path, name):
    """What a file defines under a ``name``, or None; files beside it can be imported by it.

    Raises whatever goes wrong in the file.
    """
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        return runpy.run_path(path, run_name=f"{name}_of_ones_own").get(name)
    finally:
        sys.path.pop(0)
