"""The process behind `answers.judge_answers`. It runs a file, and judges functions that the file defines.

On standard output, it writes a line of JSON when the file has run, [], and one for each function, [name, verdict]. What
the file prints goes to standard error. If the file or an answer takes too long, faulthandler writes the line "Timeout
..." and ends the process, even if code in C is running.
"""

import faulthandler
import json
import os
import runpy
import sys

from .checking import judge, not_yet
from .results import in_words


def main(path, seconds, names):
    """Run the file at ``path`` in its folder, judge its functions ``names``, and exit."""
    results = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    os.environ.setdefault("MPLBACKEND", "Agg")  # or a plot might open a window, and wait until it is closed
    folder, file = os.path.split(path)
    os.chdir(folder)
    sys.argv[:] = [path]
    sys.path.insert(0, folder)
    faulthandler.dump_traceback_later(seconds, exit=True, file=results)
    try:
        found, wrong = runpy.run_path(path), None
    except BaseException as error:  # sys.exit, too
        found, wrong = {}, f"{file} cannot be run: {in_words(error)}"
    print("[]", file=results)
    for name in names:
        faulthandler.dump_traceback_later(seconds, exit=True, file=results)
        if name in found:
            verdict = judge(name, found[name])
        else:
            verdict = not_yet(name, wrong or f"{file} has no function {name}", f"write def {name}(...), and run {file}")
        print(json.dumps([name, verdict]), file=results)
    os._exit(0)  # whatever threads the answers have started


if __name__ == "__main__":
    main(*json.loads(sys.argv[1]))
