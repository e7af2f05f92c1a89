"""What a replica computes with: its parameters as they are, or in mixed precision.

Both have ``params``, which layers are given, the ``network``, and ``scale``, by which
gradients are multiplied.
"""

import contextlib

from ..devices import DeviceArray
from ..networks import half_weights, in_half
from .loss_scale import LossScale


class FullPrecision:
    """The parameters as they are, in whatever dtype they have."""

    scale = 1

    def __init__(self, params, network):
        self.params, self.network = params, network

    def quiet(self):
        """A context for work on the device, in which NumPy warns as always."""
        return contextlib.nullcontext()

    def accept(self, grads):
        """Whether to use the summed gradients."""
        return True

    def follow(self):
        """Runs on the device, after the parameters have changed."""

    def arrays(self):
        """The state, for a checkpoint."""
        return []

    def set_arrays(self):
        """Take what `arrays` gave."""


class MixedPrecision(LossScale):
    """Copies of the parameters, weights rounded to float16, and a loss that is scaled; the parameters are the masters.

    See networks/mixed.py and loss_scale.py.
    """

    def __init__(self, params, network, device):
        super().__init__()
        self.masters, self.network = params, in_half(network)
        raws = device.submit(self._rounded).result()
        self.params = [DeviceArray(raw, device) for raw in raws]

    def follow(self):
        """Runs on the device, after the parameters have changed: rounds them anew."""
        for copy, rounded in zip(self.params, self._rounded(), strict=True):
            if copy.raw is not rounded:  # what is not rounded is the parameter itself
                copy.raw[...] = rounded

    def _rounded(self):
        return half_weights([param.raw for param in self.masters])
