"""Check a network and its inputs: parameters, running statistics, images, and random draws."""

from os import PathLike

from ..base.arguments import check_array, shown
from ..base.foreign import as_numpy
from ..layers import Draws
from .build import Layer, Network, channels


def check_network(network):
    """Raise ValueError unless ``network`` is a `Network`."""
    if not isinstance(network, Network):
        raise ValueError(f"network is {shown(network)}; it should be what networks.sequential makes")


def check_layers(network):
    """Raise ValueError unless ``network`` is a list of layers: a `Network`, or a part of one."""
    if not isinstance(network, (list, tuple)) or not all(isinstance(layer, Layer) for layer in network):
        raise ValueError(f"network is {shown(network)}; it should be what networks.sequential makes, or layers of it")


def check_trainable(network):
    """Raise ValueError unless a list of layers has parameters, and each layer a backward function."""
    if not any(layer.shapes for layer in network):
        raise ValueError("the network has no parameters, so there is nothing to train; add a layer such as Dense(10)")
    for number, layer in enumerate(network, start=1):
        if not callable(layer.backward):
            raise ValueError(f"layer {number} cannot be trained: its backward function is {shown(layer.backward)}")


def check_params(name, params, network):
    """Raise ValueError unless ``params`` is a list of float arrays in the shapes of the network's parameters."""
    check_shapes(name, params, [shape for layer in network for shape in layer.shapes], "init_params")


def check_running(name, statistics, network):
    """Like `check_params`, for batch norm's running means and variances."""
    check_shapes(name, statistics, [(C,) for C in channels(network) for _ in range(2)], "init_statistics")


def check_shapes(name, arrays, shapes, made_by):
    """Raise ValueError unless ``arrays`` is a list of float arrays of these ``shapes``, as ``made_by`` makes them."""
    if not isinstance(arrays, (list, tuple)) or len(arrays) != len(shapes):
        raise ValueError(f"{name}: {shown(arrays)}; there should be a list of {len(shapes)} arrays, as from {made_by}")
    for i, (array, shape) in enumerate(zip(arrays, shapes, strict=True)):
        raw = array.raw if hasattr(type(array), "raw") else as_numpy(name, array)  # its attributes are quick to read
        if getattr(raw, "shape", None) != shape or not hasattr(raw, "dtype") or raw.dtype.kind != "f":
            raise ValueError(f"{name}: number {i} is {shown(array)}; it should be an array of floats, of shape {shape}")


def check_images(name, X, params, network):
    """Raise ValueError unless ``X`` (N, C, H, W) has the network's input shape, and the dtype of ``params``."""
    if isinstance(X, (str, PathLike)):
        raise ValueError(f"{name} is {shown(X)}; it should be an array (N, C, H, W), as Model.read makes of files")
    X = check_array(name, X, (2, 4), "(N, C, H, W)")
    wanted = getattr(network, "input_shape", X.shape[1:])  # a list of layers does not have it
    if X.shape[1:] != wanted:
        raise ValueError(f"{name}: images of shape {X.shape[1:]}; the network takes {wanted}")
    if params and X.dtype != params[0].dtype:
        raise ValueError(
            f"{name} is {X.dtype} and the parameters are {params[0].dtype}; convert one "
            "(d2l.to_float(images) makes float32 of uint8 images)"
        )


def is_random(network):
    """Whether any layer in a list of layers draws random numbers in training."""
    return any(layer.random for layer in network)


def check_drawing(network, draws):
    """Raise ValueError unless ``draws`` is a `Draws`, or None for a list of layers that are not random."""
    if not isinstance(draws, (Draws, type(None))):
        raise ValueError(f"draws is {shown(draws)}; it should be Draws(seed, epoch, step)")
    if draws is None and is_random(network):
        raise ValueError("the network has dropout: give draws=Draws(seed, epoch, step), which decides what it drops")
