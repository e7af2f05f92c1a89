"""How a training step is spread over devices."""

from .balance import measure_loads
from .data import get_params, split_batch, train_batch
from .graph_limits import check_precision
from .minibatch_queue import MinibatchQueue, preprocess_batch
from .shards import check_loads
