"""How a training step is spread over devices."""

from .data_parallel import train_batch as train_batch
from .loads import measure_loads as measure_loads
from .minibatch_queue import MinibatchQueue as MinibatchQueue
from .shards import check_loads as check_loads
from .step import get_params as get_params, split_batch as split_batch
