"""Plot scaling experiments: measured, predicted and ideal results."""

import math

import numpy as np

from ..base.arguments import check_list, check_name, is_number, shown
from ..base.text import several
from ..devices.timeline import PHASES
from ..pictures import COLOURS, MARKERS, figure_of, legend_label, name_ticks
from ..pictures.plots import PHASE_COLOURS, show_epochs
from .sweep_files import MEASURES, measure
from .trials import DEFAULTS, describe, show, varying

STACKED = [name for name in PHASES if name != "data"]
"""The devices' phases, which add up to the step. "data" is the host program's work at the same time."""
_SHADES = PHASE_COLOURS | {"step": COLOURS[5], "waiting": "#D9D9D9"}


def plot_scaling(scaling):
    """Plot a `Scaling` in four panels: seconds per epoch, speed-up, efficiency, and where a step's time goes.

    Dots are medians over the rounds; bars go from the lowest to the highest value. Returns the matplotlib figure.
    """
    figure, ((times, speedups), (efficiencies, phases)) = figure_of((11, 7.6), 2, 2)
    counts = [row.devices for row in scaling.rows]
    for axes, field, label, ideal in (
        (times, "seconds_per_epoch", "seconds per epoch", [scaling.rows[0].seconds_per_epoch / k for k in counts]),
        (speedups, "speedup", "speed-up: times as fast as one device", counts),
        (efficiencies, "efficiency", "efficiency: speed-up / devices", [1] * len(counts)),
    ):
        _draw_measure(axes, scaling.rows, field, counts, ideal)
        axes.set(xlabel="devices", ylabel=label, ylim=(0, None))
        if axes is times and scaling.model:
            predicted = [row.predicted_seconds_per_epoch for row in scaling.rows[1:]]
            axes.plot(counts[1:], predicted, "D", color=COLOURS[1], ms=8, mfc="none", label="predicted")
        if max(counts) > scaling.places > min(counts):
            axes.axvline(scaling.places, color="#555555", ls=":", lw=1, label=scaling.of_places())
        axes.legend(frameon=False, fontsize=8)
    _draw_phases(phases, scaling.rows, [f"{row.devices}\n(batch {row.batch_size:,})" for row in scaling.rows])
    phases.set(xlabel="devices")
    phases.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    figure.suptitle(_title(scaling), fontsize="medium")
    return figure


def plot_phases(experiments):
    """Plot where a step's time goes, with a panel for each of ``experiments``: {title: `Scaling`}; return the figure.

    The phases of the devices are stacked. The narrow bar beside them is the host
    program's work on the data, which runs at the same time.
    """
    figure, panels = figure_of((3.2 * len(experiments) + 1.2, 3.8), 1, len(experiments), squeeze=False)
    for axes, (title, scaling) in zip(panels.flat, experiments.items(), strict=True):
        _draw_phases(axes, scaling.rows, [str(row.devices) for row in scaling.rows])
        axes.set(xlabel="devices", title=title)
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _draw_measure(axes, rows, measure, counts, ideal):
    middle, least, most = (np.array([getattr(row, measure + end) for row in rows]) for end in ("", "_min", "_max"))
    axes.plot(counts, ideal, color="#555555", ls="--", lw=1, label="ideal")
    spread, style = [middle - least, most - middle], {"color": COLOURS[0], "marker": "o", "capsize": 4}
    axes.errorbar(counts, middle, spread, label="measured", **style)
    axes.set_xticks(counts, map(str, counts))
    axes.grid(alpha=0.3)


