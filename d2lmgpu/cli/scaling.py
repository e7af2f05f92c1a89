"""``d2lmgpu scaling``: time training on several numbers of devices."""

import sys

from ..collectives import ALGORITHMS, LIBRARIES
from ..devices import ENVIRONMENTS, choose_devices
from ..networks import NETWORKS
from ..output import save_figure, write_json
from ..scaling import measure_scaling, plot_scaling
from .options import add_option, check_outputs, listed


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
        "--devices", type=listed(int), default=[1, 2, 4], metavar="K", help="how many, 1 among them (default: 1,2,4)"
    )
    add_option(command, "--batch-size", int, 256, "examples in a minibatch: in all if strong, on each device if weak")
    add_option(command, "--network", str, "lenet", ", ".join(NETWORKS))
    add_option(command, "--width", float, 1, "times as many channels, for lenet and lenet-bn")
    add_option(
        command, "--allreduce", str, "ring", ", ".join(name for name in [*ALGORITHMS, *LIBRARIES] if name != "none")
    )
    add_option(command, "--steps", int, 20, "training steps in a turn")
    add_option(command, "--repeats", int, 5, "rounds that count")
    command.add_argument(
        "--predict", action="store_true", help="predict the times, too, from devices that exchange nothing and messages"
    )
    command.add_argument("--json", metavar="FILE", help="write the result as JSON")
    command.add_argument("--plot", metavar="FILE", help="plot times, speed-up, efficiency, phases (.png, .svg or .pdf)")


def run(options):
    """Measure, print a line for each number of devices, write what was asked for; returns the exit code."""
    check_outputs(options.json, options.plot)
    if any(k < 1 for k in options.devices):
        raise ValueError(f"devices are {options.devices}; they should be different whole numbers, such as 1,2,4")
    environment, devices = choose_devices(options.environment, max(options.devices))
    scaling = measure_scaling(
        devices,
        options.devices,
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
    if options.json:
        write_json(options.json, {"environment": environment, **scaling.as_dict()})
    if options.plot:
        save_figure(options.plot, plot_scaling(scaling))
    return 0


def _tell(number, turns):
    """A word on standard error after a round, in which each number of devices (and whoever predicts) had a turn."""
    seconds = ", ".join(f"{k}: {mine[-1].seconds:.2f} s" for k, mine in turns.items() if isinstance(k, int))
    print(f"round {number}, devices {seconds}", file=sys.stderr, flush=True)


def _print(scaling):
    print(f"{scaling.mode} scaling on {scaling.of_places()}; medians of {scaling.rounds} rounds (least to most)")
    line = "{:>7} {:>10} {:>24} {:>20} {:>11}".format
    print(
        line("devices", "batch size", "seconds per epoch", "speed-up", "efficiency")
        + "   predicted" * bool(scaling.model)
    )
    for row in scaling.rows:
        seconds = f"{row.seconds_per_epoch:.2f} ({row.seconds_per_epoch_min:.2f} to {row.seconds_per_epoch_max:.2f})"
        speedup = f"{row.speedup:.2f} ({row.speedup_min:.2f} to {row.speedup_max:.2f})"
        predicted = row.predicted_seconds_per_epoch
        end = (
            "" if predicted is None else f"{predicted:>12.2f} (measured: {row.measured_over_predicted:.2f} times that)"
        )
        print(line(row.devices, f"{row.batch_size:,}", seconds, speedup, f"{row.efficiency:.0%}") + end)
