"""Modules that are imported late: packages that only some features need, and rooms that stand above another.

Nothing else ends because a package is missing, or cannot be imported.
That a package can be found does not mean that it can be imported: a library that it loads may be missing, it may be
built for another NumPy, or it may want a folder that cannot be made. Any such error counts as if it were missing.
"""

import importlib
import sys
import warnings

from .text import one_line

ABSENT = "is not installed"
_failed = {}
"""Why modules could not be imported, by name and search path: another try would take as long, and fail in another way,
since the first one has left modules behind."""


class PackageError(ValueError, ImportError):
    """A package that is needed for what was asked is missing, or cannot be imported."""


def optional(name):
    """A module of a package that may be missing, and None; or None, and why: `ABSENT`, or "cannot be imported: ...".

    Warnings of the package are neither shown nor errors.
    """
    package, key = name.partition(".")[0], (name, *sys.path)
    if key in _failed and name not in sys.modules:
        return None, _failed[key]
    if sys.modules.get(name):
        return sys.modules[name], None
    try:
        with warnings.catch_warnings():  # only now, since filters of warnings are those of all threads
            warnings.simplefilter("ignore")
            importlib.import_module(package)  # first, since a module that is there already is not asked for its package
            return importlib.import_module(name), None
    except Exception as error:  # whatever the package raises
        if isinstance(error, ModuleNotFoundError) and error.name == package:
            return None, ABSENT  # but may be soon, by a cell of a notebook
        return None, _failed.setdefault(key, f"cannot be imported: {one_line(error)}")


def needed(name, what, extra):
    """The module ``name``. Raises PackageError, which begins with ``what`` and says what to install, if there is none.

    ``extra``: the extra of setup.cfg that brings the package.
    """
    module, why = optional(name)
    if module is None:
        raise PackageError(f"{what}: {in_a_clone(extra)} ({name.partition('.')[0]} {why})")
    return module


def in_a_clone(extra):
    """The command that installs an extra: d2lmgpu is not on any package index, so it is installed from a clone."""
    return f"pip install -e '.[{extra}]' in the clone of d2lmgpu"


def ipython():
    """The IPython shell that runs this program; None elsewhere. This does not import IPython."""
    return getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()


def looked_up(package, above):
    """The functions ``__getattr__`` and ``__dir__`` of a package, by which it offers names of modules above it.

    ``above``: by module, relative to the package, the names in it.
    """
    module_of = {name: module for module, names in above.items() for name in names.split()}

    def look_up(name):
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(module_of[name], package), name)

    def names():
        return sorted({*vars(importlib.import_module(package)), *module_of})

    return look_up, names
