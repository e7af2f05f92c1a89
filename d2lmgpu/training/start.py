"""What training starts from, set by ``train(init=…)``: parameters drawn at random, or given ones.

    train(init="he")                                # drawn at random, see networks.initial
    train(init=params, network="cnn")               # arrays, from init_params or an earlier run
    train(init=model), train(init="fashion.model")  # a Model, a Result, or a file: the network is the model's
    train(init=model, data=pets)                    # another number of classes: a new last layer

Only parameters and batch norm's running statistics are used, and the optimiser starts from scratch. To continue a run
that was interrupted, use ``resume`` instead.
"""

from dataclasses import replace

import numpy as np

from ..devices import to_host
from ..networks import INITS, NETWORKS, described, init_params
from ..networks.checks import check_params
from .checks import Given, classes_of, find_network, image_shape, number_of_outputs
from .model import Model, load_model
from .settings import Settings


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
        about = classes, image_shape(data[0]), wanted
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
    check_params("init", Given(params), network)
    return [np.array(to_host(param), np.float32) for param in params]
