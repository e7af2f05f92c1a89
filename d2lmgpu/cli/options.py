"""What several commands have in common: how options look and are read, and the checks of what they were given."""

import argparse
import sys
from pathlib import Path

from ..arguments import as_number, check_path, shown
from ..collectives import parse_size
from ..devices import ENVIRONMENTS, choose_devices, parse_devices
from ..fashion_mnist import FILES
from ..output import check_apart, check_plot, check_writable


def add_option(command, flag, kind, default, help):
    """Add an option with a default value, which its help tells."""
    command.add_argument(flag, type=kind, default=default, metavar="X", help=f"{help} (default: {default})")


def whole(text):
    """A whole number from an option's text; what it may be, the function says that it is for."""
    return _number(int, text, "a whole number, such as 4")


def number(text):
    """A number from an option's text."""
    return _number(float, text, "a number, such as 0.5")


def _number(kind, text, wanted):
    try:
        return as_number(text, kind)
    except ValueError:  # or of more digits than Python reads
        raise argparse.ArgumentTypeError(f"{shown(text)} should be {wanted}") from None


def listed(kind):
    """What reads "0.1,0.2" as a list of what ``kind`` reads."""
    return lambda text: [kind(part.strip()) for part in text.split(",")]


def file_name(text):
    """The name of a file, or of a folder."""
    try:
        check_path("the name", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def add_file(command, flag, help, metavar="FILE"):
    """Add an option that names a file."""
    command.add_argument(flag, type=file_name, metavar=metavar, help=help)


def add_devices(command, default, environments=ENVIRONMENTS):
    """Add --environment and --devices, of which ``default`` is the text that the help tells."""
    add_option(command, "--environment", str, "auto", ", ".join(environments))
    help = f"how many (2), which (0,2), or of both kinds (gpu:0,cpu:0); default: {default}"
    command.add_argument("--devices", metavar="K", help=help)
    command.add_argument("--memory-limit", metavar="SIZE", help="bytes that each device may take: 512M, 1.5G")


def find_devices(options, default=None, environment=None):
    """The environment and the devices that were asked for, and a word where several of them are one GPU.

    ``environment``: another than the options have.
    """
    text = default if options.devices is None else options.devices
    environment, devices = choose_devices(
        environment or options.environment, None if text is None else parse_devices(text)
    )
    limit_memory(options, devices)
    cards = [device.card for device in devices if device.kind == "gpu"]
    if len(set(cards)) < len(cards):  # their times are no measure of several GPUs
        print(f"note: {len(cards)} devices share {len(set(cards))} GPU(s)", file=sys.stderr)
    return environment, devices


def limit_memory(options, devices):
    """Hold the devices to --memory-limit, where the command has it and it is given."""
    if getattr(options, "memory_limit", None) is not None:
        for device in devices:
            device.limit_memory(parse_size(options.memory_limit))


def check_outputs(json, *plots):
    """Raise now what would go wrong when results are written; None is left out."""
    if json is not None:
        check_writable(json)
    for path in plots:
        if path is not None:
            check_plot(path)


def keep_apart(options, outputs, inputs=None):
    """Raise ValueError if one of ``outputs``, names of options with spaces between, is also another, or an input.

    ``inputs``: a dict from what a person calls them to their paths.
    """
    paths = {f"--{name}": getattr(options, name.replace("-", "_")) for name in outputs.split()}
    check_apart(paths, inputs or {})
    for name, path in paths.items():
        if path and Path(path).name in FILES:
            raise ValueError(f"{name} {path} has the name of a file of Fashion-MNIST; give another")
