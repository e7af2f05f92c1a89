"""Files of Python that options name: `--network FILE.py` and `--metrics FILE.py`."""

import importlib.util
import sys
from pathlib import Path


def check_there(option, path):
    """Raise ValueError unless the file that an ``option`` names is there."""
    if not Path(path).is_file():
        raise ValueError(f"{option} {path}: there is no such file")


def defined_in(path, name):
    """What a file defines under a ``name``, or None; files beside it can be imported by it.

    Raises whatever goes wrong in the file.
    """
    spec = importlib.util.spec_from_file_location(f"{name}_of_ones_own", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return getattr(module, name, None)
