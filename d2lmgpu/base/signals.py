"""Signals that interrupt a program: Ctrl-C, and SIGTERM and SIGUSR1, by which Slurm and spot machines announce its end.

SIGTERM and SIGUSR1 act like Ctrl-C: `monitor.stop_on_interrupt` turns them into a request to stop, and elsewhere they
raise a KeyboardInterrupt. The exit code tells which signal it was: 128 plus the signal's number.
"""

import contextlib
import signal
import threading

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name))

_came = signal.SIGINT


@contextlib.contextmanager
def listening():
    """Within the block, `SIGNALS` interrupt the program, except those for which it has set its own handler."""
    note(signal.SIGINT)
    in_main = threading.current_thread() is threading.main_thread()
    ours = [signum for signum in SIGNALS if in_main and signal.getsignal(signum) is signal.SIG_DFL]
    try:
        for signum in ours:
            signal.signal(signum, _interrupt)
        yield
    finally:
        for signum in ours:
            signal.signal(signum, signal.SIG_DFL)


def listened_to():
    """Those of `SIGNALS` that interrupt the program at present."""
    return [signum for signum in SIGNALS if signal.getsignal(signum) is _interrupt]


def note(signum):
    """Remember that this signal asked the program to end."""
    global _came
    _came = signum


def exit_code():
    """The exit code of an interrupted program: 130 after Ctrl-C, 143 after SIGTERM, 138 after SIGUSR1."""
    return 128 + _came


def _interrupt(signum, frame):
    note(signum)
    raise KeyboardInterrupt(signal.Signals(signum).name)
