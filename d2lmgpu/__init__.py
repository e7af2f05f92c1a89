"""d2lmgpu: multi-GPU training from scratch, to learn from and then to trust.

``import d2lmgpu as d2l``. Importing starts no GPU and imports no CuPy.

What one begins with (`train` and `Settings`, `evaluate`, `predict`, devices and what
puts arrays on them, the textbook's functions, `load_...`) checks its arguments. Its
errors say in a line what was given and what is allowed: ValueError for arguments
that make no sense, DeviceMismatchError for arrays of different devices, DeviceError
for devices that do not exist or are used against the rules, OSError for files. Other
errors are in a function's own docstring. Layers and other inner functions leave wrong
arguments to NumPy.
"""

from . import signals as signals  # first, for an interrupt during all other imports

# isort: split
from . import collectives, plans
from .cluster import cluster
from .collectives import allreduce
from .data import minibatches, to_float
from .devices import (
    DeviceArray,
    DeviceError,
    DeviceMismatchError,
    can_use_gpu,
    choose_devices,
    cpu,
    device_table,
    gpu,
    num_gpus,
    put,
    record_transfers,
    synchronize,
    to_host,
    try_all_gpus,
    try_gpu,
)
from .fashion_mnist import DataError, load_fashion_mnist
from .images import load_image_data, load_image_folder
from .layers import (
    avg_pool2d,
    avg_pool2d_grad,
    conv2d,
    conv2d_grad,
    dense,
    dense_grad,
    flatten,
    flatten_grad,
    max_pool2d,
    max_pool2d_grad,
    relu,
    relu_grad,
    softmax_cross_entropy,
    softmax_cross_entropy_grad,
    squared_error,
    squared_error_grad,
)
from .live_plot import LivePlot
from .monitor import Callback, TensorBoard
from .networks import init_params, lenet, loss_and_grads
from .optimizers import init_optimizer, sgd
from .own_loop import Animator, Timer
from .parallel import MinibatchQueue, get_params, split_batch, train_batch
from .plans import play
from .plots import plot_history
from .sweeps import grid, load_sweep, plot_curves, plot_sweep, run_trial, sweep
from .training import History, Model, Settings, confusion_matrix, evaluate, load_model, predict, train

__version__ = "0.1.0"
