"""Networks as data: a list of layers, each with its two functions and the shapes of its parameters.

You list what the layers do; their shapes follow from the images:

    network = sequential((1, 28, 28), Conv2d(20, 3), ReLU(), AvgPool2d(2), Flatten(), Dense(10))

Each of these layers is given as a `Recipe`: a function from the shape of its input without N, here (1, 28, 28), to a
`Layer`. Invalid arguments raise ValueError. Since a recipe is a name with its arguments, a network made from recipes
can be written to a file and rebuilt from it; see `described` and `restored`. What else should know of a new layer is
in docs/design.md.
"""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec

import numpy as np

from .. import layers
from ..base.arguments import check_array, check_input_shape, check_number, check_whole, plain, shown
from ..base.text import message_of, several

MAX_OF = {"outputs": 10**6, "kernel_size": 2**10, "stride": 2**10, "padding": 2**10, "size": 2**10}
"""The largest whole numbers that are allowed as arguments of recipes. The smallest is 1, or 0 for padding."""

TAKES_ROWS = ("Dense",)
TAKES_IMAGES = ("Conv2d", "AvgPool2d", "MaxPool2d", "Flatten")
"""The names of recipes, grouped by the shape of their input."""


class Layer(NamedTuple):
    """A layer's forward and backward functions, and the shapes of its parameters, if it has any.

    ``initial``: the initial values of each parameter, "weights" (random), "zeros" or "ones"; by default, they follow
    from the shapes. ``channels``: the number of channels of a layer that normalises over the minibatch; 0 for other
    layers. ``random``: whether, in training, the layer is given `Draws`, as ``forward(x, draws=...)``.
    """

    forward: Callable
    backward: Callable
    shapes: tuple = ()
    initial: tuple = ()
    channels: int = 0
    random: bool = False

    def plain(self):
        """This layer with Python's own numbers."""
        shapes = tuple(tuple(plain(shape)) for shape in self.shapes)
        return self._replace(shapes=shapes, channels=plain(self.channels), random=bool(self.random))


class Network(tuple[Layer, ...]):
    """A tuple of layers that sorts images of ``input_shape`` (C, H, W) into ``classes`` classes.

    ``recipes``: the recipes from which it was made, if they are known.
    """

    input_shape: tuple[int, ...]
    classes: int
    recipes: tuple

    def __new__(cls, layers, input_shape, classes, recipes=()):
        network = super().__new__(cls, [layer.plain() for layer in layers])
        network.input_shape, network.classes = tuple(plain(input_shape)), plain(classes)
        network.recipes = tuple(recipes)
        return network

    def __getnewargs__(self):  # for pickle and copy
        return tuple(self), self.input_shape, self.classes, self.recipes

    def __repr__(self):
        parameters = sum(math.prod(shape) for layer in self for shape in layer.shapes)
        size = f"{several(len(self), 'layer')}, {several(parameters, 'parameter')}"
        return f"<Network: {size}, images {self.input_shape}, {self.classes} classes>"


class Recipe(NamedTuple):
    """How to make a layer from the shape of its input: the name of a function in this module, and its arguments."""

    name: str
    arguments: dict
    make: Callable

    def __call__(self, shape):
        if self.name in TAKES_ROWS and len(shape) != 1:
            raise ValueError(f"{self.name} takes rows of numbers; put Flatten() before it")
        if self.name in TAKES_IMAGES and len(shape) != 3:
            raise ValueError(f"{self.name} takes images (C, H, W)")
        side = self.arguments.get("kernel_size", self.arguments.get("size", 1))
        if min(shape[1:], default=side) + 2 * self.arguments.get("padding", 0) < side:
            raise ValueError(f"they are smaller than {side} × {side}, which {self!r} needs")
        return self.make(shape)

    def __reduce__(self):  # for pickle and copy: rebuilt, because ``make`` is a nested function
        return functools.partial(RECIPES[self.name], **self.arguments), ()

    def __repr__(self):
        usual = inspect.signature(RECIPES[self.name]).parameters
        given = [f"{name}={value}" for name, value in self.arguments.items() if value != usual[name].default]
        return f"{self.name}({', '.join(given)})"


_P = ParamSpec("_P")
RECIPES = {}
"""The functions below, which make recipes, by name."""


