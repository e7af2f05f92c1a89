"""One reader of plans: draw what each device does when, and below it how much memory it holds.

A row is a device, time goes to the right. Boxes are computations, with the number of the micro-batch (and of the
stage, where a device has several): forward, backward, or its halves, the input's gradient and the weights'. Arrows
are messages, from the send to the receipt.
"""

from ..collectives.draw import COLOURS, figure_of
from ..language.plan import COMPUTES
from ..words import several
from .simulate import simulate

BOXES = {
    "F": ("F: forward", "#9ecae1"),
    "B": ("B: backward", "#fdae6b"),
    "I": ("I: the input's gradient", "#fdae6b"),
    "W": ("W: the weights' gradients", "#a1d99b"),
    "collective of params": ("collective of parameters", "#bcbddc"),
    "collective of grads": ("collective of gradients", "#e7969c"),
    "collective of y": ("collective of y", "#9edae5"),
    "collective of dy": ("collective of dy", "#f7b6d2"),
    "update": ("update", "#969696"),
}
MESSAGES = {"y": ("y, handed on", COLOURS[0]), "dy": ("dy, handed back", COLOURS[1])}
"""By kind the name and the colour."""

MOST_NUMBERS = 400
"""Boxes that still have their numbers."""
MOST_LINES = 8
"""Devices whose lines of memory are still named."""


def draw(plan, network=None, costs=None, messages=True, **options):
    """A matplotlib figure of the plan in time, as `simulate` tells it, which has the same arguments and errors.

    ``messages``: whether to draw arrows.
    """
    simulation = simulate(plan, network, costs, **options)
    boxes = sum(event.action.what in COMPUTES for event in simulation.events)
    high = min(8, 0.45 * plan.k) + 0.4
    size = min(16, max(7.5, 0.5 * boxes / plan.k)), high + 2.7
    figure, (top, below) = figure_of(size, 2, 1, sharex=True, height_ratios=[high, 1.6])
    _draw_events(top, plan, simulation)
    if messages:
        for message in simulation.messages:
            _draw_message(top, message)
    _draw_memory(below, plan, simulation)
    below.set_xlabel("time, in units of the costs" if costs is None and network is None else "time, seconds")
    handles, columns = _legend(simulation, messages), int(figure.get_figwidth() / 1.6)
    figure.legend(handles=handles, loc="outside lower left", ncols=columns, fontsize=7, frameon=False)
    top.set_title(f"{title_of(plan)}, {simulation.bubble:.0%} bubble", fontsize=10, loc="left")
    return figure


def title_of(plan):
    """ "1f1b: 4 devices, 8 micro-batches"."""
    word = "micro-batch" if plan.micro_batches == 1 else "micro-batches"
    return f"{plan.name}: {several(plan.k, 'device')}, {plan.micro_batches:,} {word}"


def kind_of(action):
    """The kind of box in `BOXES`, or else, as of what takes no time, what it does."""
    return f"collective of {action.value}" if action.what == "collective" else action.what


def label_of(action, with_stage):
    """ "F3", with the stage "F3 s1"; nothing for actions that compute nothing."""
    if action.what not in COMPUTES:
        return ""
    return f"{action.what}{action.micro_batch}" + (f" s{action.stage}" if with_stage else "")


def have_several_stages(plan):
    """Whether a device computes several, so that labels name them."""
    return any(len({action.stage for action in todo if action.what in COMPUTES}) > 1 for todo in plan.actions)


def _draw_events(axes, plan, simulation):
    boxes = [event for event in simulation.events if kind_of(event.action) in BOXES]
    with_stage = have_several_stages(plan)
    numbers = sum(event.action.what in COMPUTES for event in boxes) <= MOST_NUMBERS
    for event in boxes:
        _, colour = BOXES[kind_of(event.action)]
        text = label_of(event.action, with_stage).replace(" ", "\n") if numbers else ""
        for device in event.devices:
            if event.end == event.start:  # it takes no time: a mark
                axes.plot([event.start] * 2, [device - 0.4, device + 0.4], color=colour, lw=3, zorder=2)
                continue
            axes.barh(device, event.end - event.start, 0.8, event.start, color=colour, ec="white", lw=0.8)
            if text:
                centre = (event.start + event.end) / 2
                axes.text(centre, device, text, ha="center", va="center", fontsize=7, zorder=4, clip_on=True)
    step = max(1, plan.k // 16)
    axes.set(yticks=range(0, plan.k, step), ylim=(plan.k - 0.5, -0.5), xlim=(0, 1.005 * simulation.seconds or 1))
    axes.set_ylabel("device")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _draw_message(axes, message):
    """An arrow between the edges of the devices' rows."""
    towards = 0.4 if message.destination > message.source else -0.4
    begin, end = (message.start, message.source + towards), (message.end, message.destination - towards)
    _, colour = MESSAGES[message.action.value]
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


def _legend(simulation, messages):
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    kinds, values = legend_of(simulation)
    boxes = [Patch(color=colour, label=name) for name, colour in kinds.values()]
    return boxes + [Line2D([], [], color=colour, label=name) for name, colour in values.values() if messages]


def legend_of(simulation):
    """Those of `BOXES` and of `MESSAGES` that there are."""
    kinds = {kind_of(event.action) for event in simulation.events}
    values = {message.action.value for message in simulation.messages}
    return {kind: BOXES[kind] for kind in BOXES if kind in kinds}, {v: MESSAGES[v] for v in MESSAGES if v in values}
