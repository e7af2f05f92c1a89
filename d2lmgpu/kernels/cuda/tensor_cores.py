"""How the kernels on tensor cores are launched. Arguments are those of the kernels in float32, see launch.py.

After `conv_weight_grad` comes `convolution.conv_weight_grad_reduce`, as in float32.
"""

from .convolution import check
from .launch import Launch, ceil_div, macros

TYPES = {"tf32": 0, "float16": 1, "bfloat16": 2}
"""The type that factors are rounded to. float16 needs compute capability 7.5, the others 8.0."""

OLDEST = {"tf32": 80, "float16": 75, "bfloat16": 80}
"""Compute capability, times ten, from which a type can be multiplied."""


def dense_forward(kind, D, O, N, relu=False):
    return _dense("dense_forward_tensor_cores", kind, D, O, relu, N, O)


def dense_input_grad(kind, D, O, N, relu=False):
    return _dense("dense_input_grad_tensor_cores", kind, D, O, relu, N, D)


def dense_weight_grad(kind, D, O, N, relu=False):
    return _dense("dense_weight_grad_tensor_cores", kind, D, O, relu, D + 1, O)


def _dense(name, kind, D, O, relu, rows, columns):
    options = macros(D=D, O=O, RELU=relu, TYPE=TYPES[kind], TM=32, TN=32, WARPS=8)
    return Launch("dense_tensor_cores.cu", name, options, (ceil_div(columns, 32), ceil_div(rows, 32)), (256,))


def conv_forward(kind, conv, N):
    tm, squares = _rows(conv.O), 32 // conv.S**2
    grid = ceil_div(N * conv.PH * conv.PW, squares), ceil_div(conv.O, tm)
    return _conv("conv_forward_tensor_cores", kind, conv, tm, grid)


def conv_input_grad(kind, conv, N):
    tm = _rows(conv.C)
    grid = ceil_div(N * conv.H * conv.W, 32), ceil_div(conv.C, tm)
    return _conv("conv_input_grad_tensor_cores", kind, conv, tm, grid)


def conv_weight_grad(kind, conv, N, multiprocessors=132):
    """Groups of images are as many as keep four blocks busy on each multiprocessor."""
    tm, size = _rows(conv.O), conv.C * conv.KH * conv.KW
    tiles = ceil_div(size, 32), ceil_div(conv.O, tm)
    groups = max(1, min(N, 4 * multiprocessors // (tiles[0] * tiles[1])))
    launch = _conv("conv_weight_grad_tensor_cores", kind, conv, tm, (*tiles, groups))
    return launch._replace(workspace=groups * size * conv.O)


def _rows(M):
    """Of a tile: 16, 32 or 64."""
    return 16 if M <= 16 else 32 if M <= 32 else 64


def _conv(name, kind, conv, tm, grid):
    check(conv)
    options = conv.options + macros(TYPE=TYPES[kind], TM=tm, TN=32, WARPS=4)
    return Launch("conv_tensor_cores.cu", name, options, grid, (128,))


def mixed_precision(name, kind, n, interval=1):
    """A kernel of mixed_precision.cu on n numbers of "float16" or "bfloat16". ``interval``: that of update_scale."""
    blocks, threads = (1, 1) if name == "update_scale" else (min(ceil_div(n, 256), 1024), 256)
    return Launch("mixed_precision.cu", name, macros(TYPE=TYPES[kind], INTERVAL=interval), (blocks,), (threads,))
