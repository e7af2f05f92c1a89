"""Copies of folders that strangers made: however deep and large they are, and wherever their links lead."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from ..fashion_mnist import FILES
from .answers import judge_here
from .submissions import MINE

LARGEST = 2**28
"""Bytes of a folder that is copied."""


def copy_folder(source, target):
    """Copy a folder into one that is empty, links as links; without hidden files, notebooks, Fashion-MNIST and pipes.

    Raises ValueError if it is too large, OSError if something in it cannot be read.
    """
    folders, left = [(source, Path(target))], LARGEST
    while folders:  # no recursion, which has a limit
        here, there = folders.pop()
        there.mkdir(exist_ok=True)
        for entry in os.scandir(here):
            if entry.name.startswith(".") or entry.name in FILES:
                continue
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), there / entry.name)
            elif entry.is_dir():
                folders.append((entry.path, there / entry.name))
            elif entry.is_file() and not entry.name.endswith(".ipynb"):
                left -= entry.stat().st_size
                if left < 0:
                    raise ValueError(f"its files are larger than {LARGEST >> 20} MB")
                shutil.copyfile(entry.path, there / entry.name)


@contextlib.contextmanager
def temporary_folder(within=None):
    """A new folder, which is gone in the end, whatever was put there."""
    folder = Path(tempfile.mkdtemp(prefix="d2lmgpu-", dir=within))
    try:
        yield folder
    finally:
        _remove(folder)


def _remove(folder):
    """Remove a folder, but nothing that links in it lead to.

    What lies deep is moved up first: a name may be too long for the system, a path of its folders for Python.
    """
    here, folders, empty = folder, [], []
    while here:
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(here)):
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        os.chmod(entry.path, 0o700)
                        up = tempfile.mktemp(dir=folder)
                        os.rename(entry.path, up)
                        folders.append(up)
                    else:
                        os.unlink(entry.path)
        empty.append(here)
        here = folders.pop() if folders else None
    for here in reversed(empty):
        with contextlib.suppress(OSError):
            os.rmdir(here)


JUDGE = f"{__name__}:judge_a_copy"


def judge_a_copy(name, student, copy, file, seed):
    """`judge_here` of ``file`` in the empty folder ``copy``, after the student's has been copied there.

    A ``file`` of the grader's own is copied beside it, since what lies within may be links. For a process of its own.
    """
    try:
        copy_folder(student, copy)
    except (OSError, ValueError) as error:
        return {"refused": f"the folder cannot be copied: {error}"}
    own = os.path.join(copy, MINE) if file == MINE else shutil.copy(file, os.path.dirname(copy))
    return judge_here(name, own, seed, copy)
