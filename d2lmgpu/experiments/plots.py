"""Figures of experiments.

plot_scaling, plot_phases   scaling experiments: measured, predicted and ideal results; where a step's time goes
plot_sweep, plot_curves     the rows of a sweep: results against a setting; accuracy and loss by epoch
"""

import math

import numpy as np

from ..base.arguments import check_list, check_name, is_number, shown
from ..base.text import several
from ..devices.timeline import PHASES
from ..pictures import COLOURS, MARKERS, figure_of, legend_label, name_ticks
from ..pictures.plots import PHASE_COLOURS, show_epochs
from .trials import DEFAULTS, describe, show, varying

MEASURES = {
    "best accuracy": lambda history: max(history["test_accuracy"], default=math.nan),
    "last accuracy": lambda history: (history["test_accuracy"] or [math.nan])[-1],
    "test loss": lambda history: (history["test_loss"] or [math.nan])[-1],
    "training loss": lambda history: (history["train_loss"] or [math.nan])[-1],
    "seconds per epoch": lambda history: sum(history["seconds_per_epoch"]) / max(1, len(history["seconds_per_epoch"])),
}
"""Measures of a trial's history: over all epochs, or after the last one; NaN if there is none."""

_LABELS = {"lr": "learning rate", "best accuracy": "best test accuracy", "last accuracy": "last test accuracy"}
"""What settings and measures are called in figures, unless by their own names."""

_MAX_TICKS, _MAX_NAMED = 12, 20
"""About how many values an axis names, and the most lines that a legend names."""

