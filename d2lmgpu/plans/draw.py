"""One reader of plans: draw what each device does when, and below it how much memory it holds.

A row is a device, time goes to the right. Boxes are computations, with the number of the micro-batch (and of the
stage, where a device has several): forward, backward, or its halves, the input's gradient and the weights'. Arrows
are what is handed on as a whole, y and dy of pipelines. All other transfers that follow each other at a device, those
of a collective for example, are one bar below its boxes, since they go on while it computes.
"""

from typing import NamedTuple

from ..collectives.draw import COLOURS, figure_of
from ..language.check import check_plan
from ..language.memory import joined_values
from ..language.plan import COMPUTES, Compute
from ..words import several
from .simulate import simulate

BOXES = {
    "F": ("F: forward", "#9ecae1"),
    "B": ("B: backward", "#fdae6b"),
    "I": ("I: the input's gradient", "#fdae6b"),
    "W": ("W: the weights' gradients", "#a1d99b"),
    "M": ("M: forward to batch norm", "#6baed6"),
    "S": ("S: back to batch norm", "#fd8d3c"),
    "update": ("update", "#969696"),
    "params": ("transfers of parameters", "#756bb1"),
    "grads": ("transfers of gradients", "#de2d26"),
    "y": ("transfers of y", "#17becf"),
    "dy": ("transfers of dy", "#e377c2"),
    "moments": ("transfers of moments", "#8c564b"),
    "sums": ("transfers of sums", "#bcbd22"),
}
MESSAGES = {"y": ("y, handed on", COLOURS[0]), "dy": ("dy, handed back", COLOURS[1])}
"""By kind the name and the colour."""

MOST_NUMBERS = 400
"""Boxes that still have their numbers."""
MOST_LINES = 8
"""Devices whose lines of memory are still named."""


class Bar(NamedTuple):
    """Transfers of a ``kind`` of value to or from a device, from ``start`` to ``end`` without a pause."""

    device: int
    kind: str
    start: float
    end: float


def draw(plan, network=None, costs=None, messages=True, **options):
    """A matplotlib figure of the plan in time, as `simulate` tells it, which has the same arguments and errors.

    ``messages``: whether to draw arrows.
    """
    simulation = simulate(plan, network, costs, **options)
    arrows, bars = handed_on(plan, simulation), bars_of(plan, simulation)
    boxes = sum(event.action.what in COMPUTES for event in simulation.events)
    high = min(8, 0.45 * plan.k) + 0.4
    size = min(16, max(7.5, 0.5 * boxes / plan.k)), high + 2.7
    figure, (top, below) = figure_of(size, 2, 1, sharex=True, height_ratios=[high, 1.6])
    _draw_events(top, plan, simulation, bars)
    for message in arrows if messages else ():
        _draw_message(top, message)
    _draw_memory(below, plan, simulation)
    below.set_xlabel("time, in units of the costs" if costs is None and network is None else "time, seconds")
    kinds, values = legend_of(simulation, arrows, bars)
    handles, columns = _legend(kinds, values if messages else {}), int(figure.get_figwidth() / 1.6)
    figure.legend(handles=handles, loc="outside lower left", ncols=columns, fontsize=7, frameon=False)
    top.set_title(f"{title_of(plan)}, {simulation.bubble:.0%} bubble", fontsize=10, loc="left")
    return figure


def handed_on(plan, simulation):
    """The messages of whole y and dy."""
    joined = joined_values(plan, check_plan(plan))
    return [m for m in simulation.messages if m.action.value[0] in ("y", "dy") and m.action.value not in joined]


def bars_of(plan, simulation):
    """A list of `Bar`: of all transfers from device to device that are not handed on."""
    joined, spans = joined_values(plan, check_plan(plan)), {}
    for _, moves, _, starts, ends in simulation.moved:
        if moves.value[0] in ("y", "dy") and moves.value not in joined:
            continue
        travels = (moves.size > 0) & (moves.source != moves.destination)
        for devices in moves.source, moves.destination:
            for device, start, end in zip(devices[travels].tolist(), starts[travels], ends[travels], strict=True):
                spans.setdefault((device, moves.value[0]), []).append((float(start), float(end)))
    bars = []
    for (device, kind), own in spans.items():
        for start, end in sorted(own):
            if bars and bars[-1][:2] == (device, kind) and start <= bars[-1].end + 1e-9 * end:
                bars[-1] = bars[-1]._replace(end=max(end, bars[-1].end))
            else:
                bars.append(Bar(device, kind, start, end))
    return bars


