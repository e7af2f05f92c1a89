"""Readable CUDA kernels (the ``.cu`` files), and how they are launched. Importing it needs neither CuPy nor a GPU."""

from .convolution import Convolution as Convolution
from .launch import (
    TENSOR_CORES as TENSOR_CORES,
    current_card as current_card,
    finish_card as finish_card,
    optimize as optimize,
    read as read,
    run as run,
)
from .program import (
    DTYPES as DTYPES,
    Pass as Pass,
    Program as Program,
    loss_and_grads as loss_and_grads,
    outputs as outputs,
)
from .stages import PRECISIONS as PRECISIONS, has_kernels as has_kernels
from .streams import (
    ADDED as ADDED,
    SideStreams as SideStreams,
    add as add,
    capture as capture,
    graphs_span as graphs_span,
    graphs_work as graphs_work,
)
