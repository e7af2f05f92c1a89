"""A sweep as a figure: results against one setting, with a line for each value of another; and training curves."""

import math

import numpy as np

from ..arguments import check_list, check_name, shown
from ..figures import COLOURS, MARKERS, Name, figure_of, name_ticks
from ..plots import show_epochs
from ..words import several
from .results import MEASURES, measure
from .trials import DEFAULTS, describe, show, varying

LABELS = {
    "lr": "learning rate",
    "batch_size": "minibatch (examples)",
    "num_epochs": "epochs",
    "limit": "training examples",
    "warmup": "warm-up (epochs)",
    "algorithm": "allreduce",
    "init": "initial weights",
    "best accuracy": "best test accuracy",
    "last accuracy": "test accuracy after the last epoch",
    "training loss": "training loss per example, last epoch",
}
SCALED = {"lr": "learning rate / devices", "batch_size": "minibatch / devices (examples)"}
"""Labels of settings that `scale_batch` multiplies by the number of devices."""

FACTS = {"network": show, "optimizer": str, "num_epochs": lambda epochs: several(epochs, "epoch")}
FACTS |= {"batch_size": "batch {}".format, "lr": "lr {:g}".format, "init": "{} weights".format}
FACTS |= {"limit": lambda examples: several(examples, "training example")}
"""How the title describes settings that all trials share; `scale_batch` is treated separately."""

LOST = ("diverged", "failed", "interrupted")
WIDE = 5
"""The axis is logarithmic if the largest number is at least this many times the smallest."""

TICKS = 12
"""The most numbers that are marked on an axis."""

MOST_NAMED = 20
"""The most lines that the legend names; with more, it would be taller than the figure."""

CLIPPED = 1.5
"""Losses of diverged trials are shown up to this many times the largest loss of the other trials."""


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

    ``rows``: from `sweep`; ``y``: one of `MEASURES`. If trials also differ in other settings, such as the seed, each
    trial is a dot, the line goes through the medians, and bars go from the lowest to the highest result; the lines are
    then drawn side by side, as the title says. Trials without a result, because they diverged, failed or were
    interrupted, are marked at the bottom. Raises ValueError for anything but rows, and as `check_axes` does.
    """
    rows = _checked(rows)
    check_axes(x, y, by)
    lost = [status for status in LOST if any(row["status"] == status for row in rows)]
    heights = [4.0, 0.3 * len(lost)] if lost else [4.0]
    figure, panels = figure_of((8, 1 + sum(heights)), len(heights), sharex=True, squeeze=False, height_ratios=heights)
    panels = panels[:, 0]
    groups = list(dict.fromkeys(_value(row, by) for row in rows))
    trials = [row["settings"] for row in rows]
    points = [(_value(row, x), _value(row, by)) for row in rows]
    apart = len(groups) > 1 and len(set(points)) < len(points)
    axis = _Axis([_value(row, x) for row in rows], len(groups) if apart else 1)
    for i, group in enumerate(groups):
        mine = [row for row in rows if _value(row, by) == group]
        places = axis.places(i if apart else 0)
        style = {"color": COLOURS[i % len(COLOURS)], "marker": MARKERS[i % len(MARKERS)], "linestyle": ""}
        line = style | {"label": Name(show(group))} | ({"linestyle": "-"} if axis.numeric else {})
        _draw_results(panels[0], mine, x, y, places, line)
        if lost:
            lift = 0 if apart else 0.6 * (i / len(groups) - (len(groups) - 1) / len(groups) / 2)
            _draw_lost(panels[1], mine, x, lost, places, style, lift)
    panels[0].set_ylabel(LABELS.get(y, y))
    panels[0].legend(title=_label(by, trials), frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    for axes in panels:
        axes.grid(alpha=0.3)
    if lost:
        panels[1].set_yticks(range(len(lost)), lost)
        panels[1].set_ylim(len(lost) - 0.5, -0.5)
    axis.label(panels[-1], _label(x, trials))
    figure.suptitle(_title(trials, (x, by), apart), fontsize="medium", wrap=True)
    return figure


def _label(name, trials):
    """An axis label, which must say so if a setting is not the value that training used."""
    scaled = [settings["scale_batch"] for settings in trials]
    if name in SCALED and any(scaled):
        return SCALED[name] if all(scaled) else f"{LABELS[name]}, before scale_batch"
    return LABELS.get(name, name)


def _value(row, name):
    value = row["settings"][name]
    return show(value) if isinstance(value, (list, dict)) else value


class _Axis:
    """A setting's values along an axis: numbers to scale, names evenly spaced, with ``lines`` lines side by side."""

    def __init__(self, values, lines):
        self.values = list(dict.fromkeys(values))
        self.numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.values)
        if self.numeric:
            self.values.sort()
        self._log = self.numeric and self.values[0] > 0 and self.values[-1] >= WIDE * self.values[0]
        units = np.array(self.values if self.numeric else range(len(self.values)), float)
        self._units = np.log10(units) if self._log else units
        gap = min(np.diff(self._units), default=1)
        self._shifts = gap * min(0.1, 0.6 / lines) * (np.arange(lines) - (lines - 1) / 2)

    def places(self, line):
        """The positions of a line's values; several lines are shifted slightly towards the neighbouring values."""
        units = self._units + self._shifts[line]
        return dict(zip(self.values, 10**units if self._log else units, strict=True))

    def label(self, axes, name):
        """Label the axis, and mark the values unless there are too many numbers."""
        if self._log:
            axes.set_xscale("log")
        if not self.numeric or len(self.values) <= TICKS:
            name_ticks(axes.xaxis, 10**self._units if self._log else self._units, map(show, self.values))
            axes.minorticks_off()
        axes.set_xlabel(name)


