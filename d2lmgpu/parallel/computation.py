"""What a device computes in a training step: a network's loss and gradients, and what becomes of their sums.

                float32                 mixed                            exact
    weights     as they are             rounded to float16               as they are
    gradients   float32                 float32, times a scale           int64, in whole units
    their sums  used as they are        used only if all are finite      turned back into floats

After the allreduce all devices hold the same sums. So each device decides by itself, and all decide the same.
"""

import numpy as np

from ..devices import DeviceArray, array_module, parts_of
from ..layers.batch_norm import track_statistics
from ..layers.exact import ExactSums, as_floats, slices_of_granules
from ..networks import CROSS_ENTROPY, LENET, channels, half_weights, in_half, sums_and_grads
from ..networks.mixed import LossScale, are_finite


class Computation:
    """The computation of a `Replica` on ``device``, in float32 (or the parameters' dtype).

    ``statistics``: batch norm's running means and variances, on the device, which follow the device's own images or, if
    they are ``aggregated``, the images of all devices: moments are counts, sums and sums of squares, so the sums over
    devices weight every example alike. ``shared``: arrays that are summed over devices together with the gradients.
    ``scale``: the `LossScale`.
    """

    def __init__(self, device, network=LENET, loss=CROSS_ENTROPY, statistics=(), aggregated=False):
        self.device, self.network, self.loss, self.statistics = device, network, loss, statistics
        self.scale = LossScale(mixed=False)
        moments = device.buffer("moments", 3 * sum(channels(network)), np.float64)
        self.moments, start = [], 0
        for C in channels(network):
            own, start = moments[start : start + 3 * C].reshape(3, C), start + 3 * C
            self.moments.append(own)
        self.shared = [DeviceArray(moments, device)] if aggregated and self.moments else []
        self.running = list(zip(statistics[::2], statistics[1::2], self.moments, strict=False))

    def dtype_of_grads(self, dtype):
        """The dtype of gradients, given that of the parameters."""
        return dtype

    def loss_and_grads(self, X, y, params, grads, batch_size, draws):
        """Write ``grads``; return the loss and the number of right answers. Runs on the device, with plain arrays.

        ``batch_size``: the number of examples on all devices together.
        """
        found = sums_and_grads(X, y, params, self.network, grads, self.loss, self.scale.scale, draws, self.moments)
        return found.astype(X.dtype)

    def arrays(self):
        """What lasts from step to step besides ``statistics``, for a checkpoint: NumPy arrays."""
        return self.scale.arrays()

    def set_arrays(self, arrays):
        """Restore what `arrays` returned."""
        self.scale.set_arrays(arrays)

    def final(self, params, grads):
        """The summed gradients, or None if they cannot be used, and by what they are multiplied. Runs on the device."""
        for mean, variance, own in self.running:
            track_statistics(mean.raw, variance.raw, own)
        return grads, 1


class MixedComputation(Computation):
    """A `Computation` whose products have float16 factors."""

    def __init__(self, device, network=LENET, *args):
        super().__init__(device, in_half(network), *args)
        self.scale = LossScale(mixed=True)

    def loss_and_grads(self, X, y, params, grads, batch_size, draws):
        with self.scale.quiet():
            return super().loss_and_grads(X, y, half_weights(params), grads, batch_size, draws)

    def final(self, params, grads):
        super().final(params, grads)
        scale = self.scale.scale
        return grads if self.scale.adapt(are_finite(grads)) else None, scale


class ExactComputation(Computation):
    """A `Computation` that adds up over examples as integers, granule by granule (layers/exact.py)."""

    def dtype_of_grads(self, dtype):
        return np.dtype(np.int64)

    def loss_and_grads(self, X, y, params, grads, batch_size, draws):
        sums, found = ExactSums(batch_size, f"on {self.device}"), array_module(X).zeros(2)
        flat = self.device.buffer("a granule's gradients", sum(param.size for param in params), params[0].dtype)
        own = parts_of(flat, params)
        for total in grads:
            total.fill(0)
        for part in slices_of_granules(len(X)):
            here = draws and draws.after(part.start)
            values = sums_and_grads(X[part], y[part], params, self.network, own, self.loss, 1, here, self.moments)
            found = found + sums.losses(values)
            sums.add_gradients(grads, own)
        return found

    def final(self, params, grads):
        return [as_floats(grad, param.dtype) for grad, param in zip(grads, params, strict=True)], 1


BATCH_STATISTICS = ("local", "aggregated")
"""The images over which batch norm takes the mean and variance of its running statistics.

local: each device's own images (the textbook). aggregated: the images of all devices (MATLAB's guide). In training it
normalises over a device's own images in either case.
"""

PRECISIONS = {"float32": Computation, "mixed": MixedComputation}


def computation_for(network, precision="float32", sums="float"):
    """The class of computations of a network with this precision and these sums; not both "mixed" and "exact".

    Raises ValueError for exact sums and a network with batch norm.
    """
    if sums == "exact" and channels(network):
        raise ValueError(
            "sums are exact, but the network has batch norm, whose results depend on how examples are split; use a "
            "network without it, or sums='float'"
        )
    return ExactComputation if sums == "exact" else PRECISIONS[precision]
