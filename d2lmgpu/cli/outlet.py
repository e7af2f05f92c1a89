"""What a command says must not cost what it does: a closed pipe, a full disk behind ``>``, a terminal that is gone."""

import contextlib
import os
import sys


class _Patient:
    """A text stream that keeps its first error, and takes and loses everything from then on."""

    def __init__(self, stream):
        self._stream, self.error = stream, None

    def write(self, text):
        self._attempt(self._stream.write, text)
        return len(text)

    def flush(self):
        self._attempt(self._stream.flush)

    def _attempt(self, action, *arguments):
        if self.error is None:
            try:
                action(*arguments)
            except OSError as error:
                self.error = error
                self._leave()

    def _leave(self):
        """Let nothing be there that Python could not write at its end, which would be another error."""
        with contextlib.suppress(OSError, ValueError, AttributeError):  # also of what is no file
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name):
        return getattr(self._stream, name)


def say_last(text):
    """Write a line to standard error as the last act of a program, if anybody is there."""
    if sys.stderr:
        print(text, file=_Patient(sys.stderr), flush=True)


def whoever_listens(command, options):
    """The exit code of ``command(options)``, which goes on to its end even if nothing can be said any more.

    Raises OSError at its end if standard output failed meanwhile.
    """
    with open(os.devnull, "w") as nowhere:  # where there is no such stream, as after ``2>&-``
        out, err = _Patient(sys.stdout or nowhere), _Patient(sys.stderr or nowhere)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = command(options)
            out.flush()
    if out.error:
        error = out.error
        raise OSError(f"cannot write to standard output: {error.strerror or error}; the rest was done") from error
    return code
