"""How a training step is spread over devices."""

from .data import get_params, split_batch, train_batch, train_shards
from .feed import Feeder

__all__ = ["Feeder", "get_params", "split_batch", "train_batch", "train_shards"]
