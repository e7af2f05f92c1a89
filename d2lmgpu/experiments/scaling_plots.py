"""Plot scaling experiments: measured, predicted and ideal results."""

import numpy as np

from ..base.text import several
from ..devices.timeline import PHASES
from ..pictures import COLOURS, figure_of
from ..pictures.plots import PHASE_COLOURS

STACKED = [name for name in PHASES if name != "data"]
"""The devices' phases, which add up to the step. "data" is the host program's work at the same time."""
SHADES = PHASE_COLOURS | {"step": COLOURS[5], "waiting": "#D9D9D9"}


def plot_scaling(scaling):
    """Plot a `Scaling` in four panels: seconds per epoch, speed-up, efficiency, and where a step's time goes.

    Dots are medians over the rounds; bars go from the lowest to the highest value. Returns the matplotlib figure.
    """
    figure, ((times, speedups), (efficiencies, phases)) = figure_of((11, 7.6), 2, 2)
    counts = [row.devices for row in scaling.rows]
    for axes, measure, label, ideal in (
        (times, "seconds_per_epoch", "seconds per epoch", [scaling.rows[0].seconds_per_epoch / k for k in counts]),
        (speedups, "speedup", "speed-up: times as fast as one device", counts),
        (efficiencies, "efficiency", "efficiency: speed-up / devices", [1] * len(counts)),
    ):
        _draw_measure(axes, scaling.rows, measure, counts, ideal)
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
            style = {"color": SHADES[name], "edgecolor": "white", "linewidth": 0.5}
            axes.bar(places, heights, 0.6, bottoms, label=name, **style)
        bottoms = bottoms + heights
    data = scales * [row.phases.get("data", 0.0) for row in rows]
    if data.any():
        axes.bar(places + 0.37, data, 0.1, color=SHADES["data"], label="data (host,\nmeanwhile)")
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
