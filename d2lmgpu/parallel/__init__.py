"""How a training step is spread over devices."""

from .data import get_params, split_batch, train_batch, train_shards
from .eager import EagerStep
from .feed import Feeder, ahead
from .graph import GraphStep

__all__ = ["EagerStep", "Feeder", "GraphStep", "ahead", "get_params", "split_batch", "train_batch", "train_shards"]
