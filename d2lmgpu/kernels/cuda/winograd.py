"""How Winograd's method is launched for convolutions, and where it is less work than the kernels of convolution.py.

The method and its matrices are in layers/winograd.py; winograd.cuh says what is computed where. A convolution by this
method takes three launches: `weights` once per step, then `conv_forward` and `conv_input_grad` with its results. All
sizes are multiples of what a thread has in registers: 16 tiles per block, 8 of them per thread.
"""

import itertools
from typing import NamedTuple

from ...layers.winograd import LARGEST_TILE, simple_transforms
from .convolution import ConvolutionShape
from .launch import SHARED_BYTES, Launch, ceil_div, evenly, macros, odd

TILES = 16
"""The number of tiles of a block."""

MAX_CHANNELS = 13
"""The most channels of a thread: with 8 tiles for each, these are 104 sums in registers."""

MIN_CHANNELS = 4

LIT_BYTES = 8 * TILES * 8 + 16
"""The bytes of shared memory in which the forward kernel notes, for 8 channels of each tile, which pixels are not 0."""

DEPTH = 8
"""The most steps by which a thread reads beyond what it uses."""

MAX_SUMS, MAX_SUMS_UNMASKED = 65, 52
"""The most sums of a thread that computes gradients of weights; fewer without ReLU or pooling, or they would spill."""

TRANSFORMS_PER_POINT = 10
"""The number of instructions that load, transform and store a tile of one channel, divided by its points; counted."""

MARGIN = 1.5
"""How many times fewer instructions make the method worthwhile: it has more barriers to wait at."""


