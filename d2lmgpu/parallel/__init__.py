"""How a training step is spread over devices."""

from .balance import measure_loads
from .data import (
    BATCH_STATISTICS,
    check_batch_statistics,
    get_params,
    split_batch,
    submit_step,
    summed_loss,
    train_batch,
)
from .eager import EagerStep
from .graph import GraphStep
from .graph_limits import check_precision
from .minibatch_queue import MinibatchQueue
from .preprocess import preprocess_batch
from .replica import Replica
from .shards import check_loads

__all__ = [
    "BATCH_STATISTICS",
    "EagerStep",
    "GraphStep",
    "MinibatchQueue",
    "Replica",
    "check_batch_statistics",
    "check_loads",
    "check_precision",
    "get_params",
    "measure_loads",
    "preprocess_batch",
    "split_batch",
    "submit_step",
    "summed_loss",
    "train_batch",
]
