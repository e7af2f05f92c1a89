"""Signals that interrupt: Ctrl-C, and SIGTERM and SIGUSR1, by which Slurm and spot machines announce a kill.

SIGTERM and SIGUSR1 do what Ctrl-C does: `monitor.stop_on_interrupt` turns them into a request to stop, and elsewhere
they raise a KeyboardInterrupt. The exit code tells which signal it was: 128 and the signal's number.

Importing this package takes longer than Python's own start, and a Ctrl-C while a library is being imported may surface
as some other error. So until `main` of the command can handle it, Ctrl-C ends the command at once, in one line. Other
programs that import this package are not affected.
"""

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name))

_came = signal.SIGINT


class Terminated(KeyboardInterrupt):
    """One of `SIGNALS` came."""


@contextlib.contextmanager
def listening(signals=SIGNALS):
    """Within the block ``signals`` interrupt, except those for which the program has set a handler of its own."""
    note(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    ours = [signum for signum in signals if in_main and signal.getsignal(signum) is signal.SIG_DFL]
    try:
        for signum in ours:
            signal.signal(signum, _interrupt)
        yield
    finally:
        for signum in ours:
            signal.signal(signum, signal.SIG_DFL)


def listened_to():
    """Those of `SIGNALS` that interrupt."""
    return [signum for signum in SIGNALS if signal.getsignal(signum) is _interrupt]


def note(signum):
    """Remember that this signal asked for the end."""
    global _came
    _came = signum


def exit_code():
    """The exit code of an interrupted program: 130 after Ctrl-C, 143 after SIGTERM, 138 after SIGUSR1."""
    return 128 + _came


def _interrupt(signum, frame):
    note(signum)
    raise Terminated(signal.Signals(signum).name)


# Ctrl-C while the command is being imported:


def _leave(signum, frame):
    os.write(2, b"d2lmgpu: interrupted before it began\n")
    os._exit(130)


def leave_it_to_the_program():
    """From now on Ctrl-C is a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if (
    Path(*sys.argv[:1]).stem in ("d2lmgpu", "-m")  # "-m" while Python looks for the package that follows it: this one
    and threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler  # the program has set no other handler
):
    signal.signal(signal.SIGINT, _leave)
