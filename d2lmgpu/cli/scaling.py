"""``d2lmgpu scaling``: time training on several numbers of devices."""

import sys

from .. import words
from ..collectives import TRAINING_NAMES
from ..devices import ENVIRONMENTS, choose_devices
from ..networks import NETWORKS
from ..output import each_output, save_figure, write_json
from ..scaling import check_counts, measure_scaling, plot_scaling
from .options import add_file, add_option, check_outputs, keep_apart, listed, number, whole


def add_to(commands):
    """Add the command to the parser's."""
    command = commands.add_parser(
        "scaling",
        help="time training on several numbers of devices",
        description="Time whole training steps on Fashion-MNIST on 1, 2, 4, ... devices, which take turns; a first "
        "round warms up and does not count. Speed-up and efficiency are against one device.",
    )
    command.set_defaults(command=run)
    add_option(command, "--mode", str, "strong", "strong (the minibatch stays) or weak (each device's part stays)")
    add_option(command, "--environment", str, "auto", ", ".join(ENVIRONMENTS))
    command.add_argument(
        "--devices", type=listed(whole), default=[1, 2, 4], metavar="K", help="how many, 1 among them (default: 1,2,4)"
    )
    add_option(command, "--batch-size", whole, 256, "examples in a minibatch: in all if strong, on each device if weak")
    add_option(command, "--network", str, "lenet", ", ".join(NETWORKS))
    add_option(command, "--width", number, 1, "times as many channels, for lenet and lenet-bn")
    add_option(command, "--allreduce", str, "ring", ", ".join(TRAINING_NAMES))
    add_option(command, "--steps", whole, 20, "training steps in a turn")
    add_option(command, "--repeats", whole, 5, "rounds that count")
    command.add_argument(
        "--predict", action="store_true", help="predict the times, too, from devices that exchange nothing and messages"
    )
    add_file(command, "--json", "write the result as JSON")
    add_file(command, "--plot", "plot times, speed-up, efficiency, phases (.png, .svg or .pdf)")


def run(options):
    """Measure, print a line for each number of devices, write what was asked for; returns the exit code."""
    keep_apart(options, "json plot")
    check_outputs(options.json, options.plot)
    counts = check_counts(options.devices)
    environment, devices = choose_devices(options.environment, max(counts))
    scaling = measure_scaling(
        devices,
        counts,
        mode=options.mode,
        batch_size=options.batch_size,
        network=options.network,
        width=options.width,
        algorithm=options.allreduce,
        steps=options.steps,
        repeats=options.repeats,
        predict=options.predict,
        after_round=_tell,
    )
    _print(scaling)
    with each_output() as attempt:
        if options.json:
            attempt(write_json, options.json, {"environment": environment, **scaling.as_dict()})
        if options.plot:
            attempt(lambda: save_figure(options.plot, plot_scaling(scaling)))
    return 0


def _tell(number, turns):
    """A word on standard error after a round, in which each number of devices (and whoever predicts) had a turn."""
    seconds = ", ".join(
        f"{k}: {words.seconds(mine[-1].seconds, 2)} s" for k, mine in turns.items() if isinstance(k, int)
    )
    print(f"round {number}, devices {seconds}", file=sys.stderr, flush=True)


def _print(scaling):
    rounds = words.several(scaling.rounds, "round")
    print(f"{scaling.mode} scaling on {scaling.of_places()}; medians of {rounds} (least to most)")
    line = "{:>7} {:>10} {:>24} {:>20} {:>11}".format
    print(
        line("devices", "batch size", "seconds per epoch", "speed-up", "efficiency")
        + "   predicted" * bool(scaling.model)
    )
    for row in scaling.rows:
        times = row.seconds_per_epoch, row.seconds_per_epoch_min, row.seconds_per_epoch_max
        seconds = "{} ({} to {})".format(*(words.seconds(time, 2) for time in times))
        speedup = f"{row.speedup:.2f} ({row.speedup_min:.2f} to {row.speedup_max:.2f})"
        end = ""
        if row.predicted_seconds_per_epoch is not None:
            predicted = words.seconds(row.predicted_seconds_per_epoch, 2)
            end = f"{predicted:>12} (measured: {row.measured_over_predicted:.2f} times that)"
        print(line(row.devices, f"{row.batch_size:,}", seconds, speedup, f"{row.efficiency:.0%}") + end)
