"""Answers in files: run in a process of their own, so that an answer may do whatever it does."""

import runpy
import sys
from pathlib import Path
from typing import NamedTuple

from .apart import MEMORY, SPOKE, run_apart
from .checking import Verdict, judge, not_yet, what_ends
from .results import in_words
from .time_limit import SECONDS
from .topics import find


class Judged(NamedTuple):
    """``verdict`` on an answer in a file, and the ``output``: what it printed, or the beginning of it."""

    verdict: Verdict
    output: str


def judge_file(name, path, seconds=SECONDS, memory=MEMORY):
    """What there is to say of the function ``name`` in a Python file, which is run. Returns a `Judged`.

    The limits are `run_apart`'s. The file's folder is where its imports are looked for first, as in ``python FILE``.

    Raises ValueError if the file raises an error or has no such function, OSError if it cannot be read.
    """
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder; name the Python file in it")
    with open(path, "rb"):  # or say now that there is none
        outcome = run_apart(JUDGE, name, str(path), seconds=seconds, memory=memory)
    return judged(name, outcome)


def judged(name, outcome):
    """The `Judged` of what came of `judge_here`. Raises ValueError for a file that cannot be run."""
    match outcome.result:
        case {"refused": str(why)}:
            raise ValueError(why)
        case {"right": bool(right), "says": str(says)}:
            verdict = Verdict(right, says)
        case _:
            verdict = not_yet(name, f"your answer {outcome.ended or SPOKE}", HINT)
    return Judged(verdict, outcome.output)


JUDGE = f"{__name__}:judge_here"
HINT = "does it wait for what never comes, or leave Python? Whatever it gets, it should return"


def judge_here(name, path, seed=None, folder=None):
    """`judge_file`'s work in its process: the verdict as a dict, or {"refused": why}.

    ``folder``: where its imports are looked for first, if not in that of the file.
    """
    sys.argv[:] = [path]
    sys.path.insert(0, folder or str(Path(path).resolve().parent))
    try:
        names = runpy.run_path(path)
        if name not in names:
            return {"refused": f"{path} has no function {name}; write def {name}(...)"}
        return judge(name, find(name), names[name], seed=seed)._asdict()
    except SyntaxError as error:
        where = f", line {error.lineno}" if error.lineno else ""
        return {"refused": f"{error.filename or path}{where}: {error.msg}"}
    except Exception as error:
        return {"refused": f"{path} cannot be run: {in_words(error)}"}
    except BaseException as error:  # sys.exit, and what else would end the program
        return not_yet(name, f"your file {what_ends(error)}", "let it define functions, and no more")._asdict()
