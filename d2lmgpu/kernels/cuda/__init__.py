"""Readable CUDA kernels (the ``.cu`` files), and how they are launched. Importing it needs neither CuPy nor a GPU."""

from .launch import TENSOR_CORES as TENSOR_CORES, current_card as current_card, finish_card as finish_card
from .program import DTYPES as DTYPES, Pass as Pass, loss_and_grads as loss_and_grads, outputs as outputs
from .stages import PRECISIONS as PRECISIONS, has_kernels as has_kernels
from .streams import (
    SideStreams as SideStreams,
    capture as capture,
    graphs_span as graphs_span,
    graphs_work as graphs_work,
)
