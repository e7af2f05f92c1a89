"""``d2lmgpu sweep``: train many networks, one for every combination of settings.

The networks learn Fashion-MNIST, or pictures in folders. A setting takes several values, separated by commas, such as
--lr 0.1,0.2, and a network is trained for every combination.
"""

import contextlib

from ..base.files import check_folder
from ..base.measuring import Throttle
from ..devices import ENVIRONMENTS
from ..experiments import MEASURES, MODES, check_axes, grid, plot_curves, plot_sweep, sweep
from .inputs import add_data, find_data, find_networks
from .options import add_option, add_output, add_plot, add_settings, listed_numbers, settings, taken, write_results


def add_to(command):
    """Add the options to the command's parser."""
    add_option(command, "--environment", str, "auto", ", ".join(ENVIRONMENTS))
    add_option(command, "--devices", listed_numbers(int), None, "numbers of devices, such as 1,2,4 (default: 1)")
    add_data(command, listed_numbers(int))
    modes = f"{MODES[0]} trains a network on each core or GPU at the same time, with all of its devices there; "
    modes += f"{MODES[1]} trains one network after another, each on all of its devices"
    add_option(command, "--mode", str, "simultaneous", modes)
    add_option(command, "--workers", int, None, "networks trained at the same time (default: one per core or GPU)")
    add_output(command, "--results", "add each row to this file as a line; trials already in it are not repeated")
    add_output(command, "--keep-models", "folder for the trained networks, for predict", "FOLDER", check_folder)
    add_plot(command, "--plot", "plot --y against --x, with a line for each --by")
    add_plot(command, "--curves", "plot accuracy and loss by epoch of all trials")
    add_option(command, "--x", str, "lr", "setting on the plot's horizontal axis, by its name in the settings")
    add_option(command, "--y", str, "best accuracy", f"result on its vertical axis: {', '.join(MEASURES)}")
    add_option(command, "--by", str, "devices", "setting for which the plot has a line for each value")
    add_settings(command, listed_numbers)


def run(options):
    """Train the networks, print how it goes, and write what was asked for; return the exit code."""
    check_axes(options.x, options.y, options.by)
    data = find_data(options)
    chosen = settings(options) | {"network": find_networks(options.network, data)}
    trials = grid(**taken(options, "devices", "environment", "limit"), **chosen)
    sparingly = Throttle()

    def redraw(rows):
        if sparingly.due():
            with contextlib.suppress(OSError, ValueError), sparingly:  # errors are raised in the last drawing
                write_results(options, **_figures(options, rows))

    ways = taken(options, "mode", "workers", "results", "keep_models", "invert")
    rows = sweep(trials, data=data if options.data else None, watch=redraw, **ways)  # workers find Fashion-MNIST
    write_results(options, {"rows": rows}, **_figures(options, rows))
    statuses = {row["status"] for row in rows}
    return 130 if "interrupted" in statuses else int("failed" in statuses)


def _figures(options, rows):
    """The plots, in the form for `write_results`."""
    return {"plot": lambda: plot_sweep(rows, options.x, options.y, options.by), "curves": lambda: plot_curves(rows)}
