"""Answers in files. They run in processes of their own, so that an answer cannot crash or block this one."""

import contextlib
import os
import runpy
import shutil
import sys
import tempfile
from pathlib import Path

from ..fashion_mnist import FILES
from ..output import target
from .apart import Supervisor
from .checking import Verdict, judge, not_yet, what_ends
from .jobs import SPOKE
from .mine import FILE
from .results import in_words
from .time_limit import SECONDS, check_seconds


def judge_file(name, path, seconds=SECONDS):
    """Run a Python file, and judge its function ``name``. Returns a `Verdict`.

    ``seconds`` is the limit for `Supervisor.run`. The file can import modules from its own folder, as with
    ``python FILE``.

    Raises ValueError if the file raises an error or has no such function, OSError if it cannot be read.
    """
    if what := "a folder" if Path(path).is_dir() else "a notebook" if Path(path).suffix == ".ipynb" else None:
        raise ValueError(f"{path} is {what}; give the path of a Python file")
    with open(path, "rb"), contextlib.closing(Supervisor()) as supervisor:  # OSError now if it cannot be read
        return judged(name, supervisor.run(judge_here, name, str(path), seconds=check_seconds(seconds)))


def judged(name, outcome):
    """The `Verdict` in the `Outcome` of `judge_here`. Raises ValueError for a file that cannot be run."""
    match outcome.result:
        case {"refused": str(why)}:
            raise ValueError(why)
        case {"right": bool(right), "says": str(says)}:
            return Verdict(right, says, outcome.output)
    return not_yet(name, f"your answer {outcome.ended or SPOKE}", HINT, outcome.output)


HINT = "does it wait for something that never happens, or exit Python? It should always return a result"


def judge_here(name, path, seed=None, folder=None):
    """The job of `judge_file`. Returns the verdict as a dict, or {"refused": why}.

    ``folder``: where the file's imports are looked for first; by default the file's own folder.
    """
    sys.argv[:] = [path]
    sys.path.insert(0, folder or str(target(path).parent))
    try:
        names = runpy.run_path(path)
        if name not in names:
            return {"refused": f"{path} has no function {name}; write def {name}(...)"}
        return judge(name, names[name], seed=seed)._asdict()
    except Exception as error:
        return {"refused": f"{path} cannot be run: {in_words(error)}"}
    except BaseException as error:  # sys.exit, and all else that would end the program
        return not_yet(name, f"your file {what_ends(error)}", "it should only define functions")._asdict()


LARGEST = 2**28
"""The most bytes that the files of a copied folder may have together."""


def copy_folder(source, target):
    """Copy a folder to a new one. Links stay links; hidden files, notebooks, Fashion-MNIST and pipes are left out.
    The folder is a student's, so it may be deep or large, and its links may lead anywhere. Raises ValueError if it is
    too large, OSError if something in it cannot be read.
    """
    folders, left = [(source, Path(target))], LARGEST
    for here, there in folders:  # which become more; without recursion, which has a limit
        there.mkdir()
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
    """A new folder for the ``with`` block. At the end, it and everything in it are removed, as far as possible."""
    with tempfile.TemporaryDirectory(prefix="d2lmgpu-", dir=within, ignore_cleanup_errors=True) as folder:
        try:
            yield Path(folder)
        finally:
            _flatten(folder)


def _flatten(folder):
    """Move all inner folders up into ``folder``, and make them writable.

    Where it is, a deep folder may have too long a path for the system, and be too deep for Python's recursion.
    """
    folders = [folder]
    for here in folders:  # which become more
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(here)):
                if entry.is_dir(follow_symlinks=False):
                    os.chmod(entry.path, 0o700)
                    os.rename(entry.path, up := tempfile.mktemp(dir=folder))
                    folders.append(up)


def judge_a_copy(name, student, copy, file, seed):
    """The job of a grader: copy the student's folder to a new folder ``copy``, and judge ``file`` there.

    The copy becomes the current folder and the answer's home folder. ``file`` is mine.py, or the path of a file that
    was extracted from a notebook. Such a file is copied next to ``copy`` and not into it, where a student's link could
    have the same name.
    """
    try:
        copy_folder(student, copy)
    except (OSError, ValueError) as error:
        return {"refused": f"the folder cannot be copied: {error}"}
    os.chdir(copy)
    os.environ.update({"HOME": copy, "TMPDIR": copy})
    own = os.path.join(copy, FILE) if file == FILE else shutil.copy(file, os.path.dirname(copy))
    return judge_here(name, own, seed, copy)
