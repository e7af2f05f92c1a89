"""``--network FILE.py``: a network of one's own, from a file that defines ``network(input_shape, classes)``."""

import importlib.util
import sys
from pathlib import Path

from ..devices.errors import one_line
from ..networks import Network

FUNCTION = "network"


def network_from(text, data):
    """What `Settings` takes as the network that ``--network`` names: a name, or what the file's function makes.

    The function is called with the shape (C, H, W) of the images in ``data`` and the number of their classes.
    Raises ValueError for a file without it, and whatever goes wrong in it, in a line.
    """
    if not text.endswith(".py"):
        return text
    if not Path(text).is_file():
        raise ValueError(f"--network {text}: there is no such file")
    classes = len(data[4]) if len(data) > 4 else 10
    try:
        made = _function(text)(data[0].shape[1:], classes)
    except Exception as error:
        raise ValueError(f"--network {text}: {one_line(error)}") from error
    if not isinstance(made, Network):
        raise ValueError(
            f"--network {text}: {FUNCTION}() returned a {type(made).__name__}; it should be what "
            "d2lmgpu.networks.sequential makes"
        )
    return made


def _function(path):
    """The file's function; files beside it can be imported by it."""
    spec = importlib.util.spec_from_file_location("network_of_ones_own", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    if not callable(getattr(module, FUNCTION, None)):
        raise ValueError(f"it should define {FUNCTION}(input_shape, classes), which returns what sequential makes")
    return getattr(module, FUNCTION)
