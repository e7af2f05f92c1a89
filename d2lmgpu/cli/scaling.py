"""``d2lmgpu scaling``: time training on several numbers of devices.

Times whole training steps, with Fashion-MNIST or pictures in folders, on 1, 2, 4, ... devices in turn, after a first
round that warms up and does not count. Speed-up and efficiency are relative to one device. With --environment parallel,
it times the devices of all processes that mpiexec or srun starts, and predicts the times of more.
"""

from .. import words
from ..devices import ENVIRONMENTS, choose_devices, parse_devices
from ..output import check_plot
from ..scaling import HOW, check_counts, measure_cluster_scaling, measure_scaling, plot_extrapolation, plot_scaling
from ..scaling.machines import MORE
from ..scaling.setup import MODES
from ..training import Settings
from .data import add_data, find_data
from .options import add_option, add_output, listed, taken, write_results
from .own_file import network_from
from .ranks import add_ranks
from .settings import add_settings, settings

WHAT = ("network", "width", "algorithm")
"""Settings that both measuring functions accept as separate arguments; those in `HOW` are passed together."""


def add_to(command):
    """Add the options to the command's parser."""
    modes = "strong (the minibatch keeps its size) or weak (each device's part keeps its size)"
    add_option(command, "--mode", str, "strong", modes, MODES)
    environments = *ENVIRONMENTS, "parallel"
    add_option(command, "--environment", str, "auto", ", ".join(environments), environments)
    counts = "numbers of devices, including 1; with --environment parallel, devices per process "
    counts += "(default: 1,2,4; with --environment parallel 1)"
    command.add_argument("--devices", metavar="K", help=counts)
    times = "with --environment parallel: factors by which to multiply the processes in predictions (default: 2,4,8)"
    command.add_argument("--times", type=listed(int), metavar="N,...", help=times)
    add_ranks(command)
    add_option(command, "--batch-size", int, 256, "examples in a minibatch: in total if strong, per device if weak")
    add_data(command)
    add_option(command, "--steps", int, 20, "training steps per turn")
    add_option(command, "--repeats", int, 5, "measured rounds, after one that warms up")
    predict = "also predict the times, from measured messages and from steps without an exchange"
    command.add_argument("--predict", action="store_true", help=predict)
    add_output(command, "--json", "write the result as JSON")
    add_output(command, "--plot", "plot times, speed-up, efficiency and phases (.png, .svg or .pdf)", check=check_plot)
    add_settings(command, names=(*WHAT, *HOW))


def run(options, everybody=None):
    """Measure, print a line for each number of devices, and write what was asked for. ``everybody``: a `Cluster`."""
    if everybody:
        return _measure_cluster(options, everybody)
    asked = parse_devices(options.devices or "1,2,4")
    counts = check_counts([asked] if isinstance(asked, int) else asked)
    environment, devices = choose_devices(options.environment, max(counts))
    scaling = measure_scaling(devices, counts, **_what(options), predict=options.predict)
    _print(scaling)
    write_results(options, {"environment": environment, **scaling.as_dict()}, plot=lambda: plot_scaling(scaling))


def _what(options):
    """The arguments that say what is timed, which are the same for both measuring functions."""
    data = find_data(options, options.limit)
    return {
        **taken(options, "mode", "batch_size", "steps", "repeats"),
        **settings(options, WHAT) | {"network": network_from(options.network, data)},
        "data": data,
        "settings": Settings(**settings(options, HOW)),
    }


def _measure_cluster(options, everybody):
    scaling = measure_cluster_scaling(everybody, options.times or MORE, **_what(options))
    _print_cluster(scaling)
    lines = {f"{scaling.allreduce}, processes like these": scaling.predicted}
    write_results(options, {"environment": "parallel", **scaling.as_dict()}, plot=lambda: plot_extrapolation(lines))


def _print_cluster(scaling):
    own, *others = scaling.predicted
    median, least, most = (words.seconds(seconds, 3) for seconds in scaling.measured)
    devices = words.several(own.devices, "device")
    print(f"{scaling.mode} scaling, {scaling.allreduce}: {devices}, {own.batch_size:,} examples")
    print(f"measured:  {median} s per step ({least} to {most}), median of {words.several(scaling.rounds, 'round')}")
    off = scaling.measured[0] / own.seconds_per_step
    print(f"predicted: {words.seconds(own.seconds_per_step, 3)} s (measured: {off:.2f} times that)")
    line = "{:>9} {:>10} {:>12} {:>12} {:>9} {:>11}".format
    print(line("devices", "batch size", "s a step", "in exchange", "speed-up", "efficiency") + "   all simulated")
    for row in (own, *others):
        times = (words.seconds(seconds, 3) for seconds in (row.seconds_per_step, row.allreduce_seconds))
        print(line(row.devices, f"{row.batch_size:,}", *times, f"{row.speedup:.2f}", f"{row.efficiency:.0%}"))


def _print(scaling):
    rounds = words.several(scaling.rounds, "round")
    print(f"{scaling.mode} scaling on {scaling.of_places()}; medians of {rounds} (least to most)")
    line = "{:>7} {:>10} {:>24} {:>20} {:>11}".format
    heads = line("devices", "batch size", "seconds per epoch", "speed-up", "efficiency")
    print(heads + "   predicted" * bool(scaling.model))
    for row in scaling.rows:
        times = row.seconds_per_epoch, row.seconds_per_epoch_min, row.seconds_per_epoch_max
        seconds = "{} ({} to {})".format(*(words.seconds(time, 2) for time in times))
        speedup = f"{row.speedup:.2f} ({row.speedup_min:.2f} to {row.speedup_max:.2f})"
        end = ""
        if row.predicted_seconds_per_epoch is not None:
            predicted = words.seconds(row.predicted_seconds_per_epoch, 2)
            end = f"{predicted:>12} (measured: {row.measured_over_predicted:.2f} times that)"
        print(line(row.devices, f"{row.batch_size:,}", seconds, speedup, f"{row.efficiency:.0%}") + end)
