"""What programs for the CPU and for GPUs have in common: cutting a network into stages, and work in parts."""

import functools

from ..devices import array_module


def make_stages(network, params, x, one_image, make_stage):
    """The stages of a network and, as slices, which parameters belong to each.

    ``x`` is the first stage's input, ``one_image`` (1, C, H, W) any image like
    those in it. ``make_stage(layers, x, shapes, input_grad)`` makes the stage that
    does the first of ``layers``, and says how many of them it does; ``shapes`` are
    the layers' outputs for one image. ``input_grad``: whether something before it
    has parameters, and needs the gradient of its input. Raises ValueError, or what
    the layers raise, if the sizes do not fit together.
    """
    if [param.shape for param in params] != [shape for layer in network for shape in layer.shapes]:
        raise ValueError(f"parameters of shapes {[param.shape for param in params]} are not those of the network")
    shapes = output_shapes(network, params, one_image)
    for layer, (C, *_) in zip(network, shapes, strict=True):
        if layer.channels not in (0, C):  # arrays would be broadcast: a kernel reads whatever lies there
            raise ValueError(f"batch norm of {layer.channels} channels cannot take images of {C}")
    stages, owners = [], []
    i = first = 0
    while i < len(network):
        input_grad = any(layer.shapes for layer in network[:i])
        stage, taken = make_stage(network[i:], x, shapes[i:], input_grad)
        count = sum(len(layer.shapes) for layer in network[i : i + taken])
        stages.append(stage)
        owners.append(slice(first, first + count))
        x, i, first = stage.y, i + taken, first + count
    return stages, owners


def output_shapes(network, params, x):
    """The shape of each layer's output for one image: found by sending ``x`` (1, C, H, W) through the layers."""
    rest = iter(params)
    shapes = []
    for layer in network:
        x, _ = layer.forward(x, *(next(rest) for _ in layer.shapes))
        shapes.append(x.shape[1:])
    return shapes


def function_of(layer):
    """The layer's forward function and its options, if it is a `functools.partial`."""
    if isinstance(layer.forward, functools.partial):
        return layer.forward.func, layer.forward.keywords
    return layer.forward, {}


def to_the_end(parts):
    """Run a generator without pausing; returns its result."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            return end.value


def no_images(X, grads, ready, sync_statistics):
    """What `in_parts` does on a device that has no images: a generator that pauses as often as the others' do.

    ``X`` has none. Returns a loss and a number of right answers, both 0, as an array.
    """
    for share in [sync.moments for sync in sync_statistics] + [sync.sums for sync in reversed(sync_statistics)]:
        share[...] = 0
        yield
    for grad in grads:
        grad[...] = 0
    if ready is not None:
        ready(0)
    return array_module(X).zeros(2, X.dtype)
