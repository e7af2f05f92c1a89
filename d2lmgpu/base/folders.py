"""What people put into a folder, apart from what systems leave there."""

from pathlib import Path

LEFT = "__macosx __pycache__ @eadir $recycle.bin desktop.ini lost+found thumbs.db".split()
"""The names, in lower case, of files and folders that systems and programs make without being asked."""


def visible(folder):
    """The paths in a folder, sorted, except hidden ones (``._1.png``) and those in `LEFT`. Raises OSError."""
    return sorted(path for path in Path(folder).iterdir() if path.name[0] != "." and path.name.lower() not in LEFT)
