"""Networks of one's own in a sweep: data with a name, which other processes make a network of, and files keep.

{"name": "small", "input_shape": [1, 28, 28], "layers": [["Flatten", {}], ["Dense", {"outputs": 10}]]}
"""

import hashlib
import json

from ..arguments import check_text, shown
from ..networks import FASHION_MNIST, Network, described, restored


def as_data(network, name=None):
    """A `Network` as a trial has it; ``name``: what tables and plots call it, otherwise one that its layers decide.

    Raises ValueError for a network with layers that are functions of somebody's own, which no data can be, and for
    what is no network or no name.
    """
    description = described(network)
    if description is None:
        raise ValueError(
            "a network with layers that are functions of your own cannot be sent to other processes or kept in a "
            "file; compose it of the library's layers, or train it with train"
        )
    if name is None:
        name = f"custom-{_digest(description)}"
    check_text("the name of a network", name)
    if not name:
        raise ValueError("the name of a network is ''; give each a name that is not empty")
    return {"name": name} | description


def checked(data):
    """The data of a network, as `as_data` makes them. Raises ValueError for a dict that is none."""
    if set(data) - {"name"} != {"input_shape", "layers"}:
        raise ValueError(f"network {shown(data)} is no description of one: name, input_shape and layers")
    return as_data(network_of(data), data.get("name"))


def network_of(setting):
    """What `Settings` takes as the network that a trial's setting tells: the name of one, or what the data describe."""
    if not isinstance(setting, dict):
        return setting
    return restored({name: setting[name] for name in ("input_shape", "layers")})


def each_named(networks):
    """The settings for a dict of names and networks, of which some may be names of networks that there are."""
    return [as_data(network, name) if isinstance(network, Network) else network for name, network in networks.items()]


def check_names(settings):
    """Raise ValueError if two of the networks of trials have one name and different layers."""
    known = {}
    for setting in settings:
        name = setting["name"] if isinstance(setting, dict) else setting
        if without_name(known.setdefault(name, setting)) != without_name(setting):
            raise ValueError(f"two different networks are both called {shown(name)}; give each a name of its own")


def check_for_fashion_mnist(setting):
    """Raise ValueError for a network of one's own that does not take Fashion-MNIST's images and classes."""
    if isinstance(setting, dict):
        network = network_of(setting)
        if network.input_shape != FASHION_MNIST or network.classes < 10:
            raise ValueError(
                f"network {shown(setting['name'])} puts images of shape {network.input_shape} into {network.classes} "
                f"classes; Fashion-MNIST has {FASHION_MNIST} and 10: give data, too"
            )


def without_name(setting):
    """What decides which network it is."""
    return {name: setting[name] for name in setting if name != "name"} if isinstance(setting, dict) else setting


def _digest(description):
    return hashlib.sha256(json.dumps(description).encode()).hexdigest()[:6]
