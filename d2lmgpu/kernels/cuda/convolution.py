"""How the convolution's kernels are launched: a choice of tile sizes for every shape.

The choice was made for LeNet on GPUs like the A100 and H100 (over 100 multiprocessors, 64K registers each), but the
results are right for all shapes. See launch.py.
"""

from typing import NamedTuple

from .launch import SHARED_BYTES, Launch, ceil_div, evenly, macros, odd


class ConvolutionShape(NamedTuple):
    """A convolution with what is fused to it: bias, ReLU if ``relu``, pooling of S × S if S > 1.

    Input (N, C, H, W), weight (O, C, KH, KW), output (N, O, PH, PW). S is at most 4, KH and KW are at most 32 (see
    `stages.has_kernels`), and PH and PW at least 1.
    """

    C: int
    H: int
    W: int
    O: int
    KH: int
    KW: int
    S: int = 1
    max_pool: bool = False
    relu: bool = False

    @property
    def PH(self):
        return (self.H - self.KH + 1) // self.S

    @property
    def PW(self):
        return (self.W - self.KW + 1) // self.S

    @property
    def options(self):
        sizes = {name: getattr(self, name) for name in ("C", "H", "W", "O", "KH", "KW", "S")}
        return macros(**sizes, MAX_POOL=self.max_pool, RELU=self.relu)


