"""Files of Python that options name: `--network FILE.py` and `--metrics FILE.py`."""

import contextlib
import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path

from ..devices.errors import one_line


@contextlib.contextmanager
def somebodys(option, path):
    """A ``with`` block that runs what is in the file that an ``option`` names.

    Raises ValueError, in a line, unless there is such a file, and for whatever goes wrong in the block but Ctrl-C.
    """
    if not Path(path).is_file():
        raise ValueError(f"{option} {path}: there is no such file")
    try:
        yield
    except KeyboardInterrupt:
        raise
    except Exception as error:
        raise ValueError(f"{option} {path}: {one_line(error)}") from error
    except BaseException as error:  # sys.exit, and what else would end the program
        from ..exercises.checking import what_ends

        raise ValueError(f"{option} {path}: it {what_ends(error)}; let it define functions, and no more") from error


def defined_in(path, name):
    """What a file defines under a ``name``, or None; files beside it can be imported by it.

    Raises whatever goes wrong in the file.
    """
    loader = SourceFileLoader(f"{name}_of_ones_own", path)  # of a file that ends in anything
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location(loader.name, path, loader=loader))
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return getattr(module, name, None)
