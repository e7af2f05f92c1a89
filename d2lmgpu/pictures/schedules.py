"""Draw schedules: what devices hold, what they send, and how long algorithms take.

`draw_steps` shows what each device holds after each step, `draw_bytes` draws a heat map of the bytes that go from
device to device, and `plot_times` compares algorithms on networks and marks the sizes or numbers of devices at which
another algorithm becomes the fastest. All return matplotlib figures.
"""

import collections
import math
import textwrap

import numpy as np

from ..base.arguments import check_whole, plain_numbers
from ..collectives.bounds import bound
from ..collectives.columns import edges_of
from ..collectives.diagnosis import counted
from ..collectives.prove import check_form
from ..collectives.simulate import simulate
from . import BLUE, COLOURS, MARKERS, ORANGE, figure_of, legend_label

_MAX_NAMED = 8
"""With up to this many devices, cells name the shares in them; with more, only the colour shows how many there are."""
READABLE = 5.4
"""The largest width, in inches, of a picture that is still legible when it fills the width of a phone's screen."""
SHARES_A_LINE = 4
FEW_NUMBERS = 30
"""Up to this ratio of the longest to the shortest time, axes have ticks at 1, 2 and 5; above, only at powers of ten."""
OPS = {"add": ("added where it arrives", BLUE), "copy": ("copied", ORANGE)}
"""The name and the colour of each kind of transfer."""


def draw_steps(schedule, k, n, columns=None):
    """Draw which shares of each piece every device holds: a panel for the start, and one for each step.

    Rows are devices, and columns are pieces of the array. The darker a cell, the more shares are in it; with up to
    eight devices, the shares are named. Arrows are the step's messages: blue ones are added, orange ones copied. With
    more devices, there may be hundreds of cells, but with little text, since drawing text takes most of the time.

    ``columns``: how many panels stand side by side. By default, a picture of up to four devices is legible on a phone.

    Raises ValueError for anything but a schedule for k devices and n elements.
    """
    k, n, schedule, cuts, states = states_of(schedule, k, n)
    width, height = _panel_size(k, len(cuts) - 1)
    readable = max(2 if k <= _MAX_NAMED else 4, int(READABLE / width))
    columns = min(readable if columns is None else check_whole("columns", columns), len(states))
    rows = math.ceil(len(states) / columns)
    figure, panels = figure_of((columns * width + 0.3, rows * height + 0.4), rows, columns, squeeze=False)
    for number, (axes, held) in enumerate(zip(panels.flat, states, strict=False)):
        _draw_state(axes, held, k, cuts, labelled=number % columns == 0)
        axes.set_title(f"after step {number}" if number else "at the start", fontsize=10)
        _draw_arrows(axes, schedule[number - 1] if number else (), cuts)
    for axes in panels.flat[len(states) :]:
        axes.axis("off")
    return figure


def states_of(schedule, k, n):
    """(k, n, schedule, cuts, states): the checked arguments, where pieces begin and end, what `counted` returns."""
    k, n, schedule, columns = check_form(schedule, k, n)
    cuts = edges_of(columns, [0, n]).tolist()
    return k, n, schedule, cuts, counted(schedule, k, cuts)


def draw_bytes(schedule, k):
    """Draw a heat map of the bytes that each device (row) sends to every other (column), if elements are float32."""
    from matplotlib.ticker import EngFormatter

    sent = np.zeros((k, k))
    for step in schedule:
        for t in step:
            sent[t.source, t.destination] += 4 * t.size
    figure, axes = figure_of((5.2, 4.4))
    image = axes.imshow(np.where(sent > 0, sent, np.nan), cmap="viridis_r", vmin=0)
    figure.colorbar(image, label="sent", format=EngFormatter("B"))
    axes.set(xlabel="to device", ylabel="from device", xticks=_ticks(k), yticks=_ticks(k))
    title = f"{sent.sum():,.0f} bytes in all, at most {sent.sum(axis=1).max():,.0f} from one device"
    figure.suptitle(title, fontsize=10)
    return figure


