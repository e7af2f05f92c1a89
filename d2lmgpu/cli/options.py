"""What several commands have in common: how options look, and the checks of what they were given."""

import sys

import numpy as np

from ..collectives import parse_size
from ..data import check_limit, first_examples
from ..devices import ENVIRONMENTS, choose_devices, parse_devices
from ..fashion_mnist import load_fashion_mnist
from ..images import load_image_data
from ..output import check_plot, check_writable


def add_option(command, flag, kind, default, help):
    """Add an option with a default value, which its help tells."""
    command.add_argument(flag, type=kind, default=default, metavar="X", help=f"{help} (default: {default})")


def listed(kind):
    """What reads "0.1,0.2" as a list of this type."""

    def read(text):
        return [kind(part.strip()) for part in text.split(",")]

    read.__name__ = f"list of {kind.__name__}"  # as argparse says it of wrong input
    return read


def add_devices(command, default):
    """Add --environment and --devices, of which ``default`` is the text that the help tells."""
    add_option(command, "--environment", str, "auto", ", ".join(ENVIRONMENTS))
    help = f"how many (2), which (0,2), or of both kinds (gpu:0,cpu:0); default: {default}"
    command.add_argument("--devices", metavar="K", help=help)
    command.add_argument("--memory-limit", metavar="SIZE", help="bytes that each device may take: 512M, 4G")


def find_devices(options, default=None):
    """The environment and the devices that were asked for, and a word where several of them are one GPU."""
    text = default if options.devices is None else options.devices
    environment, devices = choose_devices(options.environment, None if text is None else parse_devices(text))
    if options.memory_limit is not None:
        for device in devices:
            device.limit_memory(parse_size(options.memory_limit))
    cards = [device.card for device in devices if device.kind == "gpu"]
    if len(set(cards)) < len(cards):  # their times are no measure of several GPUs
        print(f"note: {len(cards)} devices share {len(set(cards))} GPU(s)", file=sys.stderr)
    return environment, devices


def check_outputs(json, *plots):
    """Raise now what would go wrong when results are written; None is left out."""
    if json:
        check_writable(json)
    for path in plots:
        if path:
            check_plot(path)


def numbers(text, name):
    """ "1,1,0.5" as a list of floats; None stays None."""
    try:
        return None if text is None else [float(number) for number in text.split(",")]
    except ValueError:
        raise ValueError(f"{name} {text!r}: write numbers with commas between, such as 1,1,0.5") from None


def find_data(folder, input_shape, invert=False, limit=None):
    """The data set as `train` takes it, Fashion-MNIST or a folder's, of which ``limit`` training examples.

    Fashion-MNIST's are its first; a folder's, which are in order of their classes, are taken evenly from all.
    """
    check_limit(limit)
    if folder is None:
        if invert:
            raise ValueError("--invert is for pictures of your own: give --data FOLDER, too")
        return first_examples(load_fashion_mnist(), limit)
    X_train, y_train, *rest = load_image_data(folder, input_shape, invert)
    if limit is not None and limit < len(X_train):
        chosen = np.arange(limit) * len(X_train) // limit
        X_train, y_train = X_train[chosen], y_train[chosen]
    return X_train, y_train, *rest