def _draw_phases(axes, rows, labels):
    """Draw stacked bars of milliseconds per step."""
    scales = np.array([1000 * row.seconds_per_step / row.seconds_per_epoch for row in rows])
    bottoms, places = np.zeros(len(rows)), np.arange(len(rows))
    for name in STACKED:
        heights = scales * [row.phases.get(name, 0.0) for row in rows]
        if heights.any():
            style = {"color": _SHADES[name], "edgecolor": "white", "linewidth": 0.5}
            axes.bar(places, heights, 0.6, bottoms, label=name, **style)
        bottoms = bottoms + heights
    data = scales * [row.phases.get("data", 0.0) for row in rows]
    if data.any():
        axes.bar(places + 0.37, data, 0.1, color=_SHADES["data"], label="data (host,\nmeanwhile)")
    axes.set_xticks(places, labels)
    axes.set(ylabel="milliseconds per step")
    axes.set_axisbelow(True)
    axes.grid(alpha=0.3, axis="y")


def _title(scaling):
    width = "" if scaling.width == 1 else f" × {scaling.width:g}"
    batch = f"batch {scaling.batch_size:,}" + (" on each device" if scaling.mode == "weak" else " in all")
    rounds = f"{several(scaling.rounds, 'round')} of {several(scaling.steps, 'step')}"
    return (
        f"{scaling.mode.capitalize()} scaling of {scaling.network}{width}: {batch}, allreduce {scaling.allreduce}\n"
        f"{scaling.machine}; {rounds}, median, least to most"
    )


# A sweep as a figure: results against one setting, with a line for each value of another; and training curves.


LABELS = {"lr": "learning rate", "batch_size": "minibatch (examples)", "limit": "training examples"}
LABELS |= {"num_epochs": "epochs", "warmup": "warm-up (epochs)", "algorithm": "allreduce", "init": "initial weights"}
LABELS |= {"best accuracy": "best test accuracy", "last accuracy": "test accuracy after the last epoch"}

WIDE = 5
"""The axis is logarithmic if the largest number is at least this many times the smallest."""

TICKS = 12
"""The most numbers that are marked on an axis."""

_MAX_NAMED = 20
"""The most lines that the legend names; with more, it would be taller than the figure."""

CLIPPED = 1.5
"""Losses of diverged trials are shown up to this many times the largest loss of the other trials."""

ROOM = 0.04
"""The height, as a part of the figure's, of the marks of a line's trials without a result."""


def check_axes(x, y, by):
    """Raise ValueError unless ``x`` and ``by`` are two different settings, and ``y`` is a measure."""
    for name, value, known in (("x", x, DEFAULTS), ("y", y, MEASURES), ("by", by, DEFAULTS)):
        check_name(name, value, known)
    if x == by:
        raise ValueError(f"x and by are both {x!r}; choose another setting for one of them")


def _checked(rows):
    """The ``rows`` as a list, which may be one row. Raises ValueError unless they are rows as from `sweep`."""
    rows = check_list("rows", rows, of="rows, as from sweep", one=dict)
    if not rows or not all(isinstance(row, dict) and "settings" in row for row in rows):
        raise ValueError(f"rows are {shown(rows)}; give at least one row, as from sweep")
    return rows


