"""Show over time what each device does in a plan: `draw` makes a figure, `write_html` a page that plays it.

Each row is a device; time goes to the right. Boxes are computations: forward, backward, or the two halves of backward,
the gradients of the input and of the weights. They are labelled with the micro-batch, and with the stage if a device
has several. Arrows show arrays that are sent whole, the y and dy of pipelines. Other transfers, such as those of a
collective, form one bar if they follow each other without a pause. The bar is below the device's boxes, because these
transfers run while the device computes. The chart below the rows shows how much memory each device holds.

Both are made from the plan's film, which player.py describes.
"""

from ..base.text import several
from ..plans.plan import COMPUTES
from ..plans.simulate import simulate
from . import COLOURS, figure_of
from .player import write_page

_BOXES = {
    "F": ("F: forward", "#9ecae1"),
    "B": ("B: backward", "#fdae6b"),
    "I": ("I: the input's gradient", "#fdae6b"),
    "W": ("W: the weights' gradients", "#a1d99b"),
    "update": ("update", "#969696"),
    "params": ("transfers of parameters", "#756bb1"),
    "grads": ("transfers of gradients", "#de2d26"),
    "y": ("transfers of y", "#17becf"),
    "dy": ("transfers of dy", "#e377c2"),
}
"""The name and the colour of each kind of computation, and of the transfers that form bars."""
_ARROWS = {"y": ("y, handed on", COLOURS[0]), "dy": ("dy, handed back", COLOURS[1])}
_MAX_NUMBERS = 400
"""A figure with more boxes than this has no labels in them."""
_MAX_LINES = 8
"""A figure with more memory lines than this has no legend for them."""


def write_html(plan, file, network=None, costs=None, **options):
    """Write an HTML file that animates the plan as computed by `simulate`, with the same arguments and errors.

    The file needs only a browser. Raises OSError if it cannot be written.
    """
    write_page(film_of_plan(plan, network, costs, **options), file)


def film_of_plan(plan, network=None, costs=None, **options):
    """The film of a plan as computed by `simulate`, with the same arguments and errors."""
    simulation = simulate(plan, network, costs, **options)
    computed = {event.action[1:3] for event in simulation.events if event.action.what in COMPUTES}
    with_stage = len(computed) > len({device for device, _ in computed})  # a device computes several stages
    boxes = [
        [[action.device], action.what, _label(action, with_stage), str(action), start, end]
        for _, action, start, end, _ in simulation.events
    ]
    boxes += [[[device], kind, "", _BOXES[kind][0], start, end] for device, kind, start, end in bars_of(simulation)]
    kinds = {kind for _, kind, *_ in boxes}
    arrows = [
        [action.source, action.destination, action.value[0], str(action), nbytes, start, end]
        for _, action, start, end, nbytes in handed_on(simulation)
    ]
    values = {value for _, _, value, *_ in arrows}
    return {
        "title": f"{plan.name}: {several(plan.k, 'device')}, {several(plan.micro_batches, 'micro-batch')}",
        "unit": "" if costs is None and network is None else "s",
        "end": simulation.seconds,
        "facts": [
            ["network", f"{len(plan.network)} layers in {several(len(plan.stages), 'stage')}"],
            ["bubble", f"{simulation.bubble:.0%}"],
            ["most memory of a device", f"{max(simulation.peak):,} bytes"],
            ["most sent by a device", f"{max(simulation.sent):,} bytes"],
        ],
        "devices": [f"device {i}" for i in range(plan.k)],
        "kinds": {kind: box for kind, box in _BOXES.items() if kind in kinds},
        "ways": {value: way for value, way in _ARROWS.items() if value in values},
        "events": boxes,
        "messages": arrows,
        "marks": [],
        "chart": {"name": "memory", "lines": simulation.memory},
        "holds": None,
    }


def _label(action, with_stage):
    """ "F3", or "F3 s1" with the stage; nothing for an update."""
    if action.what not in COMPUTES:
        return ""
    return f"{action.what}{action.micro_batch}" + (f" s{action.stage}" if with_stage else "")


def handed_on(simulation):
    """The messages that carry a whole y or dy."""
    return [message for message in simulation.messages if _is_whole(message.action.value, simulation)]


def _is_whole(value, simulation):
    return value[0] in ("y", "dy") and value not in simulation.joined


