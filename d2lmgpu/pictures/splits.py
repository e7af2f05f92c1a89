"""Draw which device computes which part of a minibatch, and which data the devices send each other.

This is the textbook's picture of the ways to split a step, drawn for any plan: the network's layers from top to bottom,
the micro-batches from left to right, each in the colour of the device that computes it. If several devices compute the
same layer for the same micro-batch, their colours are side by side, with the channels of each device.
"""

from ..base.arguments import plain
from ..base.text import several
from ..collectives.actions import Transfer
from ..networks import layer_rows
from ..plans.plan import Compute, computed_with
from ..plans.proof.check import check_plan
from ..plans.proof.memory import unit_bytes
from ..plans.proof.sizes import examples_of
from ..plans.stages import splits_of
from . import COLOURS, figure_of

SHADES = "#8FD3B6 #F4C77B #A9CDEB #E3B4CF #D0D0D0 #C9B79C".split()
"""The colours of the devices, in order, light enough for black text."""
WAYS = {
    "y": ("outputs y", COLOURS[0]),
    "dy": ("their gradients dy", COLOURS[1]),
    "grads": ("gradients of parameters", COLOURS[6]),
    "params": ("parameters", COLOURS[8]),
}
"""The name and colour of each kind of data that is sent. The small sums of batch norm are not drawn."""
BOX, GAP, APART = 0.92, 1.2, 0.04
"""The heights of a layer's box and of the gap between stages, if a row has 1; the gap between micro-batches."""
_MAX_NAMED = 3
"""If more boxes than this are side by side, they have no text."""


