"""Readable CUDA kernels (the ``.cu`` files), and how they are launched. Importing it needs neither CuPy nor a GPU."""

from .add import ADDED as ADDED, add as add, adds_across as adds_across
from .branches import Branches as Branches
from .capture import capture as capture, graphs_span as graphs_span, graphs_work as graphs_work
from .convolution import Convolution as Convolution
from .launch import Launch as Launch
from .optimizers import optimize as optimize
from .passes import Pass as Pass, in_parts as in_parts, outputs as outputs
from .program import Program as Program
from .run import current_card as current_card, finish_card as finish_card, read as read, run as run
from .stages import PRECISIONS as PRECISIONS, has_kernels as has_kernels
