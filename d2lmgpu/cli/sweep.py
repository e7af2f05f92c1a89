"""``d2lmgpu sweep``: train many networks, one for every combination of settings.

On Fashion-MNIST, or on pictures in folders. A setting takes several values with commas between, such as --lr 0.1,0.2;
a network is trained for every combination.
"""

import contextlib

from ..devices import ENVIRONMENTS
from ..measuring import Sparingly
from ..output import check_folder, check_plot
from ..sweeps import MEASURES, MODES, check_axes, document, grid, plot_curves, plot_sweep, sweep
from .data import add_data, find_data, say_pictures
from .options import add_option, add_output, listed, taken, write_results
from .own_file import find_networks
from .settings import add_settings, settings


def add_to(command):
    """Add the options to the command's parser."""
    add_option(command, "--environment", str, "auto", ", ".join(ENVIRONMENTS), ENVIRONMENTS)
    devices = "how many: 1,2,4 are three values of the grid (default: 1)"
    command.add_argument("--devices", type=listed(int), metavar="K", help=devices)
    add_data(command, listed(int))
    at_once = "a network on each core or GPU at the same time, whose devices share it"
    modes = f"{' or '.join(MODES)}: {at_once}, or one after another, each on all of its devices"
    add_option(command, "--mode", str, "simultaneous", modes, MODES)
    command.add_argument("--workers", type=int, metavar="N", help="networks at a time (default: one a core or GPU)")
    add_output(command, "--results", "keep the rows here as they come; what is in it already is not trained again")
    keep = "keep a checkpoint of each trained network here, for predict"
    add_output(command, "--keep-models", keep, "FOLDER", check_folder, "*.ckpt")
    add_output(command, "--json", "write this sweep's rows as JSON, in order")
    plot = "plot --y by --x, a line for each --by (.png, .svg or .pdf), anew as trials end"
    add_output(command, "--plot", plot, check=check_plot)
    curves = "plot accuracy and loss by epoch, a line for each trial (.png, .svg or .pdf), as they go on"
    add_output(command, "--curves", curves, check=check_plot)
    add_option(command, "--x", str, "lr", "a setting, as the table calls it")
    add_option(command, "--y", str, "best accuracy", ", ".join(MEASURES), MEASURES)
    add_option(command, "--by", str, "devices", "another")
    add_settings(command, listed)


def run(options):
    """Train, print how it goes, write what was asked for; returns the exit code."""
    check_axes(options.x, options.y, options.by)
    data = find_data(options)
    own = {"network": find_networks(options.network, data)}
    trials = grid(**taken(options, "devices", "environment", "limit"), **settings(options) | own)
    if options.data:
        say_pictures(data[0])
    sparingly = Sparingly()

    def redraw(rows):
        if sparingly.due():
            with contextlib.suppress(OSError, ValueError), sparingly:  # raised when they are drawn last
                write_results(options, **_figures(options, rows))

    how = taken(options, "mode", "workers", "results", "keep_models", "invert")
    given = data if options.data else None  # workers find Fashion-MNIST themselves
    rows = sweep(trials, data=given, watch=redraw, **how)
    write_results(options, document(rows), **_figures(options, rows))
    statuses = {row["status"] for row in rows}
    if "interrupted" in statuses:
        return 130
    return 1 if "failed" in statuses else 0


def _figures(options, rows):
    """The plots as `write_results` takes them."""
    return {"plot": lambda: plot_sweep(rows, options.x, options.y, options.by), "curves": lambda: plot_curves(rows)}
