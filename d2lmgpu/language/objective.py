"""What a plan's last stage ends with, which affects memory: the loss and its targets."""

from typing import NamedTuple

import numpy as np

from ..networks.losses import CROSS_ENTROPY, Loss


class Objective(NamedTuple):
    """What the last stage ends with: the ``loss``, of targets of this ``shape``, for one example, and ``dtype``."""

    loss: Loss = CROSS_ENTROPY
    shape: tuple = ()
    dtype: str = "int64"

    @classmethod
    def of(cls, loss, y, dtype):
        """That of a `Loss` and of targets ``y`` (N, ...), where parameters have this dtype."""
        return cls(loss, y.shape[1:], np.dtype(dtype).name if y.dtype.kind == "f" else "int64")

    def zeros(self, n):
        """Targets of ``n`` examples, all zero."""
        return np.zeros((n, *self.shape), self.dtype)


CLASSES = Objective()
"""The usual one: the cross-entropy of labels."""
