"""The command ``d2lmgpu``: each subcommand parses, calls one public function, prints.

Exit code 0 only on success, 2 with one line on standard error for bad input, 1
if training diverged or a trial of a sweep failed, and 130 if it was interrupted
(results are still reported).
"""

import argparse
import sys

from ..devices import DeviceError
from ..fashion_mnist import DataError
from . import allreduce, check, devices, predict, scaling, sweep, train


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: error: {message} (see {self.prog} --help)\n")


def main(arguments=None):
    """Run a command line (``sys.argv`` unless given); returns the exit code."""
    options = _parse(arguments)
    try:
        return options.command(options)
    except (ValueError, DeviceError, DataError, OSError, MemoryError) as error:
        message = " ".join(str(error).split())
        print(f"d2lmgpu {options.name}: error: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before or after training, or a second time during it
        print(f"d2lmgpu {options.name}: interrupted, no result was written", file=sys.stderr)
        return 130


def _parse(arguments):
    """As argparse does, which loses files that come after an option that comes after the checkpoint."""
    parser = _Parser(prog="d2lmgpu", description="Train LeNet on several devices, from scratch.")
    commands = parser.add_subparsers(dest="name", required=True, metavar="COMMAND")
    for module in (devices, train, sweep, predict, allreduce, scaling, check):
        module.add_to(commands)
    options, rest = parser.parse_known_args(arguments)
    if any(word.startswith("-") for word in rest) or not hasattr(options, "files"):
        options = parser.parse_args(arguments)  # says what is wrong
    else:
        options.files += rest
    return options


if __name__ == "__main__":
    sys.exit(main())
