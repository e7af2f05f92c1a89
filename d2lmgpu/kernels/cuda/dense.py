"""How the dense layer's kernels are launched: dense.cu."""

from typing import NamedTuple

from .launch import SHARED_BYTES, Launch, ceil_div, macros

TILES = (32, 64, 32), (32, 32, 32), (16, 16, 64)
"""The rows and columns of a tile, and the steps of the sum at a time: large tiles need fewer loads."""

TILES_OF_TENSOR_CORES = (64, 32, 32), (32, 32, 32), (16, 32, 64)

ENOUGH_BLOCKS = 96
"""The number of blocks that keeps a GPU of about a hundred multiprocessors busy."""


class DenseLaunches(NamedTuple):
    """The launches of a dense layer, x (N, D) → y (N, O). Without ReLU, the gradients' kernels do not read y.

    Arguments, forward: x, weight, bias, y, N; input_grad: dy, y, weight, dx, N;
    weight_grad: x, dy, y, dweight, dbias, N.
    """

    forward: Launch
    input_grad: Launch
    weight_grad: Launch


def dense(D, O, N, relu=False, kind=None):
    """The `DenseLaunches`. ``kind``: a value of `stages.PRECISIONS`, to which factors are rounded."""
    products = [
        ("dense_forward", (N, O), ((True, False), (False, False))),
        ("dense_input_grad", (N, D), ((True, relu), (True, False))),
        ("dense_weight_grad", (D + 1, O), ((False, False), (False, relu))),
    ]
    launches = []
    for name, size, factors in products:
        options = macros(D=D, O=O, RELU=relu, PRODUCT=len(launches))
        options += macros(HALF_FACTORS=True) if kind else ()
        tiles, grid = _tiles(*size, factors, TILES_OF_TENSOR_CORES if kind else TILES)
        launches.append(Launch("dense.cu", name, options + tiles, grid, (256,)))
    return DenseLaunches(*launches)


def _tiles(rows, columns, factors, tiles):
    """Macros and grid for the largest tiles of which there are enough, else for the smallest that fit.

    ``factors``: for each factor, whether it lies along the sum in memory, and whether it has a gate.
    """
    for TM, TN, chunk in tiles:
        sizes = zip((TM, TN), factors, strict=True)  # floats in shared memory as in factors.cuh
        floats = sum(
            (1 + gate) * (size * (chunk + 4) if along else chunk * (size + 8)) for size, (along, gate) in sizes
        )
        stages = min(3, SHARED_BYTES // 4 // floats)
        if stages < 2:
            break
        grid = ceil_div(columns, TN), ceil_div(rows, TM)
        options = macros(TM=TM, TN=TN, CHUNK=chunk, STAGES=stages)
        if grid[0] * grid[1] >= ENOUGH_BLOCKS:
            break
    return options, grid
