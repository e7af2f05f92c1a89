"""Result files: checked before the work begins, written whole or not at all."""

import json
import os
import tempfile
from pathlib import Path

PLOT_FORMATS = (".png", ".svg", ".pdf")


def check_writable(path):
    """Raise OSError now if a result could not be written to ``path`` later; leaves what is there as it is."""
    path = _target(path)
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(f"cannot write {path}: permission denied")
    if not _is_stream(path):
        try:
            tempfile.TemporaryFile(dir=path.parent).close()
        except OSError as error:
            raise OSError(f"cannot write {path}: {error.strerror or error}") from error


def write_file(path, write):
    """Let ``write(file)`` fill a temporary file beside ``path``, then give it that name.

    A failure leaves an older file as it was. To a pipe, or to /dev/stdout,
    ``write`` writes directly.
    """
    path = _target(path)
    if _is_stream(path):
        with open(path, "ab") as file:
            write(file)
        return
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())  # or a machine that loses power might keep the name and not the content
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def write_json(path, value, indent=2):
    """Write ``value`` as JSON, indented unless it is for machines only."""
    text = json.dumps(value, indent=indent, allow_nan=True) + "\n"
    write_file(path, lambda file: file.write(text.encode()))


def check_plot(path):
    """`check_writable`, and ValueError unless the name ends in a format that `save_figure` writes."""
    if not is_plot(path):
        raise ValueError(f"plot {path}: the file's name should end in {', '.join(PLOT_FORMATS)}")
    check_writable(path)


def is_plot(path):
    """Whether the name ends in a format that `save_figure` writes."""
    return Path(path).suffix.lower() in PLOT_FORMATS


def save_figure(path, figure):
    """Write a matplotlib figure in the format that the path's ending names."""
    kind = Path(path).suffix[1:].lower()
    write_file(path, lambda file: figure.savefig(file, format=kind, dpi=150))


def _umask():
    umask = os.umask(0)
    os.umask(umask)
    return umask


def _target(path):
    """The file itself where ``path`` is a link to it; what lies in /dev is left alone."""
    return Path(path) if str(path).startswith("/dev/") else Path(os.path.realpath(path))


def _is_stream(path):
    return str(path).startswith("/dev/") or (path.exists() and not path.is_file())