def conv_forward(conv, N):
    """x, weight, bias → y, mask. Arguments: x, weight, bias, y, mask, N."""
    PY, PX = {1: (2, 4), 2: (1, 2)}.get(conv.S, (1, 1))  # squares of a thread's tile
    K = conv.KH * conv.KW
    quads = evenly(ceil_div(conv.O, 4), 16)
    RH, RW = conv.PH, conv.PW

    def tiles():
        return ceil_div(RH, PY), ceil_div(RW, PX)

    def floats_of_x():  # of one channel, as XH × XW in conv_forward.cu
        segment = ceil_div(PX * conv.S + conv.KW - 1, 4) * 4
        rows = tiles()[0] * PY * conv.S + conv.KH - 1
        return rows * ceil_div((tiles()[1] - 1) * PX * conv.S + segment, 4) * 4

    while tiles()[0] * tiles()[1] * quads > 512 or (floats_of_x() > 4096 and tiles() != (1, 1)):
        if tiles() == (1, 1) or quads > 4 * tiles()[0] * tiles()[1]:
            quads = ceil_div(quads, 2)
        elif tiles()[0] >= tiles()[1]:
            RH = ceil_div(tiles()[0], 2) * PY
        else:
            RW = ceil_div(tiles()[1], 2) * PX
    while quads > 1 and (K * odd(quads) * 4 + floats_of_x()) * 4 > SHARED_BYTES:
        quads = ceil_div(quads, 2)
    channel_bytes = (K * odd(quads) * 4 + floats_of_x()) * 4
    CB = evenly(conv.C, 32 * 1024 // channel_bytes)
    options = conv.options + macros(OB=4 * quads, CB=CB, RH=RH, RW=RW)
    grid = N, ceil_div(conv.O, 4 * quads), ceil_div(conv.PH, RH) * ceil_div(conv.PW, RW)
    return Launch("conv_forward.cu", "conv_forward", options, grid, (tiles()[0] * tiles()[1] * quads,))


def conv_input_grad(conv, N):
    """dy, mask, weight → dx. Arguments: dy, mask, weight, dx, N. Version 2 if 3 needs too much of anything."""
    tiles = ceil_div(conv.H, 8) * ceil_div(conv.W, 8)
    second = Launch("conv_input_grad.cu", "conv_input_grad_v2", conv.options, (tiles, conv.C, N), (8, 8))
    ZH, ZW = conv.PH * conv.S, conv.PW * conv.S
    segment = 4 if ZW <= 4 else 8
    rows = ZH * ceil_div(ZW, segment)  # threads for one channel
    sums = conv.KH * (segment + conv.KW - 1)
    plane_bytes = conv.H * conv.W * 4
    if sums > 80 or rows > 512 or plane_bytes > SHARED_BYTES:
        return second
    CB = evenly(conv.C, min(256 // rows, 32 * 1024 // plane_bytes))
    row = odd(ceil_div(ZW, segment) * segment // 4) * 4
    kernel = odd(ceil_div(conv.KH * conv.KW, 4)) * 4
    channel_bytes = (CB * kernel + ZH * row) * 4
    if channel_bytes > SHARED_BYTES:
        return second
    OB = evenly(conv.O, 28 * 1024 // channel_bytes)
    options = conv.options + macros(CB=CB, OB=OB)
    return Launch("conv_input_grad.cu", "conv_input_grad", options, (N, ceil_div(conv.C, CB)), (rows * CB,))


def conv_weight_grad(conv, N, multiprocessors=132):
    """x, dy, mask → partial sums, then `conv_weight_grad_sum`; or, without a workspace, the gradients at once.

    Arguments: x, dy, mask, workspace, N. If the launch's ``workspace`` is 0, because kernels are large, they are x, dy,
    mask, dweight, dbias, N. ``multiprocessors``: how many the GPU has.
    """
    return _conv_weight_grad_strips(conv, N, multiprocessors) or conv_weight_grad_tiles(conv, N, multiprocessors)


def conv_weight_grad_tiles(conv, N, multiprocessors=132):
    """`conv_weight_grad` where strips need too many registers: version 2, or 1 where kernels are large."""
    ZH, ZW, K = conv.PH * conv.S, conv.PW * conv.S, conv.KH * conv.KW
    tile_w = 4 if ZW <= 4 else 8
    tile_h = evenly(ZH, 8)
    row = ceil_div(tile_w + conv.KW - 1, 4) * 4
    registers = K + conv.KH * row + tile_w
    if registers > 160:
        threads = conv.O * conv.C * K + conv.O
        return Launch("conv_weight_grad.cu", "conv_weight_grad_v1", conv.options, (ceil_div(threads, 256),), (256,))

    most = 512 if registers < 100 else 256  # threads of a block
    CB = evenly(conv.C, 32)
    OB = evenly(conv.O, min(64, most // CB))
    x_plane, dz_plane = odd((tile_h + conv.KH - 1) * row // 4) * 16, odd(tile_h * tile_w // 4) * 16  # bytes
    slots = max(1, min(128 // (OB * CB), 24 * 1024 // (CB * x_plane + OB * dz_plane)))
    while CB * x_plane + OB * dz_plane > SHARED_BYTES - 4 * most:
        CB = ceil_div(CB, 2)
    parts = ceil_div(conv.O, OB), ceil_div(conv.C, CB)  # blocks for one group of images
    resident = max(1, most // (slots * OB * CB))  # blocks that a multiprocessor is to run at a time
    groups = max(1, min(N, multiprocessors * resident // (parts[0] * parts[1])))
    options = conv.options + macros(OB=OB, CB=CB, SLOTS=slots, TILE_H=tile_h, RESIDENT=resident)
    workspace = groups * slots * weight_grad_columns(conv)
    return Launch("conv_weight_grad.cu", "conv_weight_grad", options, (groups, *parts), (CB * OB * slots,), workspace)


def _conv_weight_grad_strips(conv, N, multiprocessors):
    """Version 3, for few input channels; None if there are too many, or kernels are large."""
    C, S, sums = conv.C, conv.S, conv.C * conv.KH * conv.KW + 1
    if sums > 41 or sums + C * (S + conv.KH - 1) * (S + conv.KW - 1) > 90:  # registers
        return None
    strip = evenly(conv.PW, 16)
    strips = ceil_div(conv.PW, strip)
    OB, rows, images = evenly(conv.O, 32), conv.PH, 1

    def threads():
        return OB * strips * rows * images

    def shared_bytes():  # as in conv_weight_grad_strips.cu
        x = images * C * (rows * S + conv.KH - 1) * ceil_div(conv.W + 3, 4) * 4
        return max(x + 4 + images * OB * odd(rows * conv.PW) * 2, sums * threads()) * 4

    while threads() > 512 or shared_bytes() > SHARED_BYTES:
        if rows > 1:
            rows = evenly(conv.PH, rows - 1)
        elif OB > 1:
            OB = ceil_div(OB, 2)
        else:
            return None
    parts = ceil_div(conv.O, OB)
    while N * ceil_div(conv.PH, rows) * parts < multiprocessors and threads() > 64 and rows > 1:
        rows = evenly(conv.PH, rows - 1)  # few images: smaller tiles, so that there is one for each multiprocessor
    while rows == conv.PH and threads() * (images + 1) // images <= 256:
        images += 1
        if shared_bytes() > SHARED_BYTES or ceil_div(N, images) * parts < multiprocessors:
            images -= 1
            break
    tiles = ceil_div(N, images) * ceil_div(conv.PH, rows)
    groups = max(1, min(tiles, multiprocessors * max(1, 1024 // threads()) // parts))
    name, options = "conv_weight_grad_strips", conv.options + macros(OB=OB, IMAGES=images, ROWS=rows, STRIP=strip)
    workspace = groups * weight_grad_columns(conv)
    return Launch(f"{name}.cu", name, options, (groups, parts), (threads(),), workspace)


def conv_weight_grad_sum(conv, partial):
    """workspace → dweight, dbias, after the launch ``partial``. Arguments: workspace, dweight, dbias, rows."""
    columns = weight_grad_columns(conv)
    parts = 8 if columns > 8192 else 32  # PARTS in conv_weight_grad.cu
    options = partial.options if partial.file == "conv_weight_grad.cu" else conv.options
    return Launch("conv_weight_grad.cu", "conv_weight_grad_sum", options, (ceil_div(columns, 32),), (32, parts))


def weight_grad_columns(conv):
    """The columns of the workspace of `conv_weight_grad`, one for each weight and bias; its rows are partial sums."""
    return conv.O * (conv.C * conv.KH * conv.KW + 1)
