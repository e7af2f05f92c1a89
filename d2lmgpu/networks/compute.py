"""Compute with a network: the logits, the loss and its gradients.

Kernels for the arrays' device do this if they have been tested and are correct; otherwise the code in as_written.py
does it. Kernels are tested on a small network: their results are compared with those of the layers that they replace.
"""

from types import NoneType

import numpy as np

from ..arguments import check_array, check_number, shown
from ..devices import array_module, on_device, zeros_in_one_buffer
from ..devices.trials import works
from ..exact import ExactSums
from ..kernels import cpu as cpu_kernels, cuda as cuda_kernels
from ..kernels.stages import to_the_end
from ..layers import make_sync_statistics, track_statistics
from .as_written import as_written, logits_as_written, loss_and_grads_as_written
from .build import AvgPool2d, Conv2d, Dense, Flatten, ReLU, channels, sequential
from .checks import check_drawing, check_images, check_layers, check_params, check_running, check_trainable
from .initial import init_params
from .known import LENET
from .losses import as_targets, find_loss, on_host

USE_CUDA_KERNELS = True
"""Whether GPUs use the CUDA kernels. With False, they use the layers as written, which is slow but simple."""

TRIED = sequential(
    (2, 15, 14), Conv2d(6, 3), ReLU(), AvgPool2d(), Conv2d(8, 3), AvgPool2d(), Flatten(), Dense(9), ReLU(), Dense(4)
)

TOLERANCES = {"float32": 1e-4, "mixed": 0.05}
"""The relative error allowed for gradients, by precision: factors are rounded to 24 or 11 bits."""


@on_device
def lenet(X, params):
    """The logits (N, 10) that LeNet with these parameters gives for images ``X`` (N, 1, 28, 28).

    Raises ValueError if shapes or dtypes do not fit together.
    """
    check_params("lenet: params", params, LENET)
    check_images("lenet: X", X, params, LENET)
    return logits(X, params)


@on_device
def logits(X, params, network=LENET, statistics=(), exact=False):
    """The network's outputs (N, classes) for images ``X`` (N, C, H, W).

    ``statistics``: the mean and variance of each batch norm layer, in one list (see `init_statistics`); without them, a
    layer uses those of ``X``. ``exact``: compute by granules (exact.py). The result is the same as that of
    `logits_as_written`, but with kernels/ this is several times faster.
    """
    kernels = kernels_for(X, params, exact) if len(X) and len(network) else None
    if kernels is not None:
        return kernels.outputs(X, params, network, statistics, exact)
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
    exact=None,
):
    """The loss summed over examples (0-d), and its gradients: a list like ``params``.

    ``X`` (N, C, H, W) has the parameters' dtype; ``y`` holds labels or targets (see `check_targets`). N may be 0: then
    loss and gradients are zero. ``loss``: a name in `LOSSES`, or a pair of functions (see `find_loss`). Gradients are
    in one buffer (see devices/flat.py), or are written to ``out``, a list like ``params``. ``scale``: a factor for all
    gradients (see parallel/loss_scale.py). ``draws``: the `Draws` for random layers, which a network with dropout
    needs; the same draws drop the same inputs. ``statistics``: batch norm's running means and variances (see
    `init_statistics`), which are moved in place towards those of ``X``. ``exact``: an `ExactSums`, which adds the
    gradients to ``out``, int64.

    The results are the same as those of `as_written`, but with kernels/ this is several times faster.

    Raises ValueError if shapes or dtypes do not fit together, for labels that are not among the network's classes, and
    for a network with dropout if there are no ``draws``; SumError, a ValueError, for numbers that exact sums cannot
    hold.
    """
    loss = find_loss(loss)
    check_layers(network)
    check_trainable(network)
    check_params("loss_and_grads: params", params, network)
    check_images("loss_and_grads: X", X, params, network)
    check_array("loss_and_grads: y", y)
    if out is not None and exact is None:
        check_params("loss_and_grads: out", out, network)
    scale = check_number("loss_and_grads: scale", scale, above=0)
    if not isinstance(exact, (ExactSums, NoneType)):
        raise ValueError(f"loss_and_grads: exact is {shown(exact)}; give an ExactSums, or None")
    loss.check(y, len(X), getattr(network, "classes", None))
    check_drawing(network, draws)
    if statistics is not None:
        check_running("loss_and_grads: statistics", statistics, network)
    xp, y = array_module(X), as_targets(y, X.dtype)
    grads = zeros_in_one_buffer(params) if out is None else out
    if len(X) == 0:
        for grad in grads:
            grad[...] = 0
        return xp.zeros((), X.dtype), grads
    kernels, sync = kernels_for(X, params, exact is not None), make_sync_statistics(channels(network), xp)
    how = {"sync_statistics": sync, "scale": scale, "draws": draws}
    how["loss"] = loss if kernels is None else loss.for_kernels(y)
    if exact is not None:
        how["exact"] = exact
        for grad in grads:
            grad[...] = 0
    compute = as_written if kernels is None else kernels.in_parts
    found = to_the_end(compute(X, y, params, network, grads, **how))  # the loss, and the number of right answers
    if exact is not None:
        exact.check()
    for mean, variance, own in zip(statistics[::2], statistics[1::2], sync, strict=True) if statistics else ():
        track_statistics(mean, variance, own.moments)
    return xp.asarray(found, None if exact else X.dtype)[..., 0].copy(), grads


