"""Compute with a network: the logits, the loss and its gradients.

Kernels for the arrays' device do this if they have been tested and are correct; otherwise the code in plain.py
does it (see kernels/).
"""

import numpy as np

from ..base.arguments import check_array, check_number
from ..devices import array_module, on_device, zeros_in_one_buffer
from ..kernels import KERNELS
from ..layers import track_statistics, zero_moments
from .build import channels
from .checks import check_drawing, check_images, check_layers, check_params, check_running, check_trainable
from .known import LENET
from .losses import as_targets, find_loss
from .plain import logits_as_written, sums_as_written

USE_CUDA_KERNELS = True
"""Whether GPUs use the CUDA kernels. With False, they use the layers as written, which is slow but simple."""


@on_device
def lenet(X, params):
    """The logits (N, 10) that LeNet with these parameters gives for images ``X`` (N, 1, 28, 28).

    Raises ValueError if shapes or dtypes do not fit together.
    """
    check_params("lenet: params", params, LENET)
    check_images("lenet: X", X, params, LENET)
    return logits(X, params)


@on_device
def logits(X, params, network=LENET, statistics=()):
    """The network's outputs (N, classes) for images ``X`` (N, C, H, W).

    ``statistics``: the mean and variance of each batch norm layer, in one list (see `init_statistics`); without them, a
    layer uses those of ``X``. The result is the same as that of `logits_as_written`, but with kernels/ this is several
    times faster.
    """
    kernels = kernels_for(X, params) if len(X) and len(network) else None
    if kernels is not None:
        return kernels.outputs(X, params, network, statistics)
    return logits_as_written(X, params, network, statistics)


@on_device
def loss_and_grads(
    X,
    y,
    params,
    network=LENET,
    out=None,
    scale=1.0,
    draws=None,
    loss: str | tuple = "cross_entropy",
    statistics=None,
):
    """The loss summed over examples (0-d), and its gradients: a list like ``params``.

    ``X`` (N, C, H, W) has the parameters' dtype; ``y`` holds labels or targets (see `check_targets`). N may be 0: then
    loss and gradients are zero. ``loss``: a name in `LOSSES`, or a pair of functions (see `find_loss`). Gradients are
    in one buffer (see devices/transfer.py), or are written to ``out``, a list like ``params``. ``scale``: a factor for
    all gradients (see networks/mixed.py). ``draws``: the `Draws` for random layers, which a network with dropout needs;
    the same draws drop the same inputs. ``statistics``: batch norm's running means and variances (see
    `init_statistics`), which are moved in place towards those of ``X``.

    The results are the same as those of `loss_and_grads_as_written`, but with kernels/ this is several times faster.

    Raises ValueError if shapes or dtypes do not fit together, for labels that are not among the network's classes, and
    for a network with dropout if there are no ``draws``.
    """
    loss = find_loss(loss)
    check_layers(network)
    check_trainable(network)
    check_params("loss_and_grads: params", params, network)
    check_images("loss_and_grads: X", X, params, network)
    check_array("loss_and_grads: y", y)
    if out is not None:
        check_params("loss_and_grads: out", out, network)
    scale = check_number("loss_and_grads: scale", scale, above=0)
    loss.check(y, len(X), getattr(network, "classes", None))
    check_drawing(network, draws)
    if statistics is not None:
        check_running("loss_and_grads: statistics", statistics, network)
    xp, y = array_module(X), as_targets(y, X.dtype)
    grads = zeros_in_one_buffer(params) if out is None else out
    moments = zero_moments(channels(network), xp)
    found = sums_and_grads(X, y, params, network, grads, loss, scale, draws, moments)
    for mean, variance, own in zip(statistics[::2], statistics[1::2], moments, strict=True) if statistics else ():
        track_statistics(mean, variance, own)
    return xp.asarray(found, X.dtype)[..., 0].copy(), grads


def sums_and_grads(X, y, params, network, grads, loss, scale=1.0, draws=None, moments=()):
    """Like `loss_and_grads`, without checks: write ``grads``, and return the loss and the number of right answers.

    ``moments``: an array (3, C) for each batch norm layer, to which the moments of its input are written.
    """
    if len(X) == 0:
        for array in [*grads, *moments]:
            array.fill(0)
        return array_module(X).zeros(2, X.dtype)
    kernels = kernels_for(X, params)
    if kernels is None:
        return sums_as_written(X, y, params, network, grads, loss, scale, draws, moments)
    options = {"moments": moments, "scale": scale, "draws": draws, "loss": loss.for_kernels(y)}
    return kernels.loss_and_grads(X, y, params, network, grads, **options)


def kernels_for(X, params):
    """The module of kernels/ that computes with these plain arrays; None if the layers compute as they are written."""
    kind = "cpu" if array_module(X) is np else "gpu"
    kernels = KERNELS.get(kind) if kind == "cpu" or USE_CUDA_KERNELS else None
    if kernels and all(array.dtype in kernels.dtypes and array.dtype == X.dtype for array in (X, *params)):
        return kernels.module if kernels.work() else None
    return None