def _recipe(function: Callable[_P, Any]) -> Callable[_P, Recipe]:
    """Wrap ``function``, so that its result, which makes a layer, becomes a `Recipe`."""

    @functools.wraps(function)
    def call(*args, **named):
        signature = inspect.signature(function)
        try:
            arguments = signature.bind(*args, **named)
        except TypeError as error:
            raise ValueError(f"{function.__name__}: {error}; write {function.__name__}{signature}") from None
        arguments.apply_defaults()
        for name, value in arguments.arguments.items():
            what = f"{function.__name__}: {name}"
            if name in MAX_OF:
                arguments.arguments[name] = check_whole(what, value, int(name != "padding"), MAX_OF[name])
            else:  # the p of dropout
                arguments.arguments[name] = check_number(what, value, least=0, below=1)
        return Recipe(function.__name__, dict(arguments.arguments), function(*arguments.args))

    RECIPES[function.__name__] = call
    return call


def channels(network):
    """The numbers of channels of the batch norm layers in a list of layers."""
    return [layer.channels for layer in network if layer.channels]


def sequential(input_shape, *recipes) -> Network:
    """The `Network` of these layers, one after the other, for images of ``input_shape`` (C, H, W).

    Raises ValueError, with the number of the layer, if it is not a layer or does not fit the layers before it.
    """
    input_shape = check_input_shape(input_shape)
    x = np.zeros((1, *input_shape), np.float32)
    network = []
    for number, recipe in enumerate(recipes, start=1):
        try:
            layer = recipe(x.shape[1:]) if callable(recipe) else None
            if not isinstance(layer, Layer):
                raise ValueError(f"it makes {shown(layer)}, not a Layer")
            y, _ = layer.forward(x, *(np.zeros(shape, np.float32) for shape in layer.shapes))
            x = check_array("its output", y)
        except Exception as error:  # a layer of one's own may raise anything
            raise ValueError(f"sequential: layer {number} {_misfit(recipe, x.shape[1:], message_of(error))}") from error
        network.append(layer)
    if x.ndim != 2:
        raise ValueError(f"sequential: the last layer has outputs {x.shape[1:]}; give one number for each class")
    return Network(network, input_shape, x.shape[1], recipes)


def _misfit(recipe, shape, why):
    """What an error says of a layer that cannot follow outputs of this ``shape``."""
    name = getattr(recipe, "__name__", shown(recipe))
    if isinstance(recipe, Recipe):
        return f"does not take images of shape {shape}: {why}"
    return (
        f"is {name}, of type {type(recipe).__name__}: with images of shape {shape}, {why}; give recipes, one by one, "
        "such as Dense(10), or a function of a shape that returns a Layer"
    )


@_recipe
def Conv2d(outputs, kernel_size, stride=1, padding=0):  # noqa: N802
    """A convolution to ``outputs`` channels with a square kernel, at every ``stride``-th position of padded images."""
    conv2d = layers.conv2d
    if (stride, padding) != (1, 0):
        conv2d = functools.partial(conv2d, stride=stride, padding=padding)
    return lambda shape: Layer(conv2d, layers.conv2d_grad, ((outputs, shape[0], kernel_size, kernel_size), (outputs,)))


@_recipe
def Dense(outputs):  # noqa: N802
    """A fully connected layer."""
    return lambda shape: Layer(layers.dense, layers.dense_grad, ((math.prod(shape), outputs), (outputs,)))


@_recipe
def BatchNorm():  # noqa: N802
    """Batch normalisation of every channel."""
    norm = layers.batch_norm, layers.batch_norm_grad
    return lambda shape: Layer(*norm, shapes=(shape[:1], shape[:1]), initial=("ones", "zeros"), channels=shape[0])


@_recipe
def ReLU():  # noqa: N802
    """The rectifier."""
    return lambda shape: Layer(layers.relu, layers.relu_grad)


@_recipe
def AvgPool2d(size=2):  # noqa: N802
    """Mean over squares with side ``size``."""
    return lambda shape: Layer(_with_size(layers.avg_pool2d, size), layers.avg_pool2d_grad)


@_recipe
def MaxPool2d(size=2):  # noqa: N802
    """Maximum over squares with side ``size``."""
    return lambda shape: Layer(_with_size(layers.max_pool2d, size), layers.max_pool2d_grad)


@_recipe
def Dropout(p):  # noqa: N802
    """Dropout of each input with probability ``p``, in training."""
    return lambda shape: Layer(functools.partial(layers.dropout, p=p), layers.dropout_grad, random=True)


@_recipe
def Flatten():  # noqa: N802
    """Flattening of (C, H, W) into one row of C·H·W numbers."""
    return lambda shape: Layer(layers.flatten, layers.flatten_grad)


def _with_size(pool, size):
    return pool if size == 2 else functools.partial(pool, size=size)