def kernels_for(X, params, exact=False):
    """The module of kernels/ that computes with these plain arrays; None if the layers compute as they are written.

    Raises ValueError for ``exact`` sums if there are no kernels.
    """
    kernels = _kernels_for(X, params)
    if exact and kernels is None:
        raise ValueError(
            f"exact sums need kernels, which are not in use here for {X.dtype}: those of GPUs take float32, if they "
            "work (d2lmgpu devices --check tries them), those of CPUs float64, too; use these, or sums='float'"
        )
    return kernels


def _kernels_for(X, params):
    kernels, dtypes = cpu_kernels, (np.float32, np.float64)
    if array_module(X) is not np:
        kernels, dtypes = cuda_kernels if USE_CUDA_KERNELS else None, (np.float32,)
    if X.dtype not in dtypes or not all(param.dtype == X.dtype for param in params):
        return None
    if kernels is cuda_kernels and not kernels_work(f"gpu({cuda_kernels.current_card()})", array_module(X)):
        return None
    return kernels


def kernels_work(name, xp, precision="float32"):
    """Whether kernels on the current device compute the same as the layers, which is tested once.

    ``name``: the device's name, for example "gpu(0)". ``xp``: its array module.
    """
    tried = "the kernels" if precision == "float32" else f"kernels with precision {precision}"
    instead = "the layers compute as they are written, which is slow"
    return works(name, tried, instead, lambda: try_kernels(xp, precision))


def try_kernels(xp, precision="float32"):
    """Compute a small network's loss and gradients; RuntimeError if they differ from the layers' in float64."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(0, 1, (5, *TRIED.input_shape)).astype(np.float32), rng.integers(0, TRIED.classes, 5)
    params = [param + rng.normal(0, 0.1, param.shape) for param in init_params(init="he", network=TRIED)]
    loss, grads = loss_and_grads_as_written(X.astype(float), y, [param.astype(float) for param in params], TRIED)
    places = [xp.array(param.astype(np.float32)) for param in params]
    found = [xp.zeros(param.shape, np.float32) for param in params]
    X, y = xp.array(X), xp.array(y)
    kernels, how = (cpu_kernels, {}) if xp is np else (cuda_kernels, {"precision": precision})
    there_and_back = kernels.Pass(TRIED, places, X.shape[1:], X.dtype, len(X), False, True, None, {}, **how)
    found_loss = to_the_end(there_and_back.forward(X, places, y))[0]
    to_the_end(there_and_back.backward(places, found))
    pairs = zip([found_loss, *found], [loss, *grads], strict=True)
    error = max(np.linalg.norm(on_host(one) - other) / np.linalg.norm(other) for one, other in pairs)
    if not error <= TOLERANCES[precision]:
        raise RuntimeError(f"gradients have a relative error of {error:.2g}")
