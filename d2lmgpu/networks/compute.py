"""Compute with a network: the logits, the loss and its gradients.

`Kernels` for the arrays' device do this, those of GPUs if they have been tried and are correct; otherwise the code in
plain.py does it. To try them takes a small network: their results are compared with those of the layers that they
replace.
"""

from typing import Protocol

import numpy as np

from ..base.arguments import check_array, check_number
from ..devices import array_module, on_device, zeros_in_one_buffer
from ..devices.probes import probe
from ..layers import track_statistics, zero_moments
from .build import AvgPool2d, Conv2d, Dense, Flatten, ReLU, channels, sequential
from .checks import check_drawing, check_images, check_layers, check_params, check_running, check_trainable
from .known import LENET, init_params
from .losses import as_targets, find_loss, on_host
from .plain import logits_as_written, loss_and_grads_as_written, sums_as_written


class Kernels(Protocol):
    """What networks and plans ask of the kernels for a kind of device: kernels/cpu and kernels/cuda are two of these.

    ``DTYPES``: those of the arrays that they take.
    """

    DTYPES: tuple

    def loss_and_grads(self, X, y, params, network, grads, ready, moments, scale, draws, loss, dx):
        """Write the gradients; return an array of two, the loss and the number of right answers."""

    def outputs(self, X, params, network, statistics):
        """The network's outputs (N, ...), a new array."""

    def Pass(self, layers, params, shape, dtype, N, input_grad, with_loss, loss, lists):  # noqa: N802
        """What takes N images of ``shape`` forward through layers, and back later."""


KERNELS: dict[str, Kernels] = {}
"""By kind of device, "cpu" and "gpu"; networks/__init__.py enters them."""

TRIED = sequential(
    (2, 15, 14), Conv2d(6, 3), ReLU(), AvgPool2d(), Conv2d(8, 3), AvgPool2d(), Flatten(), Dense(9), ReLU(), Dense(4)
)

TOLERANCES = {"float32": 1e-4, "mixed": 0.05}
"""The relative error allowed for gradients, by precision: factors are rounded to 24 or 11 bits."""

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
    X, y, params, network=LENET, out=None, scale=1.0, draws=None, loss: str | tuple = "cross_entropy", statistics=None
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


def kernels_for(X, params) -> Kernels | None:
    """The kernels that compute with these plain arrays; None if the layers compute as they are written."""
    kind = "cpu" if array_module(X) is np else "gpu"
    is_wanted = kind == "cpu" or USE_CUDA_KERNELS
    if not is_wanted or X.dtype not in KERNELS[kind].DTYPES or any(param.dtype != X.dtype for param in params):
        return None
    return KERNELS[kind] if kind == "cpu" or kernels_work(kind) else None


def kernels_work(kind, precision="float32"):
    """Whether the kernels for this kind of device compute the same as the layers on the current one; tried once."""
    xp, name = np, "cpu(0)"
    if kind == "gpu":
        import cupy as xp

        name = f"gpu({xp.cuda.runtime.getDevice()})"
    tried = "the kernels" if precision == "float32" else f"kernels with precision {precision}"
    instead = "the layers compute as they are written, which is slow"
    return probe(name, tried, instead, lambda: _try_kernels(kind, xp, precision))


def _try_kernels(kind, xp, precision):
    """Compute a small network's loss and gradients; RuntimeError if they differ from the layers' in float64."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(0, 1, (5, *TRIED.input_shape)).astype(np.float32), rng.integers(0, TRIED.classes, 5)
    params = [param + rng.normal(0, 0.1, param.shape) for param in init_params(init="he", network=TRIED)]
    loss, grads = loss_and_grads_as_written(X.astype(float), y, [param.astype(float) for param in params], TRIED)
    places = [xp.array(param.astype(np.float32)) for param in params]
    found = [xp.zeros(param.shape, np.float32) for param in params]
    X, y, options = xp.array(X), xp.array(y), {"precision": precision} if kind == "gpu" else {}
    there_and_back = KERNELS[kind].Pass(TRIED, places, X.shape[1:], X.dtype, len(X), False, True, None, {}, **options)
    found_loss = there_and_back.forward(X, places, y)[0]
    there_and_back.backward(places, found)
    pairs = zip([found_loss, *found], [loss, *grads], strict=True)
    error = max(np.linalg.norm(on_host(one) - other) / np.linalg.norm(other) for one, other in pairs)
    if not error <= TOLERANCES[precision]:
        raise RuntimeError(f"gradients have a relative error of {error:.2g}")
