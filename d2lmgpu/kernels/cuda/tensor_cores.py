"""How the kernels on tensor cores are launched. Arguments are those of the kernels in float32, see launch.py.

After `conv_weight_grad` comes `convolution.conv_weight_grad_reduce`, as in float32.
"""

from .convolution import check
from .launch import SHARED_BYTES, Launch, ceil_div, evenly, macros, odd

TYPES = {"tf32": 0, "float16": 1, "bfloat16": 2}
"""The type that factors are rounded to. float16 needs compute capability 7.5, the others 8.0."""

OLDEST = {"tf32": 80, "float16": 75, "bfloat16": 80}
"""Compute capability, times ten, from which a type can be multiplied."""


UNIT = {"tf32": 4, "float16": 8, "bfloat16": 8}
"""How many numbers are 16 bytes of shared memory."""


def dense_forward(kind, D, O, N, relu=False):
    return _dense("dense_forward_tensor_cores", kind, D, O, relu, N, O, D)


def dense_input_grad(kind, D, O, N, relu=False):
    return _dense("dense_input_grad_tensor_cores", kind, D, O, relu, N, D, O)


def dense_weight_grad(kind, D, O, N, relu=False):
    return _dense("dense_weight_grad_tensor_cores", kind, D, O, relu, D + 1, O, N)


def _dense(name, kind, D, O, relu, rows, columns, summed):
    """A result of rows × columns; large tiles, with fewer loads, where enough of them keep the GPU busy."""
    tile = 32 if ceil_div(rows, 32) * ceil_div(columns, 32) >= 512 else 16
    step = 8 * 2 * UNIT[kind]  # of the sum: one instruction of each warp
    passes = 1
    while passes * step < summed and 2 * passes * step * tile <= 4096:
        passes *= 2
    options = macros(D=D, O=O, RELU=relu, TYPE=TYPES[kind], TM=tile, TN=tile, WARPS=8, PASSES=passes)
    return Launch("dense_tensor_cores.cu", name, options, (ceil_div(columns, tile), ceil_div(rows, tile)), (256,))


def conv_forward(kind, conv, N):
    check(conv)
    return _correlation("conv_forward_tensor_cores", kind, conv, N, conv.S, conv.C, conv.O, conv.PH, conv.PW)


def conv_input_grad(kind, conv, N):
    check(conv)
    height, width = conv.PH * conv.S + conv.KH - 1, conv.PW * conv.S + conv.KW - 1  # the part of x that was read
    return _correlation("conv_input_grad_tensor_cores", kind, conv, N, 1, conv.O, conv.C, height, width)