@plain_numbers
def plot_times(algorithms, network, sizes=None, devices=None):
    """Plot the simulated time of algorithms, a dict of schedule functions by name, against sizes or numbers of devices.

    With ``sizes`` (bytes), ``network`` is a Network. With ``devices`` (a list of k) and ``sizes`` a single number,
    ``network`` is a function of k. Dotted lines mark where another algorithm becomes the fastest; no allreduce can be
    faster than the grey line.
    """
    if devices is None:
        x, xlabel, title = sizes, "bytes on each device", network.name
        points = [(network, size) for size in sizes]
    else:
        x, xlabel, title = devices, "devices", f"{sizes:,} bytes on each device"
        points = [(network(k), sizes) for k in devices]
    seconds = [[simulate(f(net.k, size // 4), net).seconds for net, size in points] for f in algorithms.values()]
    figure, axes = figure_of((6.4, 4.4))
    for name, times, colour, marker in zip(algorithms, seconds, COLOURS * 2, MARKERS * 2, strict=False):
        axes.plot(x, times, color=colour, marker=marker, ms=4, label=legend_label(name))
    least = [bound(net, size // 4) for net, size in points]
    axes.plot(x, least, color="#555555", lw=1, marker="_", label="no allreduce is faster")
    on_white = {"color": "white", "alpha": 0.8, "pad": 0.5}
    best = np.argmin(seconds, axis=0)
    for i in np.flatnonzero(np.diff(best)):
        crossing = math.sqrt(x[i] * x[i + 1])
        axes.axvline(crossing, color="#555555", ls=":", lw=1)
        place = {"xy": (crossing, 0.02), "xycoords": ("data", "axes fraction"), "rotation": 90}
        axes.annotate(f"{list(algorithms)[best[i + 1]]} →", **place, fontsize=8, bbox=on_white)
    axes.set(xscale="log", yscale="log", xlabel=xlabel, ylabel="simulated time")
    _show_seconds(axes.yaxis)
    axes.set_title(title, fontsize=10)
    if devices is not None:
        axes.set_xticks(x, [str(k) for k in x])
        axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def _show_seconds(axis):
    """Label a logarithmic axis in seconds, such as "200 µs", with few enough labels not to overlap.

    For less than a decade, Matplotlib would label every tick, with texts such as "2×10⁻⁴" that are too long to fit side
    by side.
    """
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    least, most = axis.get_data_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if most <= FEW_NUMBERS * least else (1,)))
    axis.set_major_formatter(EngFormatter("s"))
    axis.set_minor_formatter(NullFormatter())


def _draw_state(axes, held, k, cuts, labelled):
    count = len(cuts) - 1
    axes.imshow(held.sum(axis=2), cmap="Greens", vmin=0, vmax=1.6 * k, aspect="auto")
    for device, piece in np.ndindex(k, count) if k <= _MAX_NAMED else ():
        text = textwrap.fill(named_shares(held[device, piece])[0], 2 * SHARES_A_LINE)
        # The text is within a cell, so the layout need not take account of it.
        axes.text(piece, device, text, ha="center", va="center", fontsize=9, in_layout=False)
    axes.set(xlim=(-0.5, count - 0.5), ylim=(k - 0.5, -0.5))
    names = piece_names(cuts) if count <= 8 else []
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(_ticks(k) if labelled else [])
    axes.tick_params(labelsize=9)
    axes.set_xlabel("elements", fontsize=9)
    axes.set_ylabel("device" if labelled else "", fontsize=9)


def named_shares(counts):
    """The devices whose shares are there, as text, and their number; a share that is there twice is named twice."""
    shares = np.repeat(np.arange(len(counts)), counts.astype(np.intp))  # repeat needs it on 32-bit machines
    return " ".join(map(str, shares)) if len(counts) <= _MAX_NAMED else str(len(shares)), len(shares)


def piece_names(cuts):
    """The names of pieces, such as "0–2", or "3" for a piece of a single element."""
    bounds = zip(cuts, cuts[1:], strict=False)
    return [f"{start}–{stop - 1}" if stop - start > 1 else f"{start}" for start, stop in bounds]


def _draw_arrows(axes, step, cuts):
    """Draw a step's messages as arrows: up at the left of a cell, down at the right, and none over another."""
    lanes = collections.defaultdict(list)  # by (column, whether down): for each lane, the row where its last arrow ends
    places = []
    for t in sorted(step, key=lambda t: min(t.source, t.destination)):
        (top, bottom), down = sorted((t.source, t.destination)), t.source < t.destination
        for x in range(*np.searchsorted(cuts, (t.start, t.stop))):
            ends = lanes[x, down]
            number = next((lane for lane, end in enumerate(ends) if end <= top), len(ends))
            ends[number : number + 1] = [bottom]
            places.append((t, x, down, number))
    if not places:
        return
    bends = [0.42 - number * min(0.06, 0.2 / len(lanes[x, down])) for _, x, down, number in places]
    across = [x + bend if down else x - bend for (_, x, down, _), bend in zip(places, bends, strict=True)]
    begin, end = np.array([(t.source, t.destination) for t, *_ in places], float).T
    shorter = 0.15 * np.sign(end - begin)  # so that an arrow does not touch the next
    style = {"units": "inches", "width": 0.018, "headwidth": 5, "headlength": 6, "headaxislength": 6, "minlength": 0}
    style |= {"angles": "xy", "scale_units": "xy", "scale": 1, "color": [OPS[t.op][1] for t, *_ in places]}
    axes.quiver(across, begin + shorter, np.zeros(len(places)), end - begin - 2 * shorter, zorder=3, **style)


def _panel_size(k, count):
    """A panel's width and height in inches, with the labels around its cells."""
    wide, high = 0.28, 0.38
    if k <= _MAX_NAMED:
        wide, high = (0.12 * k + 0.06, 0.36) if k <= SHARES_A_LINE else (0.72, 0.48)
    return min(max(1.7, wide * count + 0.5), 12), min(max(1.6, high * k + 0.7), 10)


def _ticks(k):
    return range(0, k, max(1, k // 16))
