"""d2lmgpu: multi-GPU training from scratch, to learn from and then to trust.

``import d2lmgpu as d2l``. Importing it starts no GPU and does not import CuPy.

The functions you start with (`train` and `Settings`, `evaluate`, `predict`, the device functions, the textbook's
functions, `load_...`) check their arguments. Each error message says in one line what was given and what is allowed:
ValueError for arguments that make no sense, DeviceMismatchError for arrays on different devices, DeviceError for
devices that do not exist or are misused, OSError for files. A function's own docstring names any other errors. Layers
and other inner functions leave it to NumPy to reject wrong arguments. Numbers and flags may be Python's or NumPy's, and
a list of numbers or names may also be a tuple, an array, or a column of a table.
"""

import os as _os
import typing as _typing

_os.environ.setdefault("VECLIB_MAXIMUM_THREADS", "1")  # of Accelerate, NumPy's BLAS on Macs, which reads it when loaded

# isort: split

from . import collectives as collectives, plans as plans
from .base.names import no_attribute as _no_attribute
from .cluster import cluster as cluster
from .collectives import allreduce as allreduce
from .data.fashion_mnist import DataError as DataError, load_fashion_mnist as load_fashion_mnist
from .data.images import load_image_data as load_image_data, load_image_folder as load_image_folder
from .data.minibatches import minibatches as minibatches, to_float as to_float
from .devices.array import DeviceArray as DeviceArray
from .devices.choose import (
    can_use_gpu as can_use_gpu,
    choose_devices as choose_devices,
    cpu as cpu,
    gpu as gpu,
    num_gpus as num_gpus,
    synchronize as synchronize,
    try_all_gpus as try_all_gpus,
    try_gpu as try_gpu,
)
from .devices.discovery import device_table as device_table
from .devices.errors import DeviceError as DeviceError, DeviceMismatchError as DeviceMismatchError
from .devices.records import record_transfers as record_transfers
from .devices.transfer import put as put, to_host as to_host
from .experiments.plots import plot_curves as plot_curves, plot_sweep as plot_sweep
from .experiments.sweeps import sweep as sweep
from .experiments.trials import grid as grid, load_sweep as load_sweep, run_trial as run_trial
from .layers.convolution import conv2d as conv2d, conv2d_grad as conv2d_grad
from .layers.dense import dense as dense, dense_grad as dense_grad, flatten as flatten, flatten_grad as flatten_grad
from .layers.elementwise import relu as relu, relu_grad as relu_grad
from .layers.loss import (
    softmax_cross_entropy as softmax_cross_entropy,
    softmax_cross_entropy_grad as softmax_cross_entropy_grad,
    squared_error as squared_error,
    squared_error_grad as squared_error_grad,
)
from .layers.pooling import (
    avg_pool2d as avg_pool2d,
    avg_pool2d_grad as avg_pool2d_grad,
    max_pool2d as max_pool2d,
    max_pool2d_grad as max_pool2d_grad,
)
from .networks import init_params as init_params, lenet as lenet, loss_and_grads as loss_and_grads
from .networks.optimizers import init_optimizer as init_optimizer, sgd as sgd
from .parallel.data_parallel import train_batch as train_batch
from .parallel.minibatch_queue import MinibatchQueue as MinibatchQueue
from .parallel.step import get_params as get_params, split_batch as split_batch
from .pictures.plots import plot_history as plot_history
from .plans import play as play
from .training.accuracy import confusion_matrix as confusion_matrix, evaluate as evaluate, predict as predict
from .training.begin import train as train
from .training.history import History as History
from .training.live_plot import LivePlot as LivePlot
from .training.model import Model as Model, load_model as load_model
from .training.monitor import Callback as Callback, TensorBoard as TensorBoard
from .training.notebook import Animator as Animator, Timer as Timer
from .training.settings import Settings as Settings

__version__ = "0.2.0"

if not _typing.TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name):  # Python calls it for names that are not here
        raise _no_attribute(f"module {__name__!r} has no attribute {name!r}", name)