def plot_sweep(rows, x="lr", y="best accuracy", by="devices"):
    """Plot a measure of trials against setting ``x``, one line per value of setting ``by``; return a matplotlib figure.

    ``rows``: from `sweep`; ``y``: one of `MEASURES`. If trials also differ in other settings, such as the seed, the
    line goes through the medians, and bars go from the lowest to the highest result. Trials without a result, because
    they diverged, failed or were interrupted, are hollow marks at the bottom. Raises ValueError for
    anything but rows, and as `check_axes` does.
    """
    rows = _checked(rows)
    check_axes(x, y, by)
    figure, axes = figure_of((8, 5))
    places, is_numeric = _axis(axes, [_value(row, x) for row in rows])
    groups = list(dict.fromkeys(_value(row, by) for row in rows))
    for i, group in enumerate(groups):
        found, lost = {value: [] for value in places}, []
        for row in (row for row in rows if _value(row, by) == group):
            result = measure(row, y)
            lost += [places[_value(row, x)]] * (result is None)
            found[_value(row, x)] += [] if result is None else [result]
        least, middle, most = np.transpose([np.quantile(some or [math.nan], [0, 0.5, 1]) for some in found.values()])
        style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        line = style | {"label": legend_label(show(group)), "linestyle": "-" if is_numeric else ""}
        axes.errorbar(list(places.values()), middle, [middle - least, most - middle], capsize=3, **line)
        height = ROOM * (len(groups) - i - 0.5)
        axes.plot(lost, [height] * len(lost), transform=axes.get_xaxis_transform(), mfc="none", linestyle="", **style)
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom - (top - bottom) * ROOM * len(groups), top)
    axes.set(xlabel=_label(x, rows), ylabel=_label(y, rows))
    axes.legend(title=_label(by, rows), frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    axes.grid(alpha=0.3)
    lost = dict.fromkeys(row["status"] for row in rows if measure(row, y) is None)
    figure.suptitle(_title_of_sweep(rows, lost, (x, by)), fontsize="medium", wrap=True)
    return figure


def _value(row, name):
    value = row["settings"][name]
    return show(value) if isinstance(value, (list, dict)) else value


def _axis(axes, values):
    """A dict of where each of a setting's values is on the x-axis, and whether all are numbers."""
    values, is_numeric = list(dict.fromkeys(values)), all(map(is_number, values))
    if is_numeric:
        values.sort()
    places = {value: value if is_numeric else i for i, value in enumerate(values)}
    if is_numeric and values[0] > 0 and values[-1] >= WIDE * values[0]:
        axes.set_xscale("log")
    if not is_numeric or len(values) <= TICKS:
        name_ticks(axes.xaxis, list(places.values()), map(show, values))
        axes.minorticks_off()
    return places, is_numeric


def _label(name, rows):
    """An axis label, which must say so if a setting is not the value that training used."""
    scaled = name in ("lr", "batch_size") and any(row["settings"]["scale_batch"] for row in rows)
    return LABELS.get(name, name) + (", before scale_batch" if scaled else "")


def _title_of_sweep(rows, lost, axes):
    """What lines, bars and marks are; ``lost``: the statuses of trials without a result."""
    rest = [LABELS.get(name, name) for name in varying([row["settings"] for row in rows]) if name not in axes]
    lines = [f"line: median of trials, which differ in {' and '.join(rest)}; bars: least to most"] if rest else []
    lines += [f"hollow, at the bottom: {' and '.join(lost)}"] * bool(lost)
    return "\n".join(lines)


def plot_curves(rows):
    """Plot test accuracy and training loss by epoch, one line per trial; return the matplotlib figure.

    ``rows``: from `sweep`, as passed to ``watch``, or from `load_sweep`. Lines of trials that have not ended are
    dashed. Raises ValueError for anything but rows.
    """
    rows = _checked(rows)
    longest = max(row["settings"]["num_epochs"] for row in rows)
    names = varying([row["settings"] for row in rows]) or ["devices", "lr"]
    rows = [row for row in rows if row["history"]]  # failed trials have none
    figure, (accuracy, loss) = figure_of((11, 4), 1, 2)
    for i, row in enumerate(rows):
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": "-" if row["status"] == "done" else "--"}
        label = describe(row["settings"], names) + ("" if row["status"] == "done" else f" ({row['status']})")
        for axes, curve in ((accuracy, "test_accuracy"), (loss, "train_loss")):
            values = row["history"][curve]
            epochs = range(1, len(values) + 1)
            axes.plot(epochs, values, marker="o", markersize=3, linewidth=1, label=label, **style)
    accuracy.set(ylabel="test accuracy", ylim=(0, 1))
    losses = [loss for row in rows if row["status"] != "diverged" for loss in row["history"]["train_loss"]]
    most = max(filter(math.isfinite, losses), default=0)  # losses of diverged trials may exceed it
    loss.set(ylabel="training loss per example", ylim=(0, CLIPPED * most or None))
    for axes in (accuracy, loss):
        show_epochs(axes, 0.5, longest)
    if 0 < len(rows) <= _MAX_NAMED:
        loss.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
