"""``--network FILE.py``: a network of one's own, from a file that defines ``network(input_shape, classes)``."""

from pathlib import Path

from ..networks import NETWORKS, Network
from .options import add_option, declare_input
from .own_file import defined_in, somebodys

FUNCTION = "network"


def add_network(command):
    """Add --network: a name, or a file."""
    action = add_option(command, "--network", str, "lenet", f"{', '.join(NETWORKS)}, or a file FILE.py")
    declare_network(command, action)


def declare_network(command, action):
    """Say of an option for networks that files among them are read."""
    declare_input(command, action, lambda options: [text for text in _texts(options.network) if is_file(text)])


def network_from(text, data):
    """What `Settings` takes as the network that ``--network`` names: a name, or what the file's function makes.

    The function is called with the shape (C, H, W) of the images in ``data`` and the number of their classes.
    Raises as `made_by` does.
    """
    if not is_file(text):
        return text
    return made_by(text, data[0].shape[1:], len(data[4]) if len(data) > 4 else 10)


def made_by(text, input_shape, classes):
    """The `Network` that the function in a file makes.

    Raises ValueError for a file without it, and whatever goes wrong in it, in a line.
    """
    with somebodys("--network", text):
        made = _function(text)(input_shape, classes)
    if not isinstance(made, Network):
        raise ValueError(
            f"--network {text}: {FUNCTION}() returned a {type(made).__name__}; it should be what "
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


def is_file(text):
    """Whether ``--network`` names a file."""
    return text.endswith(".py")


def _function(path):
    function = defined_in(path, FUNCTION)
    if not callable(function):
        raise ValueError(f"it should define {FUNCTION}(input_shape, classes), which returns what sequential makes")
    return function
