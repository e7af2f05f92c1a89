"""How the dense layer's kernels on tensor cores are launched. Arguments are those in float32, see launch.py."""

from .launch import SHARED_BYTES, DenseLaunches, Launch, ceil_div, dense_products, macros

TYPES = {"tf32": 0, "float16": 1, "bfloat16": 2}
"""The type that factors are rounded to. float16 needs compute capability 7.5, the others 8.0."""

OLDEST = {"tf32": 80, "float16": 75, "bfloat16": 80}
"""Compute capability, times ten, from which a type can be multiplied."""

TILES = (64, 32, 32), (32, 32, 32), (16, 32, 64)
"""Rows and columns of a tile, and steps of the sum at a time: large ones have fewer loads."""

ENOUGH_BLOCKS = 96
"""The number of blocks that keeps a GPU of some hundred multiprocessors busy."""


def dense(kind, D, O, N, relu=False):
    """The `DenseLaunches` with factors of this ``kind``."""
    launches = []
    factors = ((True, False), (False, False)), ((True, relu), (True, False)), ((False, False), (False, relu))
    for (name, size), own in zip(dense_products(D, O, N).items(), factors, strict=True):
        options = macros(D=D, O=O, RELU=relu, TYPE=TYPES[kind], PRODUCT=len(launches))
        tiles, grid = _tiles(*size, own)
        launches.append(Launch("dense_tensor_cores.cu", f"{name}_tensor_cores", options + tiles, grid, (256,)))
    return DenseLaunches(*launches)


def _tiles(rows, columns, factors):
    """Macros and grid for the largest tiles of which there are enough, else for the smallest that fit.

    ``factors``: of each whether it lies along the sum in memory, and whether it has a gate.
    """
    for TM, TN, chunk in TILES:
        sizes = zip((TM, TN), factors, strict=True)  # floats in shared memory as in tensor_cores.cuh
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


def mixed_precision(name, kind, n, interval=1):
    """A kernel of mixed_precision.cu on n numbers of "float16" or "bfloat16". ``interval``: that of update_scale."""
    blocks, threads = (1, 1) if name == "update_scale" else (min(ceil_div(n, 256), 1024), 256)
    return Launch("mixed_precision.cu", name, macros(TYPE=TYPES[kind], INTERVAL=interval), (blocks,), (threads,))
