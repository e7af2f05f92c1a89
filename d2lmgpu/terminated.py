"""SIGTERM and SIGUSR1, by which Slurm and spot machines tell that they will soon kill: they do what Ctrl-C does.

`monitor.stop_on_interrupt` turns them into a request to stop, and elsewhere they interrupt. The exit code tells which
it was: 128 and the signal's number.
"""

import contextlib
import signal
import threading

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name))

_came = signal.SIGINT


class Terminated(KeyboardInterrupt):
    """One of `SIGNALS` came."""


@contextlib.contextmanager
def listening(signals=SIGNALS):
    """Within the block ``signals`` interrupt, those excepted about which somebody has decided otherwise."""
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
    """It was this signal that asked for the end."""
    global _came
    _came = signum


def exit_code():
    """Of a program that was interrupted: 130 by Ctrl-C, 143 by SIGTERM, 138 by SIGUSR1."""
    return 128 + _came


def _interrupt(signum, frame):
    note(signum)
    raise Terminated(signal.Signals(signum).name)
