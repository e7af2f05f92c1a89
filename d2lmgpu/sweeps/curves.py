"""The curves of a sweep's trials as a figure, those of trials that still run, too."""

import math

from ..collectives.draw import COLOURS
from .results import check_rows
from .trials import describe, varying

MOST_NAMED = 20
"""Lines that the legend names; of more it would be longer than the figure."""

CLIPPED = 1.5
"""Times the largest loss of trials that did not diverge which is shown of those that did."""


def plot_curves(rows):
    """Test accuracy and training loss by epoch, a line for each trial; returns the matplotlib figure.

    ``rows`` as `sweep` returns them, or ``watch`` is given, or `load_sweep`. Lines of trials that have not ended are
    dashed. Raises ValueError for what is no list of rows, or an empty one.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    if not check_rows(rows):
        raise ValueError("there are no rows to plot")
    longest = max(row["settings"]["num_epochs"] for row in rows)
    names = varying([row["settings"] for row in rows]) or ["devices", "lr"]
    rows = [row for row in rows if row["history"]]  # which trials that failed have not
    figure = Figure(figsize=(11, 4), layout="constrained")
    accuracy, loss = figure.subplots(1, 2)
    for i, row in enumerate(rows):
        style = {"color": COLOURS[i % len(COLOURS)], "linestyle": "-" if row["status"] == "done" else "--"}
        label = describe(row["settings"], names) + ("" if row["status"] == "done" else f" ({row['status']})")
        for axes, curve in ((accuracy, "test_accuracy"), (loss, "train_loss")):
            values = row["history"][curve]
            epochs = range(1, len(values) + 1)
            axes.plot(epochs, values, marker="o", markersize=3, linewidth=1, label=label, **style)
    accuracy.set(ylabel="test accuracy", ylim=(0, 1))
    loss.set(ylabel="training loss per example", ylim=(0, _most(rows)))
    for axes in (accuracy, loss):
        axes.set(xlabel="epoch", xlim=(0.5, longest + 0.5))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    if 0 < len(rows) <= MOST_NAMED:
        loss.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _most(rows):
    """The upper end of the losses' axis, beyond which those of trials that diverged may go; None: as it comes."""
    losses = [loss for row in rows if row["status"] != "diverged" for loss in row["history"]["train_loss"]]
    finite = [loss for loss in losses if math.isfinite(loss)]
    return CLIPPED * max(finite) if finite and max(finite) > 0 else None
