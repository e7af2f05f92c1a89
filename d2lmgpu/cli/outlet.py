"""Let a command finish its work if its output fails, as with a closed pipe, a full disk or a closed terminal."""

import contextlib
import os
import sys


class _Patient:
    """A text stream that remembers its first error, and discards everything from then on."""

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
        """Redirect the stream to nowhere: when Python exits, it writes what is left in it, which would fail again."""
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the stream may not be a file
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)

    def __getattr__(self, name):
        return getattr(self._stream, name)


def say_last(text):
    """Write a line to standard error, if there is one, as the last act of a program."""
    if sys.stderr:
        print(text, file=_Patient(sys.stderr), flush=True)


def with_patient_output(command, options):
    """Run ``command(options)`` to its end, even if its output fails; return its exit code, 0 for None.

    Raises OSError at the end if standard output has failed.
    """
    with open(os.devnull, "w") as nowhere:  # for a stream that is missing, as after ``2>&-``
        out, err = _Patient(sys.stdout or nowhere), _Patient(sys.stderr or nowhere)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = command(options) or 0
            out.flush()
    if out.error:
        error = out.error
        raise OSError(f"cannot write to standard output: {error.strerror or error}; the rest was done") from error
    return code
