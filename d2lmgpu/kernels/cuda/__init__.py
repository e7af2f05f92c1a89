"""Readable CUDA kernels (the ``.cu`` files), and how they are launched. Nothing here needs CuPy or a GPU to import."""

from .branches import Branches as Branches
from .capture import capture as capture, graphs_work as graphs_work
from .convolution import Convolution as Convolution
from .launch import Launch as Launch
from .program import Pass as Pass, Program as Program, in_parts as in_parts, outputs as outputs
from .run import current_card as current_card, finish_card as finish_card, read as read, run as run
from .stages import PRECISIONS as PRECISIONS, has_kernels as has_kernels