def _correlation(name, kind, conv, N, side, summed, results, height, width):
    """correlation.cuh for ``results`` channels of height × width squares of side × side positions."""
    eights = ceil_div(results, 8)
    WO, NT = _results(eights, {1: 4, 2: 4, 3: 3, 4: 2}[side], conv.KW)
    MT, room = _positions(side, height * width, 12 // WO)
    images = max(1, min(N, 8 // WO * room // (height * width)))
    RW = evenly(width, 12 // WO * room)
    RH = evenly(height, 12 // WO * room // RW)
    all_units = ceil_div(summed, UNIT[kind])
    parts = rows = 1  # channels and kernels are cut into as many parts

    def fits():
        pixels = images * (RH * side + conv.KH - 1) * (RW * side + conv.KW - 1)
        return pixels * odd(units) + WO * NT * 8 * odd(outer * conv.KW * units) < SHARED_BYTES // 16

    while True:
        units, outer = ceil_div(all_units, parts), ceil_div(conv.KH, rows)
        if fits():
            break
        if outer > 1:
            rows += 1
        elif units > 1:
            parts, rows = parts + 1, 1
        else:
            parts = rows = 1
            if images > 1:
                images = ceil_div(images, 2)
            elif RH >= RW:
                RH = ceil_div(RH, 2)
            else:
                RW = ceil_div(RW, 2)
    WP = ceil_div(images * RH * RW, room)
    regions = ceil_div(height, RH) * ceil_div(width, RW)
    options = macros(TYPE=TYPES[kind], IMAGES=images, RH=RH, RW=RW, MT=MT, NT=NT, WP=WP, WO=WO)
    options += macros(CB=units * UNIT[kind], OUTER=outer)
    grid = ceil_div(N, images), ceil_div(eights, WO * NT), regions
    return Launch(f"{name}.cu", name, conv.options + options, grid, (32 * WP * WO,))


def _results(eights, most, KW):
    """By how many warps of a block results are shared, and eights of results of a warp, ``most`` at most."""
    of_block = evenly(eights, min(2 * most, SHARED_BYTES // 32 // (8 * odd(KW))))
    WO = ceil_div(of_block, most)
    return WO, ceil_div(of_block, WO)


def _positions(side, squares, warps):
    """Of a warp: sixteens of positions, and how many whole squares they hold; more where few do not do for an image."""
    for MT in {1: (2, 4), 2: (2, 4), 3: (5,), 4: (8,)}[side]:
        room = 2 * MT // side**2 * 8
        if squares <= warps * room:
            break
    return MT, room


def conv_weight_grad(kind, conv, N, multiprocessors=132):
    """Groups of images are as many as keep each multiprocessor busy with 16 warps."""
    check(conv)
    eights_of_c, eights_of_o = ceil_div(conv.C, 8), ceil_div(conv.O, 8)
    NT = evenly(eights_of_o, 7 if conv.S <= 2 else 4)
    most = {1: 8, 2: 6, 3: 5, 4: 4}.get(NT, 4)  # sixteens of a warp: registers for the sums
    units = 8 // UNIT[kind]  # of eight numbers
    RH, RW, X, tiles = conv.PH, conv.PW, eights_of_c, 1

    def fits():
        positions = ceil_div(tiles * RH * RW * conv.S**2, 16) * 16
        pixels = tiles * (RH * conv.S + conv.KH - 1) * (RW * conv.S + conv.KW - 1)
        return (pixels * odd(X) + positions * odd(NT)) * units * 16 + 16 + positions * 4 <= SHARED_BYTES

    while not fits():
        if X > 1 and RH * RW * conv.S**2 <= 64:
            X = ceil_div(X, 2)
        elif RH >= RW:
            RH = ceil_div(RH, 2)
        else:
            RW = ceil_div(RW, 2)
    sixteens = ceil_div(conv.KH * conv.KW * X, 2)
    warps = evenly(ceil_div(sixteens, most), 10)  # more would leave a thread too few registers
    MT = evenly(sixteens, most) if warps == 1 else most
    slots = max(1, 8 // warps)
    parts = ceil_div(sixteens, MT * warps) * ceil_div(eights_of_c, X)
    chunks = ceil_div(eights_of_o, NT)
    resident = multiprocessors * max(1, 16 // (warps * slots))
    groups = max(1, min(N, resident // (parts * chunks)))
    of_group = ceil_div(N, groups) * ceil_div(conv.PH, RH) * ceil_div(conv.PW, RW)
    while tiles < of_group:
        tiles += 1
        if not fits():
            tiles -= 1
            break
    tiles = evenly(of_group, tiles)
    options = macros(TYPE=TYPES[kind], CB=X * 8, NT=NT, MT=MT, WARPS=warps, SLOTS=slots, TILES=tiles, RH=RH, RW=RW)
    name = "conv_weight_grad_tensor_cores"
    workspace = groups * slots * conv.O * conv.C * conv.KH * conv.KW
    grid = groups, parts, chunks
    return Launch(f"{name}.cu", name, conv.options + options, grid, (32 * warps * slots,), workspace)


def mixed_precision(name, kind, n, interval=1):
    """A kernel of mixed_precision.cu on n numbers of "float16" or "bfloat16". ``interval``: that of update_scale."""
    blocks, threads = (1, 1) if name == "update_scale" else (min(ceil_div(n, 256), 1024), 256)
    return Launch("mixed_precision.cu", name, macros(TYPE=TYPES[kind], INTERVAL=interval), (blocks,), (threads,))
