"""Result files: checked before the work begins, and written completely or not at all.

While a file ``NAME`` is being written, a hidden file ``.NAME.….part`` is beside it, which becomes ``NAME`` when it is
complete. So if the program is killed, what stood there stays.
"""

import contextlib
import itertools
import json
import math
import os
import secrets
import shutil
import sys
from pathlib import Path

from .arguments import plain, shown

STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/self/fd/")
"""Paths that are written to and never replaced, even if they stand for a file."""

PLOT_FORMATS = (".png", ".svg", ".pdf")


def target(path):
    """The absolute path of the file or folder that ``path`` names, or links to, whether it exists or not."""
    return Path(path) if str(path).startswith(STREAMS) else Path(os.path.realpath(path))


def is_stream(path):
    """Whether ``path`` is written to and never replaced."""
    path = target(path)
    return str(path).startswith(STREAMS) or (path.exists() and not path.is_file() and not path.is_dir())


@contextlib.contextmanager
def naming(path):
    """Make an OSError within the ``with`` block say which file could not be written."""
    try:
        yield
    except OSError as error:
        named = type(error)(f"cannot write {path}: {error.strerror or error}")
        named.errno = error.errno
        raise named from error


def check_writable(path):
    """Raise OSError now if a result could not be written to ``path`` later; this does not change an existing file."""
    path = target(path)
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder")
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(f"cannot write {path}: permission denied")
    if not is_stream(path):
        with naming(path):
            part = _part(path)
            part.touch()
            part.unlink()


def check_folder(path):
    """Like `check_writable`, but for a folder of results, which is created if it does not exist."""
    path = target(path)
    if path.exists() and not path.is_dir():
        raise NotADirectoryError(f"cannot write into {path}: it is not a folder; give another name")
    with naming(path):
        path.mkdir(parents=True, exist_ok=True)
    check_writable(path / ".result")


def same_file(path, other):
    """Whether two paths lead, or will lead, to the same file, directly or through links. For streams this is False."""
    path, other = target(path), target(other)
    if is_stream(path) or is_stream(other):
        return False
    return path == other or (path.exists() and other.exists() and path.samefile(other))


def write_file(path, write):
    """Let ``write(file)`` fill a temporary file beside ``path``, then rename it to ``path``.

    If this fails, an older file stays as it was. A new file gets the permissions of the older one. Into a pipe, or into
    /dev/stdout, ``write`` writes directly. Raises an OSError that names the file.
    """
    path = target(path)
    if is_stream(path):
        sys.stdout.flush()  # what was printed before comes first
        with naming(path), open(_opened(path), "ab") as file:
            write(file)
        return
    part = _part(path)
    with naming(path):
        try:
            with open(part, "xb") as file:
                with contextlib.suppress(OSError):  # a new file, or a file system without permissions
                    shutil.copymode(path, part)
                write(file)
                file.flush()
                os.fsync(file.fileno())  # otherwise a power failure might keep the name but not the content
            os.replace(part, path)
        finally:
            part.unlink(missing_ok=True)


def _opened(path):
    """A descriptor of an open stream, which shares its place in a file, so that neither overwrites the other's text."""
    if not str(path).startswith(STREAMS):
        return path
    return os.dup({"stdout": 1, "stderr": 2}.get(path.name) or int(path.name))


def backup(path):
    """Copy a file that will be replaced to NAME.before-1 beside it, or to -2 and so on: the first unused name.

    Returns the path of the copy, or of an older copy with the same content. Raises OSError if the file cannot be
    copied.
    """
    path = target(path)
    for number in itertools.count(1):
        aside = path.with_name(f"{path.name}.before-{number}")
        if not os.path.lexists(aside):
            return shutil.copy(path, aside)
        if aside.is_file() and aside.read_bytes() == path.read_bytes():
            return aside


def as_json(value, **options):
    """``value`` as JSON: the text that every file and page gets. ``options``: as for ``json.dumps``.

    JSON has no numbers that are not finite; they become null. NumPy's numbers and arrays become plain ones, and paths
    strings. A lone surrogate, in a name that is not UTF-8, is escaped, so that the name can be read back. Raises
    ValueError if JSON cannot represent the value.
    """
    try:
        return json.dumps(_finite(value), allow_nan=False, **options)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"{shown(value)} cannot be written as JSON: {error}") from None


def _finite(value):
    """``value`` in Python's own types, with None in place of numbers that are not finite."""
    if isinstance(value, dict):
        return {plain(name): _finite(part) for name, part in value.items()}
    value = os.fspath(value) if isinstance(value, os.PathLike) else plain(value)
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def as_json_in_html(value):
    """JSON in which nothing ends a script element, whatever the texts contain."""
    text = as_json(value, separators=(",", ":"))
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return text


def write_json(path, value, indent=2):
    """Write ``value`` as JSON (see `as_json`), indented unless only machines read it. Raises ValueError, OSError."""
    text = as_json(value, indent=indent) + "\n"
    write_file(path, lambda file: file.write(text.encode()))


def read_json(text):
    """The content of a JSON text (str or bytes), or None if it is not JSON: then the caller says what it should be."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # raised also for bytes that are not text, and for deeply nested brackets
        return None


def check_plot(path):
    """Like `check_writable`; also raise ValueError unless the name ends in a format that `save_figure` writes."""
    if not is_plot(path):
        raise ValueError(f"plot {path}: the file's name should end in {', '.join(PLOT_FORMATS)}")
    check_writable(path)


def is_plot(path):
    """Whether the name ends in a format that `save_figure` writes."""
    return Path(path).suffix.lower() in PLOT_FORMATS


def save_figure(path, draw):
    """Write the matplotlib figure that ``draw()`` makes, in the format that the path's ending names."""
    kind, figure = Path(path).suffix[1:].lower(), draw()
    write_file(path, lambda file: figure.savefig(file, format=kind, dpi=150))


def _part(path):
    """The name of a new hidden file beside ``path``; random, since another program may be writing ``path``, too."""
    return path.with_name(f".{path.name}.{secrets.token_hex(3)}.part")


LEFT = "__macosx __pycache__ @eadir $recycle.bin desktop.ini lost+found thumbs.db".split()
"""The names, in lower case, of files and folders that systems and programs make without being asked."""


def visible(folder):
    """The paths in a folder, sorted, except hidden ones (``._1.png``) and those in `LEFT`. Raises OSError."""
    return sorted(path for path in Path(folder).iterdir() if path.name[0] != "." and path.name.lower() not in LEFT)


def shipped(name):
    """The path of a folder of the repository: in a clone, or else where it was installed.

    An installer puts it into ``share/d2lmgpu`` (setup.cfg) beside the package, or beside an enclosing folder such as
    ``lib/python3.12/site-packages``. If it is not found, the result is the path that it would have in a clone.
    """
    clone = Path(__file__).resolve().parents[2] / name
    installed = (folder / "share/d2lmgpu" / name for folder in list(Path(__file__).parents)[2:6])
    return next((folder for folder in (clone, *installed) if folder.is_dir()), clone)