def title_of(plan):
    """ "1f1b: 4 devices, 8 micro-batches"."""
    word = "micro-batch" if plan.micro_batches == 1 else "micro-batches"
    return f"{plan.name}: {several(plan.k, 'device')}, {plan.micro_batches:,} {word}"


def label_of(action, with_stage):
    """ "F3", with the stage "F3 s1"; nothing for an update."""
    if action.what not in COMPUTES:
        return ""
    return f"{action.what}{action.micro_batch}" + (f" s{action.stage}" if with_stage else "")


def have_several_stages(plan):
    """Whether a device computes several, so that labels name them."""
    computed = [{a.stage for a in todo if isinstance(a, Compute) and a.what in COMPUTES} for todo in plan.actions]
    return any(len(stages) > 1 for stages in computed)


def _draw_events(axes, plan, simulation, bars):
    with_stage = have_several_stages(plan)
    numbers = sum(event.action.what in COMPUTES for event in simulation.events) <= MOST_NUMBERS
    for _, action, start, end, _ in simulation.events:
        _draw_box(axes, action.device, start, end, action.what, 0.8)
        text = label_of(action, with_stage).replace(" ", "\n") if numbers else ""
        if text and end > start:
            axes.text(
                (start + end) / 2, action.device, text, ha="center", va="center", fontsize=7, zorder=4, clip_on=True
            )
    for device, kind, start, end in bars:
        _draw_box(axes, device + 0.32, start, end, kind, 0.16)
    step = max(1, plan.k // 16)
    axes.set(yticks=range(0, plan.k, step), ylim=(plan.k - 0.5, -0.5), xlim=(0, 1.005 * simulation.seconds or 1))
    axes.set_ylabel("device")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _draw_box(axes, row, start, end, kind, height):
    """What takes no time is a mark."""
    _, colour = BOXES[kind]
    if end == start:
        axes.plot([start] * 2, [row - height / 2, row + height / 2], color=colour, lw=3, zorder=2)
    else:
        axes.barh(row, end - start, height, start, color=colour, ec="white", lw=0.8 if height > 0.5 else 0, zorder=2)


def _draw_message(axes, message):
    """An arrow between the edges of the devices' rows."""
    source, destination = message.action[:2]
    towards = 0.4 if destination > source else -0.4
    begin, end = (message.start, source + towards), (message.end, destination - towards)
    _, colour = MESSAGES[message.action.value[0]]
    style = {"arrowstyle": "-|>", "color": colour, "lw": 0.9, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, begin, arrowprops=style, zorder=3)


def _draw_memory(axes, plan, simulation):
    from matplotlib.ticker import EngFormatter

    alike = {}  # devices whose lines would hide each other
    for device, line in enumerate(simulation.memory):
        alike.setdefault(tuple(line), []).append(device)
    for i, (line, devices) in enumerate(alike.items()):
        times, held = zip(*line, (simulation.seconds, line[-1][1]), strict=True)
        label = f"device {devices[0]}" if len(devices) == 1 else f"devices {', '.join(map(str, devices))}"
        axes.plot(times, held, drawstyle="steps-post", lw=1.2, color=COLOURS[i % len(COLOURS)], label=label)
    axes.yaxis.set_major_formatter(EngFormatter("B"))
    axes.set(ylabel="memory", ylim=(0, None))
    axes.grid(alpha=0.3)
    if len(alike) <= MOST_LINES and plan.k <= 2 * MOST_LINES:
        axes.legend(fontsize=7, ncols=1, loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _legend(kinds, values):
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    boxes = [Patch(color=colour, label=name) for name, colour in kinds.values()]
    return boxes + [Line2D([], [], color=colour, label=name) for name, colour in values.values()]


def legend_of(simulation, arrows, bars):
    """Those of `BOXES` and of `MESSAGES` that there are."""
    kinds = {event.action.what for event in simulation.events} | {bar.kind for bar in bars}
    values = {message.action.value[0] for message in arrows}
    return {kind: BOXES[kind] for kind in BOXES if kind in kinds}, {v: MESSAGES[v] for v in MESSAGES if v in values}
