"""How a training step is spread over devices."""

from .balance import measure_loads
from .batch_statistics import BATCH_STATISTICS
from .data import get_params, loss_and_correct, split_batch, summed_loss, train_batch
from .graph_limits import check_precision
from .minibatch_queue import MinibatchQueue, preprocess_batch
from .replica import Replica
from .runner import Step
from .shards import check_loads
from .variants import submit_step
