"""Dense layers on GPUs: how the kernels of dense.cu and head.cu are launched, and the stages made of them.

The head of a network is its last dense layer together with softmax and cross-entropy, as one launch of head.cu.
"""

import contextlib
from typing import NamedTuple

import numpy as np

from .launch import SHARED_BYTES, Launch, ceil_div, empty, evenly, macros, rounding, run

_TILES = (32, 64, 32), (32, 32, 32), (16, 16, 64)
"""Sizes of tiles: rows, columns, and the steps of the sum at a time. Large tiles need fewer loads."""

_TILES_OF_TENSOR_CORES = (64, 32, 32), (32, 32, 32), (16, 32, 64)
"""The same numbers, on tensor cores."""

ENOUGH_BLOCKS = 96
"""The number of blocks that keeps a GPU of about a hundred multiprocessors busy."""

MAX_CLASSES = 32
"""The most classes: a thread has all logits of an image in its registers."""

ROWS = 8
"""The images of a block of the head."""


class DenseLaunches(NamedTuple):
    """The launches of a dense layer, x (N, D) → y (N, O). Without ReLU, the gradients' kernels do not read y.

    Arguments, forward: x, weight, bias, y, N; input_grad: dy, y, weight, dx, N;
    weight_grad: x, dy, y, dweight, dbias, N.
    """

    forward: Launch
    input_grad: Launch
    weight_grad: Launch


def dense(D, O, N, relu=False, mixed=False):
    """The `DenseLaunches`. ``mixed``: whether factors are rounded to float16."""
    products = [
        ("dense_forward", (N, O), ((True, False), (False, False))),
        ("dense_input_grad", (N, D), ((True, relu), (True, False))),
        ("dense_weight_grad", (D + 1, O), ((False, False), (False, relu))),
    ]
    launches = []
    for name, size, factors in products:
        options = macros(D=D, O=O, RELU=relu, PRODUCT=len(launches))
        options += macros(HALF_FACTORS=True) if mixed else ()
        tiles, grid = _tiles(*size, factors, _TILES_OF_TENSOR_CORES if mixed else _TILES)
        launches.append(Launch("dense.cu", name, options + tiles, grid, (256,)))
    return DenseLaunches(*launches)


def _tiles(rows, columns, factors, tiles):
    """Macros and grid for the largest tiles of which there are enough, else for the smallest that fit.

    ``factors``: for each factor, whether it lies along the sum in memory, and whether it has a gate.
    """
    for TM, TN, chunk in tiles:
        floats = 0  # in shared memory, as in factors.cuh
        for size, (along, gate) in zip((TM, TN), factors, strict=True):
            floats += (1 + gate) * (size * (chunk + 4) if along else chunk * (size + 8))
        stages = min(3, SHARED_BYTES // 4 // floats)
        if stages < 2:
            break
        grid = ceil_div(columns, TN), ceil_div(rows, TM)
        options = macros(TM=TM, TN=TN, CHUNK=chunk, STAGES=stages)
        if grid[0] * grid[1] >= ENOUGH_BLOCKS:
            break
    return options, grid


class Dense:
    """x (N, D) → y (N, O), with ReLU if ``relu``. ``mixed``: whether factors, and dx, are rounded to float16."""

    beside = contextlib.nullcontext()

    def __init__(self, x, outputs, relu, input_grad, mixed):
        launches = dense(x.shape[1], outputs, len(x), relu, mixed)
        self.x, self.N = x, np.int32(len(x))
        self.can_be_head = not relu and outputs <= MAX_CLASSES
        self.launches = launches._replace(input_grad=rounding(launches.input_grad, out=mixed))
        self.y = empty((len(x), outputs))
        self.dx = empty(x.shape) if input_grad else None

    def forward(self, weight, bias):
        run(self.launches.forward, self.x, weight, bias, self.y, self.N)

    def backward(self, dy, params, grads):
        self.weight_grad(dy, grads)
        if self.dx is not None:
            run(self.launches.input_grad, dy, self.y, params[0], self.dx, self.N)

    def weight_grad(self, dy, grads):
        with self.beside:
            run(self.launches.weight_grad, self.x, dy, self.y, *grads, self.N)


def head(D, O, N, input_grad=True, mixed=False):
    """x, weight, bias, labels → logits, losses, hits, dlogits, dx; O is at most `MAX_CLASSES`.

    If ``mixed``, factors, logits and dx are rounded to float16. Arguments: x, weight, bias, labels, count, scale,
    logits, losses, hits, dlogits, dx, N. Without ``input_grad``, dx is not written.
    """
    each = evenly(ceil_div(D, 32), min(8, 96 // O))  # inputs of a thread at a time: more would need too many registers
    options = macros(D=D, O=O, INPUT_GRAD=input_grad, ROWS=ROWS, CHUNK=32 * each)
    options += macros(HALF_FACTORS=True) if mixed else ()
    return rounding(Launch("head.cu", "head", options, (ceil_div(N, ROWS),), (32 * ROWS,)), out=mixed)


class Head:
    """A network's last `Dense` stage, which ``can_be_head``, and the loss: forward also writes ``dlogits`` and dx."""

    def __init__(self, dense, labels, count, scale, losses, hits, dlogits, mixed):
        self.x, self.y, self.dx = dense.x, dense.y, dense.dx
        self.dense, self.N = dense, dense.N
        (N, D), O = self.x.shape, self.y.shape[1]
        self.launch = head(D, O, N, self.dx is not None, mixed)
        dx = dlogits if self.dx is None else self.dx  # any array will do: then it is not written
        self.arguments = labels, count, scale, self.y, losses, hits, dlogits, dx, np.int32(N)

    def forward(self, weight, bias):
        run(self.launch, self.x, weight, bias, *self.arguments)

    def backward(self, dy, params, grads):
        self.dense.weight_grad(dy, grads)
