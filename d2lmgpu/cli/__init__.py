"""The command ``d2lmgpu``: each subcommand parses its options, calls one public function, and prints the results.

The exit code is 0 only on success. It is 2, with one line on standard error, for bad input; 1 if training diverged, a
trial of a sweep failed, or an answer is wrong; and 130 if the command was interrupted (results are still reported), or
for training 143 if SIGTERM and 138 if SIGUSR1 interrupted it.
"""

import io
import sys

from ..base import signals
from ..base.text import legible, message_of
from ..training.monitor import say
from . import allreduce, check, course, devices, grade, plan, predict, scaling, sweep, train
from .options import check_files, parse
from .ranks import are_together, check_alone, errors_told, run_together

COMMANDS = (devices, train, sweep, predict, allreduce, scaling, plan, course, check, grade)


def main(arguments=None):
    """Run a command line (``sys.argv`` unless given); return the exit code."""
    for stream in sys.stdout, sys.stderr:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # not all encodings have all characters
    name = "d2lmgpu"
    try:
        options = parse(COMMANDS, arguments)
        name = f"d2lmgpu {options.name}"
        if are_together(options):
            return run_together(options) or 0
        check_files(options)
        check_alone(options)
        return options.command(options) or 0
    except errors_told() as error:
        told = message_of(error)
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            told = f"{' '.join(str(error.filename).split())}: {error.strerror}"
        say(legible(f"{name}: error: {told}"), file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before or after training, or a second time during it
        say(f"{name}: interrupted, no result was written", file=sys.stderr)
        return signals.exit_code()


if __name__ == "__main__":
    sys.exit(main())
