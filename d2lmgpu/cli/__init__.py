# PYTHON_ARGCOMPLETE_OK: a shell may start this to complete a line, see completion.py
"""The command ``d2lmgpu``: each subcommand parses, calls one public function, prints.

Exit code 0 only on success, 2 with one line on standard error for bad input, 1 if training
diverged or devices' parameters differ, a trial of a sweep failed or an answer is wrong, and 130
if it was interrupted (results are still reported); training by SIGTERM: 143, by SIGUSR1: 138.
"""

import codecs
import sys

from .. import signals
from ..devices.errors import message_of
from ..training import DriftError
from . import allreduce, check, course, devices, grade, plan, predict, scaling, sweep, train
from .options import check_files
from .outlet import say_last, with_patient_output
from .parser import parse
from .ranks import are_together, check_alone, errors_told, run_together

PLAIN = {"✓": "right:", "✗": "wrong:", "×": "x", "·": "*", "…": "...", "–": "-", "→": "->", "√": "sqrt "}
"""What stands for these characters on an output whose encoding does not have them."""

COMMANDS = (devices, train, sweep, predict, allreduce, scaling, plan, course, check, grade)


def main(arguments=None):
    """Run a command line (``sys.argv`` unless given); returns the exit code."""
    name = "d2lmgpu"
    try:
        _write_what_the_output_can(sys.stdout, sys.stderr)
        options = parse(COMMANDS, arguments)
        name = f"d2lmgpu {options.name}"
        if are_together(options):
            return with_patient_output(run_together, options)
        check_files(options)
        check_alone(options)
        return with_patient_output(options.command, options)
    except errors_told() as error:
        say_last(f"{name}: error: {_one_line(error)}")
        return 1 if isinstance(error, DriftError) else 2
    except KeyboardInterrupt:  # before or after training, or a second time during it
        say_last(f"{name}: interrupted, no result was written")
        return signals.exit_code()


def _one_line(error):
    """An error's message; of an error of the operating system, the file's name and what is wrong with it."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{' '.join(str(error.filename).split())}: {error.strerror}"
    return message_of(error)


def _write_what_the_output_can(*streams):
    """Let streams that are not UTF-8 write something similar for characters that they cannot encode."""
    codecs.register_error("d2lmgpu", _plain)
    for stream in streams:
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="d2lmgpu")


def _plain(error):
    text = error.object[error.start : error.end]
    return "".join(PLAIN.get(character, "?") for character in text), error.end


if __name__ == "__main__":
    sys.exit(main())
