"""``d2lmgpu sweep``: train a network for every combination of settings."""

from ..devices import ENVIRONMENTS
from ..output import each_output, save_figure, write_json
from ..sweeps import MEASURES, MODES, check_axes, document, grid, plot_sweep, sweep
from .options import add_file, add_option, check_outputs, keep_apart, listed, whole
from .settings import add_settings, settings


def add_to(commands):
    """Add the command to the parser's."""
    command = commands.add_parser(
        "sweep",
        help="train many networks on Fashion-MNIST, one for every combination of settings",
        description="Train many networks on Fashion-MNIST. A setting takes several values with commas between, such as "
        "--lr 0.1,0.2; a network is trained for every combination.",
    )
    command.set_defaults(command=run)
    add_option(command, "--environment", str, "auto", ", ".join(ENVIRONMENTS))
    command.add_argument(
        "--devices", type=listed(whole), metavar="K", help="how many: 1,2,4 are three values of the grid (default: 1)"
    )
    command.add_argument(
        "--limit", type=listed(whole), metavar="N", help="train on the first N examples only, for a quick look"
    )
    add_option(
        command,
        "--mode",
        str,
        "simultaneous",
        f"{' or '.join(MODES)}: a network on each core or GPU at the same time, whose devices share it, or one after "
        "another, each on all of its devices",
    )
    command.add_argument("--workers", type=whole, metavar="N", help="networks at a time (default: one a core or GPU)")
    add_file(command, "--results", "keep the rows here as they come; what is in it already is not trained again")
    add_file(command, "--json", "write this sweep's rows as JSON, in order")
    add_file(command, "--plot", "plot --y by --x, a line for each --by (.png, .svg or .pdf)")
    add_option(command, "--x", str, "lr", "a setting, as the table calls it")
    add_option(command, "--y", str, "best accuracy", ", ".join(MEASURES))
    add_option(command, "--by", str, "devices", "another")
    add_settings(command, listed)


def run(options):
    """Train, print how it goes, write what was asked for; returns the exit code."""
    keep_apart(options, "results json plot")
    check_outputs(options.json, options.plot)
    check_axes(options.x, options.y, options.by)
    trials = grid(devices=options.devices, environment=options.environment, limit=options.limit, **settings(options))
    rows = sweep(trials, mode=options.mode, workers=options.workers, results=options.results)
    with each_output() as attempt:
        if options.json:
            attempt(write_json, options.json, document(rows))
        if options.plot:
            attempt(lambda: save_figure(options.plot, plot_sweep(rows, options.x, options.y, options.by)))
    statuses = {row["status"] for row in rows}
    if "interrupted" in statuses:
        return 130
    return 1 if "failed" in statuses else 0
