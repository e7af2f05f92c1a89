"""Readable CUDA kernels (the ``.cu`` files), and how they are launched. Nothing here needs CuPy or a GPU to import."""

from .branches import Branches
from .capture import capture, graphs_work
from .convolution import Convolution
from .launch import Launch
from .passes import Pass
from .program import Program, in_parts, outputs
from .run import current_card, finish_card, read, run, sources
from .stages import PRECISIONS, has_kernels