class Winograd(NamedTuple):
    """A convolution in tiles of MH × MW outputs, for N images on a GPU with this number of multiprocessors."""

    conv: ConvolutionShape
    MH: int
    MW: int
    N: int
    multiprocessors: int = 132

    @property
    def points(self):
        return (self.MH + self.conv.KH - 1) * (self.MW + self.conv.KW - 1)

    @property
    def plane(self):
        """The floats of shared memory for the points of a tile of one channel: an odd number of vectors."""
        return odd(ceil_div(self.points, 4)) * 4

    @property
    def grid(self):
        """The rows and columns of tiles of an image."""
        return ceil_div(self.conv.PH * self.conv.S, self.MH), ceil_div(self.conv.PW * self.conv.S, self.MW)

    @property
    def options(self):
        tables = []
        for name, m, r in (("H", self.MH, self.conv.KH), ("W", self.MW, self.conv.KW)):
            for matrix, values in zip(("A", "G", "BT"), simple_transforms(m, r), strict=True):
                rows = ",".join("{" + ",".join(f"{value!r}f" for value in row) + "}" for row in values.tolist())
                tables.append(f"-D{matrix}_{name}={{{rows}}}")
        return self.conv.options + macros(MH=self.MH, MW=self.MW) + tuple(tables)

    def region(self, most=TILES):
        """The rows and columns of an image's tiles that a block has at a time, ``most`` in all, and how many images."""
        rows, columns = self.grid
        if rows * columns > most:
            columns = evenly(columns, min(most, max(4, most // rows)))
            rows = evenly(rows, most // columns)
        return rows, columns, most // (rows * columns)

    def regions(self, rows, columns):
        """The number of an image's regions that have this number of rows and columns of tiles."""
        return ceil_div(self.grid[0], rows) * ceil_div(self.grid[1], columns)

    def parts_back(self):
        """The `parts` of `conv_input_grad`, where a thread also has the squares of a tile in registers."""
        squares = (self.MH // self.conv.S) * (self.MW // self.conv.S)
        return self.parts(self.conv.C, MAX_CHANNELS if squares <= 9 else 7)

    def parts(self, channels, most=MAX_CHANNELS):
        """How many parts blocks divide a result's channels into; their threads' parts, Q; the channels of a thread, RO.

        There are as few parts as keep all multiprocessors busy, because each part transforms all its tiles anew.
        """
        rows, columns, images = self.region()
        blocks = ceil_div(self.N, images) * self.regions(rows, columns)
        Q = max(1, min(128 // self.points, ceil_div(channels, MIN_CHANNELS)))
        parts = ceil_div(channels, most * Q)
        while blocks * parts < 0.9 * self.multiprocessors and ceil_div(channels, (parts + 1) * Q) >= MIN_CHANNELS:
            parts += 1
        RO = ceil_div(channels, parts * Q)
        return ceil_div(channels, Q * RO), Q, RO

    def threads(self, Q):
        return 2 * self.points * Q

    def round(self, Q, RO):
        """How many of a thread's channels are exchanged at a time: 16 rows for each of Q, in whole warps."""
        rows = min(self.threads(Q), (SHARED_BYTES - LIT_BYTES) // 4 // (self.points + 2)) // 32 * 32
        return evenly(RO, rows // (16 * Q))


def choose(conv, N, multiprocessors=132):
    """The `Winograd` with the fewest instructions, or None if the kernels of convolution.py take fewer, or none fits.

    This is like `choose_tile` in layers/winograd.py, but transforms are done along one side after the other, and blocks
    with fewer than 16 tiles waste the rest.
    """
    best, choice = conv.PH * conv.PW * conv.S**2 * conv.C * conv.O * conv.KH * conv.KW / MARGIN, None
    for MH in range(conv.S, LARGEST_TILE - conv.KH + 2, conv.S):
        for MW in range(conv.S, LARGEST_TILE - conv.KW + 2, conv.S):
            if not all(_in_pairs(m, r) for m, r in ((MH, conv.KH), (MW, conv.KW))):
                continue
            winograd = Winograd(conv, MH, MW, N, multiprocessors)
            rows, columns, images = winograd.region()
            parts = winograd.parts(conv.O)
            products = conv.C * parts[0] * parts[1] * parts[2]
            transforms = TRANSFORMS_PER_POINT * (conv.C * parts[0] + conv.O)
            cost = TILES / images * winograd.regions(rows, columns) * winograd.points * (products + transforms)
            if cost < best and _channels_of_x(winograd) > 0:
                best, choice = cost, winograd
    return choice


def _in_pairs(m, r):
    """Whether all points but 0 and infinity have their opposites, on which the kernels rely."""
    return (m + r - 1) % 2 == 0 or m + r == 2


def weights(winograd, input_grad):
    """weight (O, C, KH, KW) → what the kernels below read. Arguments: weight, u, u_back.

    ``u`` has as many float32 numbers as the ``workspace`` of `conv_forward`, ``u_back`` as many as that of
    `conv_input_grad`; without ``input_grad``, ``u_back`` is not written.
    """
    conv = winograd.conv
    parts, Q, RO = winograd.parts(conv.O)
    parts_back, Q_back, RO_back = winograd.parts_back()
    channels = parts_back * Q_back * RO_back if input_grad else conv.C
    options = winograd.options + macros(OP=Q * RO, CP=Q_back * RO_back, BACK=input_grad)
    threads = parts * Q * RO * channels * (winograd.MH + conv.KH - 1)
    return Launch("winograd_weights.cu", "winograd_weights", options, (ceil_div(threads, 256),), (256,))


def conv_forward(winograd):
    """x, u, bias → y, mask. Arguments: x, u, bias, y, mask, N."""
    conv = winograd.conv
    parts, Q, RO = winograd.parts(conv.O)
    rows, columns, images = winograd.region()
    own = macros(Q=Q, RO=RO, CB=_channels_of_x(winograd), ROUND=winograd.round(Q, RO), TR=rows, TC=columns)
    grid = ceil_div(winograd.N, images), parts, winograd.regions(rows, columns)
    name, workspace = "winograd_forward", (parts * conv.C + DEPTH) * Q * RO * winograd.points
    return Launch(f"{name}.cu", name, winograd.options + own, grid, (winograd.threads(Q),), workspace)


def _channels_of_x(winograd):
    """Channels in shared memory at a time: as many as fit, but no more than 128 threads transform; 0 if none fits."""
    conv, (rows, columns, images) = winograd.conv, winograd.region()
    plane = (rows * winograd.MH + conv.KH - 1) * (columns * winograd.MW + conv.KW - 1)
    plane = ceil_div(plane, 8) * 8 | 8
    room = (SHARED_BYTES - LIT_BYTES) // 4 - 64 * images
    most = min(8, room // (TILES * winograd.points + TILES + 2 * images * plane))
    return evenly(conv.C, most) if most else 0


def conv_input_grad(winograd):
    """dy, mask, u_back → dx. Arguments: dy, mask, u_back, dx, N. None if an image has too many tiles for a block."""
    conv = winograd.conv
    parts, Q, RO = winograd.parts_back()
    (rows, columns), images = winograd.grid, winograd.region()[2]
    if rows * columns > TILES:
        return None

    CB = min(8, SHARED_BYTES // 8 // (TILES * winograd.points + TILES), winograd.threads(Q) // TILES)
    if CB == 0:
        return None
    own = macros(Q=Q, RO=RO, CB=evenly(conv.O, CB), ROUND=winograd.round(Q, RO), TR=rows, TC=columns)
    grid = ceil_div(winograd.N, images), parts
    name, workspace = "winograd_input_grad", (parts * conv.O + DEPTH) * Q * RO * winograd.points
    return Launch(f"{name}.cu", name, winograd.options + own, grid, (winograd.threads(Q),), workspace)


def conv_weight_grad(winograd):
    """x, dy, mask → partial sums, for `convolution.conv_weight_grad_sum`. Arguments: x, dy, mask, workspace, N."""
    conv = winograd.conv
    share = min(_shares(winograd), key=lambda share: share.cost(winograd))
    rows, columns, images = share.region
    parts = ceil_div(conv.O, share.OB), ceil_div(conv.C, share.CB)
    pieces = ceil_div(winograd.N, images) * winograd.regions(rows, columns)
    threads = winograd.points * share.QO * share.QC
    resident = max(1, 512 // threads)
    groups = max(1, winograd.multiprocessors * resident // (parts[0] * parts[1]))
    groups = ceil_div(pieces, ceil_div(pieces, groups))
    room = SHARED_BYTES // 4 - ceil_div(threads, 4) * 4
    turns = evenly(ceil_div(share.OB, share.QO), room // (share.QO * share.CB * winograd.plane))
    own = macros(OB=share.OB, CB=share.CB, TR=rows, TC=columns, IMAGES=images)
    own += macros(QO=share.QO, QC=share.QC, ROUND=turns, RESIDENT=resident)
    workspace = groups * (conv.KH * conv.KW * conv.C + 1) * conv.O
    name = "winograd_weight_grad"
    return Launch(f"{name}.cu", name, winograd.options + own, (groups, *parts), (threads,), workspace)


class _Share(NamedTuple):
    """A block's share of `conv_weight_grad`: OB and CB channels, which threads share in QO and QC parts, and tiles."""

    OB: int
    CB: int
    QO: int
    QC: int
    region: tuple[int, int, int]

    def cost(self, winograd):
        """The instructions of all blocks for a tile: those that multiply and load, and those that transform."""
        NO, NC = ceil_div(self.OB, self.QO), ceil_div(self.CB, self.QC)
        multiply = self.QO * self.QC * (NO * NC + NO + NC)
        transform = TRANSFORMS_PER_POINT * (self.OB / 2 + self.CB)
        blocks = ceil_div(winograd.conv.O, self.OB) * ceil_div(winograd.conv.C, self.CB)
        return blocks * (multiply + transform) * winograd.points


def _shares(winograd):
    """All shares that fit: into 256 threads, the registers for a thread's sums, and shared memory."""
    conv = winograd.conv
    most_sums = MAX_SUMS if conv.relu or conv.S > 1 else MAX_SUMS_UNMASKED
    parts = max(1, 256 // winograd.points)
    of_threads = [(QO, QC) for QO in range(1, parts + 1) for QC in range(1, parts // QO + 1)]
    for OB, CB in itertools.product(_parts_of(conv.O), _parts_of(conv.C)):
        for QO, QC in of_threads:
            if ceil_div(OB, QO) * ceil_div(CB, QC) > most_sums:
                continue
            threads = winograd.points * QO * QC
            for most in range(min(8, threads // max(OB, 2 * CB)), 0, -1):
                rows, columns, images = region = winograd.region(most)
                x = images * CB * (rows * winograd.MH + conv.KH - 1) * (columns * winograd.MW + conv.KW - 1)
                floats = rows * columns * images * (OB + CB) * winograd.plane + x + ceil_div(threads, 4) * 4
                if floats * 4 <= SHARED_BYTES:
                    yield _Share(OB, CB, QO, QC, region)
                    break


def _parts_of(channels):
    """The number of channels of a part, for 1, 2, 3, ... equal parts."""
    return sorted({ceil_div(channels, parts) for parts in range(1, channels + 1)})
