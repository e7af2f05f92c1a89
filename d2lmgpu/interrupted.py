"""Ctrl-C while the command is still being imported: one line instead of a traceback out of NumPy.

Importing takes longer than Python's own start, and an interrupt that comes while a
library begins may surface as some other error. So the command, and no other program
that imports this package, is ended by it at once, until its `main` can do better.
"""

import os
import signal
import sys
import threading
from pathlib import Path


def is_command(words):
    """Whether ``words``, a program's name and arguments, start ``d2lmgpu`` or ``python -m d2lmgpu``."""
    words = iter(words[1:])
    for word in words:
        if word in ("-X", "-W"):
            next(words, None)  # its value
        elif word == "-m":
            return next(words, None) == "d2lmgpu"
        elif not word.startswith("-") or word == "-c":
            return Path(word).stem == "d2lmgpu"
    return False


def _leave(signum, frame):
    os.write(2, b"d2lmgpu: interrupted before it began\n")
    os._exit(130)


def leave_it_to_the_program():
    """From now on Ctrl-C is a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


if (
    is_command(sys.orig_argv)
    and threading.current_thread() is threading.main_thread()
    and signal.getsignal(signal.SIGINT) is signal.default_int_handler  # nobody has decided otherwise
):
    signal.signal(signal.SIGINT, _leave)
