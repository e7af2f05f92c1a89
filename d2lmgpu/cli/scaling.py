"""``d2lmgpu scaling``: time training on several numbers of devices.

Times whole training steps, with Fashion-MNIST or pictures in folders, on 1, 2, 4, ... devices in turn, after a first
round that warms up and does not count. Speed-up and efficiency are relative to one device.
"""

from ..base.text import format_seconds
from ..devices import ENVIRONMENTS, choose_devices, parse_devices
from ..experiments import check_counts, measure_scaling, plot_scaling
from .inputs import add_data, find_data, network_from
from .options import add_option, add_plot, add_settings, settings, taken, write_results

WHAT = ("network", "width", "algorithm")
"""Settings that are arguments of `measure_scaling`."""


def add_to(command):
    """Add the options to the command's parser."""
    add_option(
        command, "--mode", str, "strong", "strong (the minibatch keeps its size) or weak (each device's part does)"
    )
    add_option(command, "--environment", str, "auto", ", ".join(ENVIRONMENTS))
    add_option(command, "--devices", str, "1,2,4", "numbers of devices, including 1")
    add_option(command, "--batch-size", int, 256, "examples in a minibatch: in total if strong, per device if weak")
    add_data(command)
    add_option(command, "--steps", int, 20, "training steps per turn")
    add_option(command, "--repeats", int, 5, "measured rounds, after one that warms up")
    command.add_argument("--predict", action="store_true", help="also predict the times, from parts that are measured")
    add_plot(command, "--plot", "plot times, speed-up, efficiency and phases")
    add_settings(command, names=WHAT)


def run(options):
    """Measure, print a line for each number of devices, and write what was asked for."""
    asked = parse_devices(options.devices)
    counts = check_counts([asked] if isinstance(asked, int) else asked)
    environment, devices = choose_devices(options.environment, max(counts))
    data = find_data(options, options.limit)
    scaling = measure_scaling(
        devices,
        counts,
        **taken(options, "mode", "batch_size", "steps", "repeats", "predict"),
        **settings(options, WHAT) | {"network": network_from(options.network, data)},
        data=data,
    )
    _print(scaling)
    write_results(options, {"environment": environment, **scaling.as_dict()}, plot=lambda: plot_scaling(scaling))


def _print(scaling):
    print(f"{scaling.mode} scaling on {scaling.of_places()}; medians of {scaling.rounds} rounds (least to most)")
    line = "{:>7} {:>10} {:>24} {:>20} {:>11}".format
    print(
        line("devices", "batch size", "seconds per epoch", "speed-up", "efficiency"),
        "  predicted" * bool(scaling.messages),
    )
    for row in scaling.rows:
        times = row.seconds_per_epoch, row.seconds_per_epoch_min, row.seconds_per_epoch_max
        seconds = "{} ({} to {})".format(*(format_seconds(time, 2) for time in times))
        speedup = f"{row.speedup:.2f} ({row.speedup_min:.2f} to {row.speedup_max:.2f})"
        end = ""
        if row.predicted_seconds_per_epoch is not None:
            end = f"{format_seconds(row.predicted_seconds_per_epoch, 2):>12}"
        print(line(row.devices, f"{row.batch_size:,}", seconds, speedup, f"{row.efficiency:.0%}") + end)
