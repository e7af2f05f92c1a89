"""How a training step is spread over devices."""

from .data import get_params, split_batch, train_batch

__all__ = ["get_params", "split_batch", "train_batch"]
