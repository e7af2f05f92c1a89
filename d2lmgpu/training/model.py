"""A trained network with everything that is needed to use it, as `train` returns it and a checkpoint stores it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..base.arguments import check_flag, check_names, check_path, check_whole, is_number, shown
from ..base.files import write_file
from ..base.packages import needed
from ..base.text import several
from ..data.images import read_images
from ..networks import Dense, Network, init_params, sequential
from ..networks.checks import check_network, check_params, check_running
from ..networks.known import described, layer_table, restored
from ..networks.losses import LOSSES, find_loss, missing_loss
from .accuracy import evaluate, predict
from .checkpoints import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from .checks import of_kind
from .history import History


@dataclass(repr=False, eq=False)
class Model:
    """A ``network`` with its ``params`` and batch norm's ``statistics``, both of them lists of NumPy arrays.

    ``classes``: the names of the classes, or None if the data had none. ``invert``: whether pictures are inverted when
    they are read, as the training pictures were. ``loss``: the loss used in training, a name or a pair of functions.
    Raises ValueError unless ``network`` is a `Network` with these parameters and as many classes.
    """

    network: Network
    params: list[np.ndarray]
    statistics: Sequence[np.ndarray] = ()
    classes: list[str] | None = None
    invert: bool = False
    loss: str | tuple[Callable, Callable] = "cross_entropy"

    def __post_init__(self):
        check_network(self.network)
        check_params("params", self.params, self.network)
        if self.classes is not None:
            self.classes = check_names("classes", self.classes, self.network.classes)
        self.invert = check_flag("invert", self.invert)

    def __repr__(self):
        size = several(sum(param.size for param in self.params), "parameter")
        return f"<Model: {several(len(self.network), 'layer')}, {size}, {self.network.classes} classes>"

    def predict(self, X, devices=None) -> np.ndarray:
        """The probability of each class for each image, as floats (N, classes) on the host.

        If the network was trained with a loss other than cross_entropy, its outputs are returned unchanged.

        ``X``: the images (N, C, H, W), uint8 or float32 from 0 to 1, as in training. ``devices``: a list or a
        `Cluster`, by default [try_gpu(0)]. Raises ValueError for images that do not fit the network.
        """
        return predict(self.params, X, devices, self.network, self.statistics, self.loss)

    def evaluate(self, X, y, devices=None, metrics=None) -> Any:
        """The accuracy: the fraction of images ``X`` whose label in ``y`` (N,) is the most probable class.

        If the targets are not classes, the result is the loss per example; with ``metrics``, it is a dict (see
        `evaluate`). Raises ValueError as `predict` does, and also unless ``y`` has a label for each image.
        """
        return evaluate(self.params, X, y, devices, self.network, self.statistics, self.loss, metrics)

    def with_classes(self, classes, init="normal", seed=0) -> "Model":
        """This model for other ``classes``, a number or names: the same network with a new last layer, drawn at random.

        It is meant for ``train(init=…)``, so that training on new images starts from what was learned from other ones.
        ``init``, ``seed``: as in `init_params`. All parameters that fit are kept, including those of the last layer if
        the number of classes is the same.

        Raises ValueError unless the last layer is a `Dense` of `networks.sequential`.
        """
        names = None if is_number(classes) else check_names("classes", classes)
        number = check_whole("the number of classes", classes if names is None else len(names), least=2)
        *others, last = self.network.recipes or [None]
        if getattr(last, "name", None) != Dense.__name__:
            raise ValueError(f"with_classes: the last layer is {shown(last)}; only a Dense layer can be replaced")
        network = sequential(self.network.input_shape, *others, Dense(number))
        pairs = zip(self.params, init_params(seed, init=init, network=network), strict=True)
        params = [(mine if mine.shape == new.shape else new).copy() for mine, new in pairs]
        return replace(self, network=network, params=params, classes=names)

    def read(self, paths) -> np.ndarray:
        """Read pictures from files for `predict`: uint8 (N, C, H, W). Raises the errors of `images.read_images`.

        ``paths``: the names of the files, or of one.
        """
        return read_images(paths, self.network.input_shape, self.invert)

    def summary(self) -> str:
        """A table of the layers as text: each layer's output shape, parameters and multiplications for one image."""
        return layer_table(self.network)

    def save(self, path):
        """Write the model to a file, for `load_model`.

        Raises OSError if it cannot be written.
        """
        arrays = {"params": self.params, "statistics of 0": self.statistics}
        model = model_state(self.network, self.classes, self.invert, self.loss)
        save_checkpoint(path, Checkpoint({"model": model}, arrays))

    def export(self, path) -> None:
        """Write the arrays to a file that other frameworks can read: NumPy's ``.npz``, or ``.safetensors``.

        Names and shapes are those of a ``torch.nn.Sequential`` with the same layers: "0.weight" and "0.bias", and for
        batch norm also "1.running_mean" and "1.running_var"; a dense layer's weight has the shape (outputs, inputs).
        Raises ValueError for any other ending, for layers with parameters other than a weight and a bias, and for batch
        norm without statistics; PackageError if safetensors is needed but missing; OSError if the file cannot be
        written.
        """
        check_path("export: path", path)
        ending = Path(path).suffix
        if ending not in (".npz", ".safetensors"):
            raise ValueError(f"export: {shown(str(path))} should end with .npz or .safetensors")
        arrays = self._exported()
        if ending == ".npz":
            write_file(path, lambda file: np.savez(file, **arrays))
            return
        safetensors = needed("safetensors.numpy", "export: .safetensors needs a package", "export")
        write_file(path, lambda file: file.write(safetensors.save(arrays)))

    def _exported(self):
        """A dict of the arrays that `export` writes, by name."""
        check_running("export: statistics", self.statistics, self.network)
        params, running, arrays = iter(self.params), iter(self.statistics), {}
        for i, layer in enumerate(self.network):
            if len(layer.shapes) not in (0, 2):
                raise ValueError(
                    f"export: layer {i} has {len(layer.shapes)} parameters; it should have weight and bias"
                )
            for name in ("weight", "bias")[: len(layer.shapes)]:
                param = next(params)
                arrays[f"{i}.{name}"] = np.ascontiguousarray(param.T if param.ndim == 2 else param)
            if layer.channels:
                arrays |= {f"{i}.running_mean": next(running), f"{i}.running_var": next(running)}
        return arrays


