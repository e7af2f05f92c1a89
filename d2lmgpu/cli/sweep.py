"""``d2lmgpu sweep``: train many networks, one for every combination of settings.

The networks learn Fashion-MNIST, or pictures in folders. A setting takes several values, separated by commas, such as
--lr 0.1,0.2, and a network is trained for every combination.
"""

import contextlib

from ..base.files import check_folder, check_plot
from ..base.measuring import Throttle
from ..devices import ENVIRONMENTS
from ..experiments import MEASURES, MODES, check_axes, grid, plot_curves, plot_sweep, sweep
from .inputs import add_data, find_data, find_networks
from .options import add_option, add_output, add_settings, listed_numbers, settings, taken, write_results


def add_to(command):
    """Add the options to the command's parser."""
    add_option(command, "--environment", str, "auto", ", ".join(ENVIRONMENTS))
    devices = "numbers of devices; 1,2,4 gives three values of the grid (default: 1)"
    command.add_argument("--devices", type=listed_numbers(int), metavar="K", help=devices)
    add_data(command, listed_numbers(int))
    modes = f"{MODES[0]} trains a network on each core or GPU at the same time, with all of its devices there; "
    modes += f"{MODES[1]} trains one network after another, each on all of its devices"
    add_option(command, "--mode", str, "simultaneous", modes)
    workers = "number of networks trained at the same time (default: one per core or GPU)"
    command.add_argument("--workers", type=int, metavar="N", help=workers)
    add_output(command, "--results", "add each row to this file as a line; trials already in it are not repeated")
    keep = "save each trained network in this folder, for predict"
    add_output(command, "--keep-models", keep, "FOLDER", check_folder)
    add_output(command, "--json", "write this sweep's rows as JSON, in order")
    plot = "plot --y against --x, with a line for each --by (.png, .svg or .pdf); redrawn after each trial"
    add_output(command, "--plot", plot, check=check_plot)
    curves = (
        "plot accuracy and loss by epoch, with a line for each trial (.png, .svg or .pdf); redrawn after each trial"
    )
    add_output(command, "--curves", curves, check=check_plot)
    add_option(command, "--x", str, "lr", "setting on the plot's horizontal axis, by its name in the settings")
    add_option(command, "--y", str, "best accuracy", f"result on its vertical axis: {', '.join(MEASURES)}")
    add_option(command, "--by", str, "devices", "setting for which the plot has a line for each value")
    add_settings(command, listed_numbers)


def run(options):
    """Train the networks, print how it goes, and write what was asked for; return the exit code."""
    check_axes(options.x, options.y, options.by)
    data = find_data(options)
    own = {"network": find_networks(options.network, data)}
    trials = grid(**taken(options, "devices", "environment", "limit"), **settings(options) | own)
    sparingly = Throttle()

    def redraw(rows):
        if sparingly.due():
            with contextlib.suppress(OSError, ValueError), sparingly:  # errors are raised in the last drawing
                write_results(options, **_figures(options, rows))

    chosen = taken(options, "mode", "workers", "results", "keep_models", "invert")
    given = data if options.data else None  # workers find Fashion-MNIST themselves
    rows = sweep(trials, data=given, watch=redraw, **chosen)
    write_results(options, {"rows": rows}, **_figures(options, rows))
    statuses = {row["status"] for row in rows}
    if "interrupted" in statuses:
        return 130
    return 1 if "failed" in statuses else 0


def _figures(options, rows):
    """The plots, in the form for `write_results`."""
    return {"plot": lambda: plot_sweep(rows, options.x, options.y, options.by), "curves": lambda: plot_curves(rows)}
