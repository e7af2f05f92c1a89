"""Plots: figures that can be understood without the text around them."""

import itertools
import math

import numpy as np

from ..base.arguments import shown
from ..base.text import listed, several
from ..devices.timeline import rows_of_spans
from . import BLUE, COLOURS, LONGEST, ORANGE, figure_of, legend_label, name_ticks

PHASE_COLOURS = dict(zip("forward backward allreduce update data step".split(), COLOURS, strict=False))
PHASE_COLOURS["waiting"] = "#D9D9D9"


def plot_history(history, losses=()):
    """Plot the accuracy in training and on the test set (or the test loss), your own metrics and the training loss.

    There is one value per epoch, and the plots are side by side. Returns the figure.

    ``history``: a `History`, or a `Result` of `train`; anything else raises ValueError. ``losses``: pairs of a time in
    epochs and the loss of the epoch so far, for a line within the epochs.
    """
    history = getattr(history, "history", history)
    if not hasattr(history, "train_loss"):
        raise ValueError(f"plot_history: {shown(history)} should be a history, as train returns it")
    columns = 2 + len(history.metrics)
    figure, (tested, *metrics, loss) = figure_of((4.5 * columns, 3.6), 1, columns)
    epochs = range(1, len(history.train_loss) + 1)
    if history.test_loss:
        _plot_tested(tested, history.test_loss, "test loss per example", (0, None))
    else:
        counted = [math.nan if value is None else value for value in history.train_accuracy]
        tested.plot(epochs, counted, "s-", color=ORANGE, label="training, while it learned")
        above = bool(counted) and counted[-1] > history.test_accuracy[-1]
        _plot_tested(tested, history.test_accuracy, "accuracy", (0, 1), -15 if above else 8, label="test")
        tested.legend(frameon=False, loc="lower right")
    for axes, (name, values) in zip(metrics, history.metrics.items(), strict=True):
        _plot_tested(axes, values, f"{name}, test set", (None, None))
    loss.plot(epochs, history.train_loss, "s-", color=ORANGE, label="whole epoch")
    if losses:
        loss.plot(*zip(*losses, strict=True), color=ORANGE, alpha=0.5, linewidth=1, label="the epoch so far")
        loss.legend(frameon=False)
    loss.set(ylabel="training loss per example", ylim=(0, None))
    for axes in (tested, *metrics, loss):
        show_epochs(axes, 0 if losses else 0.5, history.epochs)
    exchange = f"split {history.split}" if history.split else f"{history.allreduce} allreduce"
    settings = f"batch {history.batch_size}, lr {history.lr:g}, {exchange}, {history.init} weights"
    figure.suptitle(f"{history.network} on {listed(history.devices)}: {settings}")
    return figure


def show_epochs(axes, begin, epochs):
    """Make the x-axis show epochs, counted from 1."""
    from matplotlib.ticker import MaxNLocator

    axes.set(xlabel="epoch", xlim=(begin, epochs + 0.5))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)


def _plot_tested(axes, values, ylabel, limits, away=8, **line):
    """Plot what was measured on the test set after each epoch, with the last value ``away`` points above its marker."""
    epochs = range(1, len(values) + 1)
    axes.plot(epochs, values, "o-", color=BLUE, **line)
    axes.set(ylabel=ylabel, ylim=limits)
    if values:
        place = len(values), values[-1]
        style = {"textcoords": "offset points", "xytext": (0, away), "ha": "center", "color": BLUE}
        axes.annotate(f"{values[-1]:.3f}", place, **style)


def plot_timeline(spans, steps=2):
    """Plot what each device did when, as a Gantt chart of a few training steps; return the matplotlib figure.

    ``spans``: as from `Timeline.all_spans`. The chart shows ``steps`` steps in a row that together took the median
    time, so that an interruption is not mistaken for a normal step. The first two steps are left out, because they are
    slower than the rest. If there are not enough steps, everything is shown. Spans may have names of your own; these
    get the colours that are left.
    """
    from matplotlib.patches import Patch

    rows = rows_of_spans(spans)
    begin, end = _window(spans, steps)
    colours = _colours_of(spans)
    figure, axes = figure_of((10, 1.2 + 0.45 * len(rows)))
    for span in spans:
        left, right = max(span.begin, begin), min(span.end, end)
        if left < right:  # devices need not begin a step at the same time: a span may be seen in part
            style = {"color": colours[span.name], "edgecolor": "white", "linewidth": 0.3}
            axes.barh(rows.index(span.row), 1000 * (right - left), left=1000 * (left - begin), height=0.8, **style)
    name_ticks(axes.yaxis, range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set(xlabel="milliseconds", xlim=(0, 1000 * (end - begin)))
    handles = [Patch(color=colour, label=legend_label(name)) for name, colour in colours.items()]
    figure.legend(handles=handles, ncols=len(handles), loc="outside upper center", frameon=False)
    return figure


def plot_confusion(matrix, names):
    """Plot a confusion matrix (classes, classes), a row per true class, in percent of the row; return the figure."""
    share = 100 * matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    size, beside = 2.5 + 0.55 * len(names), 0.08 * max(0, min(LONGEST, max(map(len, names))) - 12)
    figure, axes = figure_of((size + 0.8 + beside, size + beside))
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=100)
    for (i, j), value in np.ndenumerate(share):
        if matrix[i, j]:
            axes.text(j, i, f"{value:.0f}", ha="center", va="center", color="white" if value > 50 else "black")
    name_ticks(axes.xaxis, range(len(names)), names, rotation=45, ha="right")
    name_ticks(axes.yaxis, range(len(names)), names)
    right = matrix.trace() / max(matrix.sum(), 1)
    axes.set(xlabel="taken for", ylabel="is", title=f"{several(matrix.sum(), 'image')}, {right:.1%} right")
    figure.colorbar(image, label="percent of the row", shrink=0.8)
    return figure


def _colours_of(spans):
    """A colour for each name among the spans: the phases first, in their own colours."""
    names = dict.fromkeys(span.name for span in spans)
    phases = {name: colour for name, colour in PHASE_COLOURS.items() if name in names}
    others = [name for name in names if name not in phases]
    return phases | dict(zip(others, itertools.cycle(c for c in COLOURS if c not in phases.values()), strict=False))


def _window(spans, steps):
    """The begin and end of the steps to show, of median duration. A step ends with the last device's update."""
    rows = {span.row: [] for span in spans if span.name == "update"}
    for span in sorted(spans, key=lambda span: span.begin):
        rows.get(span.row, []).append(span)
    ends = [max(each) for each in zip(*map(_step_ends, rows.values()), strict=False)]
    windows = sorted(zip(ends[1:], ends[1 + steps :], strict=False), key=lambda window: window[1] - window[0])
    if windows:
        return windows[(len(windows) - 1) // 2]
    return min((span.begin for span in spans), default=0.0), max((span.end for span in spans), default=1.0)


def _step_ends(spans):
    """The ends of the steps on one device: updates that no other update follows (overlapped steps update twice)."""
    following = [*(span.name for span in spans[1:]), None]
    return [span.end for span, then in zip(spans, following, strict=True) if span.name == "update" != then]