def draw_splits(plans, batch_size=256):
    """A matplotlib figure with a panel for each of ``plans``, a dict from titles to plans of one network.

    Arrows show which data are sent, with the total number of bytes for a minibatch of ``batch_size``, in float32. Boxes
    side by side show their channels, and the bottom row shows how many parameters each device updates.

    Raises ValueError if there are no plans, or if their networks differ; PlanError for an invalid plan.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    batch_size = plain(batch_size)
    if len({plan.network for plan in plans.values()}) != 1:
        raise ValueError(f"draw_splits: {several(len(plans), 'plan')}; give plans of one network")
    rows = layer_rows(next(iter(plans.values())).network)
    cuts = {stage.first for plan in plans.values() for stage in plan.stages} - {0}
    tops = [row + GAP * sum(cut <= row for cut in cuts) for row in range(len(rows) + 1)]
    tops.append(tops[-1] + 1 + GAP)  # for the updates
    size = 1.7 + 2.1 * len(plans), 0.26 * tops[-1] + 1.3
    figure, panels = figure_of(size, 1, len(plans), sharey=True, squeeze=False)
    kinds = set()
    for axes, (title, plan) in zip(panels.flat, plans.items(), strict=True):
        check_plan(plan)
        axes.set_title(title, fontsize=10, loc="left")
        kinds |= _draw_panel(axes, plan, tops, batch_size, unit_bytes(plan, batch_size, "float32"))
    names = [f"{name.partition('(')[0]} → {' × '.join(map(str, shape))}" for name, shape, *_ in rows]
    places = [-0.3, *(top + BOX / 2 for top in tops)]
    panels[0, 0].set_yticks(places, ["images", *names, "loss", "parameters updated"], fontsize=8)
    panels[0, 0].set_ylim(tops[-1] + 1, -0.8)
    k = max(plan.k for plan in plans.values())
    handles = [Patch(color=_shade(i), label=f"device {i}") for i in range(k)]
    handles += [Line2D([], [], color=colour, label=name) for kind, (name, colour) in WAYS.items() if kind in kinds]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8, frameon=False)
    return figure


def computed_by(plan):
    """What each device computes: {(stage, micro-batch): {device: its units, (start, stop), or None for all}}."""
    splits, found = splits_of(plan.network, plan.stages), {}
    for compute in (a for step in plan.steps for a in step if isinstance(a, Compute) and a.what == "F"):
        split, devices = splits[compute.stage], found.setdefault((compute.stage, compute.micro_batch), {})
        devices[compute.device] = split and split.units_of(computed_with(plan, compute.device, compute.stage))
    return found


def _shade(device):
    return SHADES[device % len(SHADES)]


def _numbers(start, stop):
    return f"{start}–{stop - 1}" if start < stop else "none"


def _draw_panel(axes, plan, tops, batch_size, bytes_of):
    """Draw one plan; return the kinds of data that are sent."""
    M, places = plan.micro_batches, {}  # {(stage, micro-batch, device): (middle, top, bottom)}
    for m in range(M):
        _write(axes, (m + 0.5) / M, -0.3, _numbers(*examples_of(batch_size, M, m)), M)
    for (s, m), units in computed_by(plan).items():
        first, stop = plan.stages[s][:2]
        rows = range(first, stop + (s == len(plan.stages) - 1))  # the loss is the last stage's
        for i, device in enumerate(units):
            left, width = (m + APART / 2 + i / len(units) * (1 - APART)) / M, (1 - APART) / len(units) / M
            high = tops[rows[-1]] + BOX - tops[first]
            axes.barh(tops[first], width, high, left, align="edge", color=_shade(device), alpha=0.35, zorder=1)
            _draw_boxes(axes, [tops[row] for row in rows], left, width, device)
            if len(units) > 1:
                said = _numbers(*units[device]) if units[device] else "all"
                _write(axes, left + width / 2, tops[first] + BOX / 2, said, len(units) * M)
            places[s, m, device] = left + width / 2, tops[first], tops[rows[-1]] + BOX
    for device, parts in enumerate(plan.layout):
        number = sum(part.state[1] - part.state[0] for part in parts)
        _draw_boxes(axes, tops[-1:], (device + APART / 2) / plan.k, (1 - APART) / plan.k, device)
        places["update", None, device] = (device + 0.5) / plan.k, tops[-1], tops[-1] + BOX
        _write(axes, (device + 0.5) / plan.k, tops[-1] + BOX / 2, f"{number:,}", plan.k)
    axes.set(xlim=(0, 1.35), xticks=[])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return _draw_messages(axes, plan, places, bytes_of)


def _draw_boxes(axes, tops, left, width, device):
    axes.barh(tops, width, BOX, left, align="edge", color=_shade(device), ec="white", lw=1.5, zorder=2)


def _write(axes, x, y, text, count):
    if count <= _MAX_NAMED:
        axes.text(x, y, text, ha="center", va="center", fontsize=7, zorder=4)


def _draw_messages(axes, plan, places, bytes_of):
    """Draw arrows for the transfers, with the number of bytes; return the kinds of data that are sent."""
    lowest = {device: place for (s, _, device), place in sorted(places.items(), key=lambda p: p[1][2]) if s != "update"}
    arrows, sent = {}, {}
    for t in (a for step in plan.steps for a in step if isinstance(a, Transfer) and a.source != a.destination):
        kind, s, *m = t.value
        if kind not in WAYS:
            continue
        up = kind in ("dy", "params")
        over, under = (t.destination, t.source) if up else (t.source, t.destination)
        if kind in ("y", "dy"):
            above, below = places[s, m[0], over], places[s + 1, m[0], under]
        else:
            above, below = lowest[over], places["update", None, under]
        aside = 0.02 if up else -0.02
        ends = (above[0] + aside, above[2]), (below[0] + aside, below[1])
        arrows[(kind, *(ends[::-1] if up else ends))] = None
        gap = (above[2] + below[1]) / 2
        sent[gap] = sent.get(gap, 0) + t.size * bytes_of(t.value)
    for kind, start, end in arrows:
        style = {"arrowstyle": "-|>", "color": WAYS[kind][1], "lw": 1, "shrinkA": 1, "shrinkB": 1}
        axes.annotate("", end, start, arrowprops=style, zorder=3)
    for gap, nbytes in sent.items():
        axes.text(1.01, gap, f"{nbytes / 1e6:.2f} MB", va="center", fontsize=7)
    return {kind for kind, *_ in arrows}
