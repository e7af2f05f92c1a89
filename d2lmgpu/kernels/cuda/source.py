"""The text of the CUDA files, which are installed with the package."""

import re
from importlib import resources


def sources():
    """The names of all CUDA files of this folder, sorted."""
    return sorted(file.name for file in resources.files(__package__).iterdir() if file.name.endswith(".cu"))


def read(name):
    """The text of one of them, for ``cupy.RawModule(code=...)``. Raises FileNotFoundError if there is none.

    What it includes from this folder is put in place of the ``#include "..."``,
    because a compiler that gets a text and no file looks nowhere.
    """
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return re.sub(r'^#include "(.+)"$', lambda line: read(line[1]), text, flags=re.MULTILINE)
