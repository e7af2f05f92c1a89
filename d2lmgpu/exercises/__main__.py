"""The process behind `answers.judge_answers`. It runs a file, and judges functions that the file defines.

On standard output, it writes a line of JSON when the file has run, [null, why it cannot be run or null], and one for
each function, [name, [right, says]]. What the file prints goes to standard error. If the file or an answer takes too
long, faulthandler writes the line "Timeout ..." and ends the process, even if code in C is running.
"""

import faulthandler
import json
import os
import runpy
import sys

from .checking import judge, what_ends
from .results import in_words


def main(path, folder, seconds, seed, names):
    """Run the file at ``path`` in a folder, judge its functions ``names``, and exit."""
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    os.environ.setdefault("MPLBACKEND", "Agg")  # or a plot might open a window, and wait until it is closed
    os.chdir(folder)
    sys.argv[:] = [path]
    sys.path.insert(0, folder)
    faulthandler.dump_traceback_later(seconds, exit=True, file=results)
    found, why = _run(path)
    print(json.dumps([None, why]), file=results)
    for name in names if why is None else ():
        faulthandler.dump_traceback_later(seconds, exit=True, file=results)
        verdict = judge(name, found[name], seed=seed) if name in found else (False, _missing(name, path))
        print(json.dumps([name, verdict]), file=results)
    os._exit(0)  # whatever threads the answers have started


def _run(path):
    """The names that a file defines, and None; or None, and why the file cannot be run."""
    try:
        return runpy.run_path(path), None
    except Exception as error:
        return None, in_words(error)
    except BaseException as error:  # sys.exit, and all else that would end the program
        return None, f"it {what_ends(error)}; it should only define functions"


def _missing(name, path):
    return f"✗ {name}: {os.path.basename(path)} has no function {name}; write def {name}(...)"


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
