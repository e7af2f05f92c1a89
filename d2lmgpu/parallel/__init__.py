"""How a training step is spread over devices."""

from .data import get_params, split_batch, submit_step, summed_loss, train_batch
from .eager import EagerStep
from .feed import Feeder
from .graph import GraphStep, check_precision

__all__ = [
    "EagerStep",
    "Feeder",
    "GraphStep",
    "check_precision",
    "get_params",
    "split_batch",
    "submit_step",
    "summed_loss",
    "train_batch",
]