class Result(tuple[History, list[np.ndarray]]):
    """What `train` returns: ``history, params = train(...)``, where ``params`` are NumPy arrays.

    ``result.model`` is the trained `Model`, which has everything that prediction needs; ``result.network`` and
    ``result.statistics``, batch norm's running means and variances, are parts of it. A result prints as one line.
    """

    history: History
    model: Model
    params: list[np.ndarray]
    statistics: Sequence[np.ndarray]
    network: Network

    def __new__(cls, history, model):
        result = super().__new__(cls, (history, model.params))
        result.history, result.model = history, model
        result.params, result.statistics, result.network = model.params, model.statistics, model.network
        return result

    def __getnewargs__(self):  # for pickle and copy
        return self.history, self.model

    def __repr__(self):
        return f"<Result: {self.history!r}, {several(sum(param.size for param in self.params), 'parameter')}>"


def model_state(network, classes, invert, loss):
    """What a checkpoint stores about a model besides its arrays."""
    return {"network": described(network), "classes": classes, "invert": invert, "loss": find_loss(loss).name}


MODEL = {"network": dict | None, "classes": list[str] | None, "invert": bool, "loss": str}
"""The kind (see `of_kind`) of each value in the dict from `model_state`."""


def load_model(path, network=None, loss=None) -> Model:
    """Load the `Model` from a file that `Model.save` or ``train(checkpoint=…)`` wrote. No code in the file is run.

    ``network``: the network that was trained, needed if its layers are functions of your own, which no file can hold.
    ``loss``: likewise, your own loss; only `Model.evaluate` needs it, and only if the targets are not classes.

    Raises CheckpointError for a file without a model, OSError if it cannot be read, ValueError for a ``network`` or
    ``loss`` that does not match the model.
    """
    state, arrays = load_checkpoint(path)
    if network is not None:
        check_network(network)
    loss = None if loss is None else find_loss(loss)
    try:
        model = of_kind("state", state, {"model": MODEL})["model"]
        if network is None and model["network"] is None:
            raise ValueError(
                "its network has layers that are functions of your own: call load_model(FILE, network=...) with what "
                "networks.sequential made of them"
            )
        name = model["loss"]
        if loss is not None and loss.name != name:
            raise ValueError(f"it was trained with the loss {name}, not {loss.name}; give that loss, or leave it out")
        model["loss"] = name if name in LOSSES else loss or missing_loss(name)
        model["network"] = network or restored(model["network"])
        return Model(params=arrays.get("params", []), statistics=arrays.get("statistics of 0", []), **model)
    except ValueError as error:
        raise CheckpointError(f"{path}: no model that this version can read: {error}") from None
