"""Draw over time what each device does in a plan, and below it how much memory each device holds.

Each row is a device; time goes to the right. Boxes are computations: forward, backward, or the two halves of backward,
the gradients of the input and of the weights. They are labelled with the micro-batch, and with the stage if a device
has several. Arrows show arrays that are sent whole, the y and dy of pipelines. Other transfers, such as those of a
collective, form one bar if they follow each other without a pause. The bar is below the device's boxes, because these
transfers run while the device computes.
"""

from ..plans.plan import COMPUTES
from ..plans.simulate import simulate
from . import COLOURS, figure_of
from .films import film_of_simulation

MAX_NUMBERS = 400
"""A figure with more boxes than this has no labels in them."""
MAX_LINES = 8
"""A figure with more memory lines than this has no legend for them."""


def draw(plan, network=None, costs=None, **options):
    """A matplotlib figure of the plan over time, as computed by `simulate`, with the same arguments and errors."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    simulation = simulate(plan, network, costs, **options)
    film = film_of_simulation(plan, simulation, "" if costs is None and network is None else "s")
    boxes = sum(kind in COMPUTES for _, kind, *_ in film["events"])
    high = min(8, 0.45 * plan.k) + 0.4
    size = min(16, max(7.5, 0.5 * boxes / plan.k)), high + 2.7
    figure, (top, below) = figure_of(size, 2, 1, sharex=True, height_ratios=[high, 1.6])
    _draw_events(top, film, boxes <= MAX_NUMBERS)
    for message in film["messages"]:
        _draw_message(top, film, *message)
    _draw_memory(below, film)
    handles = [Patch(color=colour, label=name) for name, colour in film["kinds"].values()]
    handles += [Line2D([], [], color=colour, label=name) for name, colour in film["ways"].values()]
    columns = int(figure.get_figwidth() / 1.6)
    figure.legend(handles=handles, loc="outside lower left", ncols=columns, fontsize=7, frameon=False)
    top.set_title(f"{film['title']}, {simulation.bubble:.0%} bubble", fontsize=10, loc="left")
    return figure


def _draw_events(axes, film, with_labels):
    for (device,), kind, label, _, start, end in film["events"]:
        row, height = (device, 0.8) if kind in (*COMPUTES, "update") else (device + 0.32, 0.16)
        _draw_box(axes, row, height, start, end, film["kinds"][kind][1])
        if with_labels and label and end > start:
            place = {"ha": "center", "va": "center", "zorder": 4, "clip_on": True}
            axes.text((start + end) / 2, device, label.replace(" ", "\n"), fontsize=7, **place)
    k = len(film["devices"])
    axes.set(yticks=range(0, k, max(1, k // 16)), ylim=(k - 0.5, -0.5), xlim=(0, 1.005 * film["end"] or 1))
    axes.set_ylabel("device")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _draw_box(axes, row, height, start, end, colour):
    """Draw a box, or a vertical mark for a computation that takes no time."""
    if end == start:
        axes.plot([start] * 2, [row - height / 2, row + height / 2], color=colour, lw=3, zorder=2)
    else:
        axes.barh(row, end - start, height, start, color=colour, ec="white", lw=0.8 if height > 0.5 else 0, zorder=2)


def _draw_message(axes, film, source, destination, kind, _, nbytes, start, end):
    """Draw an arrow between the edges of the devices' rows."""
    towards = 0.4 if destination > source else -0.4
    style = {"arrowstyle": "-|>", "color": film["ways"][kind][1], "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (end, destination - towards), (start, source + towards), arrowprops=style, zorder=3)


def _draw_memory(axes, film):
    from matplotlib.ticker import EngFormatter

    alike = {}  # devices whose lines would coincide
    for device, line in enumerate(film["chart"]["lines"]):
        alike.setdefault(tuple(map(tuple, line)), []).append(device)
    for i, (line, devices) in enumerate(alike.items()):
        times, held = zip(*line, (film["end"], line[-1][1]), strict=True)
        label = f"device {devices[0]}" if len(devices) == 1 else f"devices {', '.join(map(str, devices))}"
        axes.plot(times, held, drawstyle="steps-post", lw=1.2, color=COLOURS[i % len(COLOURS)], label=label)
    axes.yaxis.set_major_formatter(EngFormatter("B"))
    axes.set(ylabel="memory", ylim=(0, None))
    axes.set_xlabel("time, seconds" if film["unit"] else "time, in units of the costs")
    axes.grid(alpha=0.3)
    if len(alike) <= MAX_LINES and len(film["devices"]) <= 2 * MAX_LINES:
        axes.legend(fontsize=7, ncols=1, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