def bars_of(simulation):
    """All other transfers between devices: a list of (device, kind of value, start, end).

    A device's transfers are merged if there is no pause between them.
    """
    spans = {}
    for _, action, start, end, _ in simulation.messages:
        for device in () if _is_whole(action.value, simulation) else action[:2]:
            spans.setdefault((device, action.value[0]), []).append((start, end))
    bars = []
    for (device, kind), own in spans.items():
        apart = []
        for start, end in sorted(own):
            if apart and start <= apart[-1][1] + 1e-9 * end:
                apart[-1][1] = max(end, apart[-1][1])
            else:
                apart.append([start, end])
        bars += [(device, kind, start, end) for start, end in apart]
    return bars


def draw(plan, network=None, costs=None, **options):
    """A matplotlib figure of the plan over time, as computed by `simulate`, with the same arguments and errors."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    film = film_of_plan(plan, network, costs, **options)
    boxes = sum(kind in COMPUTES for _, kind, *_ in film["events"])
    high = min(8, 0.45 * plan.k) + 0.4
    size = min(16, max(7.5, 0.5 * boxes / plan.k)), high + 2.7
    figure, (top, below) = figure_of(size, 2, 1, sharex=True, height_ratios=[high, 1.6])
    _draw_boxes(top, film, boxes <= _MAX_NUMBERS)
    for source, destination, value, _, _, start, end in film["messages"]:
        edge = 0.4 if destination > source else -0.4  # of a device's row
        style = {"arrowstyle": "-|>", "color": film["ways"][value][1], "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
        top.annotate("", (end, destination - edge), (start, source + edge), arrowprops=style, zorder=3)
    _draw_memory(below, film)
    handles = [Patch(color=colour, label=name) for name, colour in film["kinds"].values()]
    handles += [Line2D([], [], color=colour, label=name) for name, colour in film["ways"].values()]
    columns = int(figure.get_figwidth() / 1.6)
    figure.legend(handles=handles, loc="outside lower left", ncols=columns, fontsize=7, frameon=False)
    top.set_title(f"{film['title']}, {dict(film['facts'])['bubble']} bubble", fontsize=10, loc="left")
    return figure


def _draw_boxes(axes, film, with_labels):
    """Draw the boxes of computations, and the bars of transfers below them."""
    for (device,), kind, label, _, start, end in film["events"]:
        row, height, edge = (device, 0.8, 0.8) if kind in (*COMPUTES, "update") else (device + 0.32, 0.16, 0)
        colour = film["kinds"][kind][1]
        if end == start:  # a vertical mark for what takes no time
            axes.plot([start] * 2, [row - height / 2, row + height / 2], color=colour, lw=3, zorder=2)
            continue
        axes.barh(row, end - start, height, start, color=colour, ec="white", lw=edge, zorder=2)
        if with_labels and label:
            place = {"ha": "center", "va": "center", "zorder": 4, "clip_on": True}
            axes.text((start + end) / 2, device, label.replace(" ", "\n"), fontsize=7, **place)
    k = len(film["devices"])
    axes.set(yticks=range(0, k, max(1, k // 16)), ylim=(k - 0.5, -0.5), xlim=(0, 1.005 * film["end"] or 1))
    axes.set_ylabel("device")
    axes.spines[["top", "right"]].set_visible(False)


def _draw_memory(axes, film):
    from matplotlib.ticker import EngFormatter

    alike = {}  # devices whose lines would coincide
    for device, line in enumerate(film["chart"]["lines"]):
        alike.setdefault(tuple(line), []).append(device)
    for i, (line, devices) in enumerate(alike.items()):
        times, held = zip(*line, (film["end"], line[-1][1]), strict=True)
        label = f"device {devices[0]}" if len(devices) == 1 else f"devices {', '.join(map(str, devices))}"
        axes.plot(times, held, drawstyle="steps-post", lw=1.2, color=COLOURS[i % len(COLOURS)], label=label)
    axes.yaxis.set_major_formatter(EngFormatter("B"))
    unit = "seconds" if film["unit"] else "in units of the costs"
    axes.set(xlabel=f"time, {unit}", ylabel="memory", ylim=(0, None))
    axes.grid(alpha=0.3)
    if len(alike) <= _MAX_LINES and len(film["devices"]) <= 2 * _MAX_LINES:
        axes.legend(fontsize=7, ncols=1, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