_MARK_HEIGHT = 0.04
"""The height, as a part of the figure's, of the marks of a line's trials without a result."""


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
        ends = field, f"{field}_min", f"{field}_max"
        middle, least, most = (np.array([getattr(row, name) for row in scaling.rows]) for name in ends)
        axes.plot(counts, ideal, color="#555555", ls="--", lw=1, label="ideal")
        style = {"color": COLOURS[0], "marker": "o", "capsize": 4}
        axes.errorbar(counts, middle, [middle - least, most - middle], label="measured", **style)
        axes.set_xticks(counts, map(str, counts))
        axes.set(xlabel="devices", ylabel=label, ylim=(0, None))
        axes.grid(alpha=0.3)
        if axes is times and scaling.messages:
            predicted = [row.predicted_seconds_per_epoch for row in scaling.rows[1:]]
            axes.plot(counts[1:], predicted, "D", color=COLOURS[1], ms=8, mfc="none", label="predicted")
        if max(counts) > scaling.places > min(counts):
            axes.axvline(scaling.places, color="#555555", ls=":", lw=1, label=scaling.of_places())
        axes.legend(frameon=False, fontsize=8)
    _draw_phases(phases, scaling.rows, [f"{row.devices}\n(batch {row.batch_size:,})" for row in scaling.rows])
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
        axes.set_title(title)
    axes.legend(frameon=False, fontsize=9, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _draw_phases(axes, rows, labels):
    """Draw bars of milliseconds per step: the phases of the devices, stacked, and beside them the host's "data"."""
    scales = np.array([1000 * row.seconds_per_step / row.seconds_per_epoch for row in rows])
    bottoms, places = np.zeros(len(rows)), np.arange(len(rows))
    for name in PHASES[1:]:  # without "data"
        heights = scales * [row.phases.get(name, 0.0) for row in rows]
        if heights.any():
            style = {"color": PHASE_COLOURS[name], "edgecolor": "white", "linewidth": 0.5}
            axes.bar(places, heights, 0.6, bottoms, label=name, **style)
        bottoms = bottoms + heights
    data = scales * [row.phases.get("data", 0.0) for row in rows]
    if data.any():
        axes.bar(places + 0.37, data, 0.1, color=PHASE_COLOURS["data"], label="data (host,\nmeanwhile)")
    axes.set_xticks(places, labels)
    axes.set(xlabel="devices", ylabel="milliseconds per step")
    axes.set_axisbelow(True)
    axes.grid(alpha=0.3, axis="y")


def _title(scaling):
    width = "" if scaling.width == 1 else f" × {scaling.width:g}"
    batch = f"batch {scaling.batch_size:,}" + (" on each device" if scaling.mode == "weak" else " in all")
    rounds = f"{several(scaling.rounds, 'round')} of {several(scaling.steps, 'step')}"
    what = f"{scaling.mode.capitalize()} scaling of {scaling.network}{width}: {batch}, allreduce {scaling.allreduce}"
    return f"{what}\n{scaling.machine}; {rounds}, median, least to most"


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

    ``rows``: from `sweep`, or one of them; ``y``: one of `MEASURES`. If trials also differ in other settings, such as
    the seed, the line goes through the medians, and bars go from the lowest to the highest result. Trials without a
    result, because they diverged, failed or were interrupted, are hollow marks at the bottom. Raises ValueError for
    anything but rows, and as `check_axes` does.
    """
    rows = _checked(rows)
    check_axes(x, y, by)
    figure, axes = figure_of((8, 5))
    places, are_numbers = _places(axes, [_value(row, x) for row in rows])
    groups = dict.fromkeys(_value(row, by) for row in rows)
    for i, group in enumerate(groups):
        mine = [(places[_value(row, x)], _measure(row, y)) for row in rows if _value(row, by) == group]
        lost = [place for place, result in mine if result is None]
        found = [pair for pair in mine if pair[1] is not None]
        results = [[result for place, result in found if place == each] or [math.nan] for each in places.values()]
        least, middle, most = np.transpose([np.quantile(each, [0, 0.5, 1]) for each in results])
        style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)]}
        line = style | {"label": legend_label(show(group)), "linestyle": "-" if are_numbers else ""}
        axes.errorbar(list(places.values()), middle, [middle - least, most - middle], capsize=3, **line)
        height = _MARK_HEIGHT * (len(groups) - i - 0.5)
        axes.plot(lost, [height] * len(lost), transform=axes.get_xaxis_transform(), mfc="none", linestyle="", **style)
    bottom, top = axes.get_ylim()
    axes.set_ylim(bottom - (top - bottom) * _MARK_HEIGHT * len(groups), top)
    axes.set(xlabel=_label(x, rows), ylabel=_label(y, rows))
    axes.legend(title=_label(by, rows), frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    axes.grid(alpha=0.3)
    figure.suptitle(_title_of_sweep(rows, x, y, by), fontsize="medium", wrap=True)
    return figure


def _value(row, name):
    value = row["settings"][name]
    return show(value) if isinstance(value, (list, dict)) else value


def _measure(row, name):
    """One of `MEASURES` of a row; None for a trial without a result, and for a result that is not finite."""
    value = MEASURES[name](row["history"]) if row["status"] == "done" else math.nan
    return value if math.isfinite(value) else None


def _places(axes, values):
    """Name a setting's values on the x-axis, side by side; return their places, a dict, and whether all are numbers."""
    values, are_numbers = list(dict.fromkeys(values)), all(map(is_number, values))
    if are_numbers:
        values.sort()
    named = slice(None, None, 1 + len(values) // _MAX_TICKS)
    name_ticks(axes.xaxis, range(len(values))[named], map(show, values[named]))
    return {value: place for place, value in enumerate(values)}, are_numbers


def _label(name, rows):
    """An axis label, which must say so if a setting is not the value that training used."""
    scaled = name in ("lr", "batch_size") and any(row["settings"]["scale_batch"] for row in rows)
    return _LABELS.get(name, name) + (", before scale_batch" if scaled else "")


def _title_of_sweep(rows, x, y, by):
    """What lines, bars and hollow marks are, if there are any."""
    rest = [_LABELS.get(name, name) for name in varying([row["settings"] for row in rows]) if name not in (x, by)]
    lines = [f"line: median of trials, which differ in {' and '.join(rest)}; bars: least to most"] if rest else []
    lost = dict.fromkeys(row["status"] for row in rows if _measure(row, y) is None)
    lines += [f"hollow, at the bottom: {' and '.join(lost)}"] if lost else []
    return "\n".join(lines)


def plot_curves(rows):
    """Plot test accuracy and training loss by epoch, one line per trial; return the matplotlib figure.

    ``rows``: from `sweep`, as passed to ``watch``, or from `load_sweep`; or one of them. Lines of trials that
    have not ended are dashed. Raises ValueError for anything but rows.
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
    most = max(filter(math.isfinite, losses), default=0)  # those of diverged trials would dwarf the others
    loss.set(ylabel="training loss per example", ylim=(0, 1.5 * most or None))
    for axes in (accuracy, loss):
        show_epochs(axes, 0.5, longest)
    if 0 < len(rows) <= _MAX_NAMED:
        loss.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