def _draw_results(axes, rows, x, y, places, style):
    """Draw dots, and a line through the medians with a gap where no trial has a result."""
    spread = []
    for value, place in places.items():
        found = [measure(row, y) for row in rows if measure(row, y) is not None and _value(row, x) == value]
        spread.append(np.quantile(found or [math.nan], [0, 0.5, 1]))
        if len(found) > 1:
            axes.plot([place] * len(found), found, ".", color=style["color"], alpha=0.5)
    least, middle, most = np.transpose(spread)
    axes.errorbar(list(places.values()), middle, [middle - least, most - middle], capsize=3, **style)


def _draw_lost(axes, rows, x, lost, places, style, lift):
    """Draw a mark for the trials without a result at each value, with their number if there are several.

    ``lift``: how far below the row of its status a mark is drawn, so that marks of several lines at one value do not
    hide each other.
    """
    for i, status in enumerate(lost):
        for value, place in places.items():
            count = sum(row["status"] == status and _value(row, x) == value for row in rows)
            if count:
                axes.plot(place, i + lift, markerfacecolor="none", **style)
            if count > 1:
                axes.annotate(f"{count}", (place, i), (0, 4), textcoords="offset points", ha="center", fontsize=7)


def _title(trials, axes, apart):
    """A title: what all trials share, how the dots differ, and whether lines were moved ``apart``."""
    differ = varying(trials)
    shared = {name: trials[0][name] for name in FACTS if name not in (*differ, *axes)}
    facts = [FACTS[name](value) for name, value in shared.items() if value is not None]
    if trials[0]["scale_batch"] and "scale_batch" not in differ:
        facts.append("batch and lr times the number of devices")
    rest = [LABELS.get(name, name) for name in differ if name not in axes]
    dots = f"\ndots: trials, which differ in {' and '.join(rest)}; line: median; bars: least to most" if rest else ""
    beside = "\nlines side by side: a point belongs to the nearest mark of the axis" if apart else ""
    return ", ".join(facts) + dots + beside


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
    if 0 < len(rows) <= MOST_NAMED:
        loss.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure
