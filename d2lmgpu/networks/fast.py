"""Enter the kernels for each kind of device in `KERNELS`, those of GPUs with a test.

The test takes a small network: the kernels' results are compared with those of the layers that they replace.
"""

import numpy as np

from ..devices.probes import probe
from ..kernels import KERNELS, Kernels, cpu, cuda
from .build import AvgPool2d, Conv2d, Dense, Flatten, ReLU, sequential
from .known import init_params
from .losses import on_host
from .plain import loss_and_grads_as_written

TRIED = sequential(
    (2, 15, 14), Conv2d(6, 3), ReLU(), AvgPool2d(), Conv2d(8, 3), AvgPool2d(), Flatten(), Dense(9), ReLU(), Dense(4)
)

TOLERANCES = {"float32": 1e-4, "mixed": 0.05}
"""The relative error allowed for gradients, by precision: factors are rounded to 24 or 11 bits."""


def kernels_work(name, xp, precision="float32"):
    """Whether kernels on the current device compute the same as the layers, which is tested once.

    ``name``: the device's name, for example "gpu(0)". ``xp``: its array module.
    """
    tried = "the kernels" if precision == "float32" else f"kernels with precision {precision}"
    instead = "the layers compute as they are written, which is slow"
    return probe(name, tried, instead, lambda: try_kernels(xp, precision))


def try_kernels(xp, precision="float32"):
    """Compute a small network's loss and gradients; RuntimeError if they differ from the layers' in float64."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(0, 1, (5, *TRIED.input_shape)).astype(np.float32), rng.integers(0, TRIED.classes, 5)
    params = [param + rng.normal(0, 0.1, param.shape) for param in init_params(init="he", network=TRIED)]
    loss, grads = loss_and_grads_as_written(X.astype(float), y, [param.astype(float) for param in params], TRIED)
    places = [xp.array(param.astype(np.float32)) for param in params]
    found = [xp.zeros(param.shape, np.float32) for param in params]
    X, y = xp.array(X), xp.array(y)
    kernels, options = (cpu, {}) if xp is np else (cuda, {"precision": precision})
    there_and_back = kernels.Pass(TRIED, places, X.shape[1:], X.dtype, len(X), False, True, None, {}, **options)
    found_loss = there_and_back.forward(X, places, y)[0]
    there_and_back.backward(places, found)
    pairs = zip([found_loss, *found], [loss, *grads], strict=True)
    error = max(np.linalg.norm(on_host(one) - other) / np.linalg.norm(other) for one, other in pairs)
    if not error <= TOLERANCES[precision]:
        raise RuntimeError(f"gradients have a relative error of {error:.2g}")


def _work(precision="float32"):
    """Whether the kernels of the current card work, with this precision."""
    import cupy

    return kernels_work(f"gpu({cuda.current_card()})", cupy, precision)


KERNELS["cpu"] = Kernels(cpu, (np.float32, np.float64))
KERNELS["gpu"] = Kernels(cuda, work=_work)
