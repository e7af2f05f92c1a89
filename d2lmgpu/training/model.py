"""A trained network, with all that is needed to use it: what `train` makes, and a checkpoint holds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import check_list, check_path, check_whole, in_a_clone, is_number, shown
from ..checkpoints import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from ..images import read_images
from ..networks import Dense, Network, check_network, check_params, init_params, sequential
from ..networks.describe import described, layer_table, restored
from ..networks.losses import LOSSES, find_loss, missing_loss
from ..output import write_file
from ..words import several
from .accuracy import evaluate, predict
from .history import History
from .resume import check_kind


@dataclass(repr=False, eq=False)
class Model:
    """``network`` with its ``params`` and batch norm's ``statistics``, lists of NumPy arrays.

    ``classes``: their names, or None where the data came without. ``invert``: whether
    pictures are inverted when they are read, as they were for training. ``loss``: what it was trained with, a name
    or a pair of functions.
    """

    network: Network
    params: list[np.ndarray]
    statistics: Sequence[np.ndarray] = ()
    classes: list[str] | None = None
    invert: bool = False
    loss: str | tuple[Callable, Callable] = "cross_entropy"

    def __repr__(self):
        size = several(sum(param.size for param in self.params), "parameter")
        return f"<Model: {several(len(self.network), 'layer')}, {size}, {self.network.classes} classes>"

    def predict(self, X, devices=None) -> np.ndarray:
        """The probability of each class for each image: float (N, classes) on the host.

        Of a network trained with another loss than cross_entropy: its outputs, as they are.

        ``X``: uint8, or float32 from 0 to 1, (N, C, H, W), as in training. ``devices``:
        a list or a `Cluster`, [try_gpu(0)] unless given. Raises ValueError for images that do not fit the network.
        """
        return predict(self.params, X, devices, self.network, self.statistics, self.loss)

    def evaluate(self, X, y, devices=None, metrics=None) -> Any:
        """Accuracy: the fraction of images ``X`` whose label ``y`` (N,) is the most probable class.

        Where targets are not classes, the loss per example; with ``metrics`` a dict: see `evaluate`. Raises ValueError
        as `predict`, and unless there is a label for each.
        """
        return evaluate(self.params, X, y, devices, self.network, self.statistics, self.loss, metrics)

    def with_classes(self, classes, init="normal", seed=0) -> "Model":
        """This model for other ``classes``, a number or names: the same, with another last layer, drawn at random.

        For ``train(init=…)``: what was learned of one set of images is where the next begins. ``init``, ``seed``: as of
        `init_params`. What fits is kept, so also a last layer for as many classes.

        Raises ValueError unless the last layer is a `Dense` of `networks.sequential`.
        """
        names = None if is_number(classes) else check_list("classes", classes, of="names")
        number = classes if names is None else len(names)
        check_whole("the number of classes", number, least=2)
        *others, last = self.network.recipes or [None]
        if getattr(last, "name", None) != Dense.__name__:
            raise ValueError(f"with_classes: the last layer is {shown(last)}; it can only be exchanged if it is Dense")
        network = sequential(self.network.input_shape, *others, Dense(int(number)))
        pairs = zip(self.params, init_params(seed, init=init, network=network), strict=True)
        params = [(mine if mine.shape == new.shape else new).copy() for mine, new in pairs]
        return replace(self, network=network, params=params, classes=names)

    def read(self, paths) -> np.ndarray:
        """Pictures from files as `predict` takes them, uint8 (N, C, H, W). Raises as `images.read_images` does."""
        return read_images(paths, self.network.input_shape, self.invert)

    def summary(self) -> str:
        """A table of the layers, in text: what each puts out for an image, its parameters, its multiplications."""
        return layer_table(self.network)

    def save(self, path):
        """Write it to a file, for `load_model`. Raises OSError if that cannot be written."""
        arrays = {"params": self.params, "statistics of 0": self.statistics}
        model = model_state(self.network, self.classes, self.invert, self.loss)
        save_checkpoint(path, Checkpoint({"model": model}, arrays))

    def export(self, path) -> None:
        """Write the arrays to a file that other frameworks read: ``.npz``, NumPy's, or ``.safetensors``.

        Names and shapes are those of a ``torch.nn.Sequential`` of the same layers: "0.weight", "0.bias", of batch norm
        also "1.running_mean" and "1.running_var"; a dense layer's weight is (outputs, inputs). Raises ValueError for
        another ending, without the package safetensors, and for layers that have other than two parameters; OSError if
        it cannot be written.
        """
        check_path("export: path", path)
        ending = Path(path).suffix
        if ending not in (".npz", ".safetensors"):
            raise ValueError(f"export: {shown(str(path))} should end with .npz or .safetensors")
        arrays = self._exported()
        if ending == ".npz":
            write_file(path, lambda file: np.savez(file, **arrays))
            return
        try:
            from safetensors.numpy import save
        except ImportError:
            raise ValueError(f"export: .safetensors needs a package: {in_a_clone('export')}") from None
        write_file(path, lambda file: file.write(save(arrays)))

    def _exported(self):
        """The arrays by name, as `export` writes them."""
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
    """What `train` returns: ``history, params = train(...)``, the parameters as NumPy arrays.

    ``result.model`` is the trained `Model`, which has all that prediction needs; ``result.network``
    and ``result.statistics``, batch norm's running means and variances, are its parts. Printed, it is a line.
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
    """What a checkpoint says of a model, beside its arrays."""
    return {"network": described(network), "classes": classes, "invert": invert, "loss": find_loss(loss).name}


MODEL = {"network": dict | None, "classes": list[str] | None, "invert": bool, "loss": str}
"""The kinds of what `model_state` tells."""


def load_model(path, network=None, loss=None) -> Model:
    """The `Model` in a file that `Model.save` or ``train(checkpoint=…)`` wrote. Nothing that is in the file is run.

    ``network``: what the model was trained with, where layers are functions of your own, which no file holds.
    ``loss``: the same of a loss of your own, which only `Model.evaluate` needs, and only where targets are no
    classes; it says so.

    Raises CheckpointError for a file that holds none, OSError if it cannot be read, ValueError for a ``network`` or
    a ``loss`` that it is not of.
    """
    checkpoint = load_checkpoint(path)
    if network is not None:
        check_network(network)
    if loss is not None:
        loss = find_loss(loss)
    try:
        return _model(checkpoint, network, loss)
    except ValueError as error:
        raise CheckpointError(f"{path}: no model that this version can read: {error}") from None


def _model(checkpoint, network, loss):
    model, arrays = checkpoint.state.get("model"), checkpoint.arrays
    params, statistics = arrays.get("params", []), arrays.get("statistics of 0", [])
    check_kind("model", model, MODEL)
    if network is None and model["network"] is None:
        raise ValueError(
            "its network has layers that are functions of your own: give load_model(FILE, network=...), what "
            "networks.sequential made of them"
        )
    if network is None:
        network = restored(model["network"], [param.shape for param in params])
    check_params("params", params, network)
    classes, name = model["classes"], model["loss"]
    if classes is not None:
        check_list("classes", classes, of="names", length=network.classes)
    if loss is not None and loss.name != name:
        raise ValueError(f"it was trained with the loss {name}, not {loss.name}; give that, or none")
    loss = name if name in LOSSES else loss or missing_loss(name)
    return Model(network, params, statistics, classes, model["invert"], loss)
