"""What training starts from: parameters drawn at random, or what one has: ``train(init=…)``.

    train(init="he")                                # drawn, see networks.initial
    train(init=params, network="cnn")               # arrays, as of init_params or an earlier run
    train(init=model), train(init="fashion.model")  # a Model, a Result, or a file: the network is the model's
    train(init=model, data=pets)                    # another number of classes: a new last layer

Only parameters and batch norm's running statistics are taken. The optimiser begins anew, so that this is not the way to
go on with a run that was broken off: that is ``resume``.
"""

from dataclasses import dataclass, replace

import numpy as np

from ..devices import to_host
from ..networks import INITS, NETWORKS, check_params, described, init_params
from .checks import Given, find_network, image_shape, number_of_outputs
from .model import Model, load_model
from .settings import Settings


@dataclass
class Start:
    """``given``: a `Model`, a list of arrays, or None, and then parameters are drawn as ``settings`` say.

    ``note``: a line for the user, or None.
    """

    settings: Settings
    given: object = None
    note: str = None

    def params(self, network):
        """The parameters of a ``network``, NumPy arrays of float32; ValueError if those given are of another one."""
        if self.given is None:
            return init_params(self.settings.seed, init=self.settings.init, network=network)
        params = self.given.params if isinstance(self.given, Model) else self.given
        check_params("init", Given(params), network)
        return [np.array(to_host(param), np.float32) for param in params]

    def give_statistics(self, runner):
        """Let each device begin with a model's running means and variances."""
        if isinstance(self.given, Model) and self.given.statistics:
            runner.execution.set_statistics([self.given.statistics] * len(runner.devices))


def start_from(settings, X, y, classes):
    """The `Start` of a run on images ``X`` and labels ``y``, whose ``classes`` have names or not; and its settings.

    A model's network is trained, unless the settings name another than LeNet; where the data have another number of
    classes, its last layer begins anew. Raises as `load_model` does.
    """
    given = settings.init
    if isinstance(given, str):
        given = None if given in INITS else load_model(given)
    if not isinstance(given, Model):
        return Start(settings, given), settings
    note, own = None, given.network.classes
    wanted = len(classes) if classes else number_of_outputs(y, own)
    if wanted != own:
        note = f"init: the model has {own} classes and the data {wanted}: its last layer begins anew"
        given = given.with_classes(wanted, seed=settings.seed)
    if settings.network == Settings.network and settings.width == 1:
        same = (name for name in NETWORKS if is_known(given.network, name, classes, image_shape(X), wanted))
        settings = replace(settings, network=next(same, given.network))
    return Start(settings, given, note), settings


def is_known(network, name, classes, shape, outputs):
    """Whether a network is the one that ``name`` stands for, with such images and classes."""
    try:
        return described(find_network(name, classes, shape, outputs)[1]) == described(network)
    except ValueError:  # for such images there is none
        return False
