"""The end of a plan's last stage, which affects memory: the loss and its targets."""

from typing import NamedTuple

import numpy as np

from ..networks.losses import CROSS_ENTROPY, Loss


class Objective(NamedTuple):
    """The end of the last stage: its ``loss``, and the ``shape``, for one example, and ``dtype`` of the targets."""

    loss: Loss = CROSS_ENTROPY
    shape: tuple = ()
    dtype: str = "int64"

    @classmethod
    def of(cls, loss, y, dtype):
        """The objective of a `Loss` and of targets ``y`` (N, ...), where parameters have this ``dtype``."""
        return cls(loss, y.shape[1:], np.dtype(dtype).name if y.dtype.kind == "f" else "int64")

    def zeros(self, n):
        """Targets of ``n`` examples, all zero."""
        return np.zeros((n, *self.shape), self.dtype)


CLASSES = Objective()
"""The usual objective: the cross-entropy of labels."""
