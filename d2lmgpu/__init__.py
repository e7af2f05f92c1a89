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

from . import blas as blas  # before NumPy, whose BLAS may read then how many threads it is to have

# isort: split
import typing as _typing

from . import collectives as collectives, plans as plans
from .cluster import cluster as cluster
from .collectives import allreduce as allreduce
from .data import minibatches as minibatches, to_float as to_float
from .devices import (
    DeviceArray as DeviceArray,
    DeviceError as DeviceError,
    DeviceMismatchError as DeviceMismatchError,
    can_use_gpu as can_use_gpu,
    choose_devices as choose_devices,
    cpu as cpu,
    device_table as device_table,
    gpu as gpu,
    num_gpus as num_gpus,
    put as put,
    record_transfers as record_transfers,
    synchronize as synchronize,
    to_host as to_host,
    try_all_gpus as try_all_gpus,
    try_gpu as try_gpu,
)
from .fashion_mnist import DataError as DataError, load_fashion_mnist as load_fashion_mnist
from .images import load_image_data as load_image_data, load_image_folder as load_image_folder
from .layers import (
    avg_pool2d as avg_pool2d,
    avg_pool2d_grad as avg_pool2d_grad,
    conv2d as conv2d,
    conv2d_grad as conv2d_grad,
    dense as dense,
    dense_grad as dense_grad,
    flatten as flatten,
    flatten_grad as flatten_grad,
    max_pool2d as max_pool2d,
    max_pool2d_grad as max_pool2d_grad,
    relu as relu,
    relu_grad as relu_grad,
    softmax_cross_entropy as softmax_cross_entropy,
    softmax_cross_entropy_grad as softmax_cross_entropy_grad,
    squared_error as squared_error,
    squared_error_grad as squared_error_grad,
)
from .live_plot import LivePlot as LivePlot
from .monitor import Callback as Callback, TensorBoard as TensorBoard
from .names import no_attribute as _no_attribute
from .networks import init_params as init_params, lenet as lenet, loss_and_grads as loss_and_grads
from .optimizers import init_optimizer as init_optimizer, sgd as sgd
from .own_loop import Animator as Animator, Timer as Timer
from .parallel import (
    MinibatchQueue as MinibatchQueue,
    get_params as get_params,
    split_batch as split_batch,
    train_batch as train_batch,
)
from .plans import play as play
from .plots import plot_history as plot_history
from .sweeps import (
    grid as grid,
    load_sweep as load_sweep,
    plot_curves as plot_curves,
    plot_sweep as plot_sweep,
    run_trial as run_trial,
    sweep as sweep,
)
from .training import (
    History as History,
    Model as Model,
    Settings as Settings,
    confusion_matrix as confusion_matrix,
    evaluate as evaluate,
    load_model as load_model,
    predict as predict,
    train as train,
)

__version__ = "0.2.0"

if not _typing.TYPE_CHECKING:  # who checks types would take any name for known

    def __getattr__(name):  # Python calls it for names that are not here
        raise _no_attribute(f"module {__name__!r} has no attribute {name!r}", name)
