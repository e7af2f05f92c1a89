"""How each kernel is launched: its macros, its grid and its block; and from its source text to its launch.

A CUDA kernel is compiled for one layer's shape, because a compiler that knows all sizes can keep a thread's numbers in
registers. The batch size N is an argument: it may change without compiling again. The sizes computed here are those
that the comments in the ``.cu`` files ask for.

Kernels count elements in int, so no array may have 2³¹ elements or more. Do not launch anything for N = 0. Each kernel
is compiled when it is first used on a GPU; the CUDA files are installed with the package.
"""

import re
import threading
from importlib import resources
from typing import NamedTuple

import numpy as np

SHARED_BYTES = 48 * 1024
"""The shared memory that any block may have."""

TENSOR_CORES = 75
"""The compute capability, times ten, from which tensor cores multiply float16 as mma.cuh does."""

_thread = threading.local()


class Launch(NamedTuple):
    """``RawModule(code=read(file), options=options).get_function(name)(grid, block, args)``."""

    file: str
    name: str
    options: tuple[str, ...]
    grid: tuple[int, ...]
    block: tuple[int, ...]
    workspace: int = 0  # float32 numbers of scratch memory that the kernel takes as an argument


def run(launch, *arguments):
    """Launch a kernel on the current stream; it is compiled when it is first used on this device."""
    kernels = _thread.__dict__.setdefault("kernels", {})
    key = (current_card(), launch.file, launch.options, launch.name)
    if key not in kernels:
        kernels[key] = _module(launch.file, launch.options).get_function(launch.name)
    kernels[key](launch.grid, launch.block, arguments)


def _module(file, options):
    import cupy

    modules = _thread.__dict__.setdefault("modules", {})
    key = (current_card(), file, options)
    if key not in modules:
        modules[key] = cupy.RawModule(code=read(file), options=("-std=c++17", *options))
    return modules[key]


def empty(shape, dtype=np.float32):
    """A new array on the current GPU, with arbitrary contents."""
    import cupy

    return cupy.empty(shape, dtype)


def current_card():
    """The number of the GPU that is current on this thread."""
    import cupy

    return cupy.cuda.runtime.getDevice()


def finish_card():
    """Wait until the current GPU has done all work, in all streams."""
    import cupy

    cupy.cuda.Device().synchronize()


def read(name):
    """The text of a CUDA file, for ``cupy.RawModule(code=...)``. Raises FileNotFoundError if there is no such file.

    Each ``#include "..."`` of a file in this folder is replaced by the file's text, because a compiler that is given
    text instead of a file does not know where to look.
    """
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return re.sub(r'^#include "(.+)"$', lambda line: read(line[1]), text, flags=re.MULTILINE)


def macros(**values):
    """C=20, RELU=True → ("-DC=20", "-DRELU=1")."""
    return tuple(f"-D{name}={int(value)}" for name, value in values.items())


def rounding(launch, out=True, weight=False):
    """The ``launch`` for mixed precision: with ``out``, what it writes for the next layer is rounded to float16.

    With ``weight``, so are the weights that it reads. See half.cuh for what the kernels know of this.
    """
    wanted = {"HALF_OUT": out, "HALF_WEIGHT": weight}
    return launch._replace(options=launch.options + macros(**{name: True for name, value in wanted.items() if value}))


def ceil_div(a, b):
    return -(-a // b)


def evenly(n, most):
    """The size of the parts if n things are cut into as few parts of at most ``most`` as possible: 50, 32 → 25."""
    return ceil_div(n, ceil_div(n, max(1, most)))


def odd(n):
    """n, or the next number if n is even."""
    return n | 1


def elementwise(file, name, n, options=()):
    """One thread per element, 256 per block."""
    return Launch(file, name, options, (ceil_div(n, 256),), (256,))


def streaming(file, name, n, options=()):
    """At most 1024 blocks, whose threads continue with the next elements: for kernels that only move memory."""
    return Launch(file, name, options, (min(ceil_div(n, 1024), 1024),), (256,))


def softmax_cross_entropy(classes, N):
    """Arguments: logits, labels, count, scale, dlogits, losses, hits, N."""
    options = macros(CLASSES=classes)
    return Launch("softmax_cross_entropy.cu", "softmax_cross_entropy", options, (ceil_div(N, 8),), (256,))


def softmax_cross_entropy_sum(classes):
    """Arguments: losses, hits, sums, epoch_loss, epoch_correct, step, N."""
    return Launch("softmax_cross_entropy.cu", "softmax_cross_entropy_sum", macros(CLASSES=classes), (1,), (1024,))


def gather(P, n):
    """Images of P pixels. Arguments: images, labels, order, starts, step, x, y, count, n."""
    return Launch("gather.cu", "gather", macros(P=P), (n,), (256,))


def pool(name, H, W, S, max_pool, planes):
    """The kernel "pool" or "pool_grad". Arguments: x, y, mask, planes, and dy, mask, dx, planes."""
    options = macros(H=H, W=W, S=S, MAX_POOL=max_pool)
    return elementwise("pool.cu", name, planes * ((H // S) * (W // S) if name == "pool" else H * W), options)


def frame(name, H, W, padding, planes):
    """The kernel "frame" or "frame_grad". Arguments: x, framed, planes, and dframed, dx, planes."""
    return elementwise("frame.cu", name, planes * H * W, macros(H=H, W=W, P=padding))


def relu(name, n):
    """The kernel "relu" or "relu_grad". Arguments: x, y, n, and dy, x, dx, n."""
    return streaming("relu.cu", name, n)


def sgd(n):
    """Arguments: param, grad, rates, step, n."""
    return streaming("sgd.cu", "sgd", n)


def optimizer(name, n):
    """The kernel "momentum" or "adam".

    Arguments of momentum: param, grad, velocity, rates, sizes, step, scale, overflow, n; of adam: param, grad, mean,
    square, rates, sizes, step, scale, overflow, taken, n.
    """
    return streaming("optimizers.cu", name, n)


def count_step():
    """Arguments: taken, overflow."""
    return Launch("optimizers.cu", "count_step", (), (1,), (1,))


def add(n, dtype="float32"):
    """Arguments: dst, src, n. For float32, float64 or int64."""
    options = macros(LONG=True) if dtype == "int64" else macros(DOUBLE=dtype == "float64")
    return streaming("add.cu", "add", n, options)


def mixed_precision(name, n, interval=1):
    """A kernel of mixed_precision.cu on n numbers. ``interval``: the interval of update_scale."""
    blocks, threads = (1, 1) if name == "update_scale" else (min(ceil_div(n, 256), 1024), 256)
    return Launch("mixed_precision.cu", name, macros(INTERVAL=interval), (blocks,), (threads,))


def optimize(name, params, grads, state, rates, sizes, step, scale, overflow, taken):
    """Do a step of the optimiser ``name``; the other arguments are arrays, as in optimizers.cu, and are not empty."""
    n = params.size
    if name == "sgd":
        run(mixed_precision("scaled_sgd", n), params, grads, rates, step, scale, overflow, np.int32(n))
        return
    numbers = [rates, sizes, step, scale, overflow] + [taken] * (name == "adam")
    run(optimizer(name, n), params, grads, *state, *numbers, np.int32(n))
