"""``pytest`` without ``--all`` runs less of everything, but of nothing nothing. (This file alone is not in it.)"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from d2lmgpu.collectives import ALGORITHMS

ROOT = Path(__file__).resolve().parents[2]
KS = 1, 2, 3, 5, 8

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def short_run():
    """The names of its tests. Some seconds, since all test files are imported anew."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"^(tests/[\w/]+\.py::.*)$", done.stdout, re.MULTILINE)


def test_every_file_has_a_part(short_run):
    files = {name.partition("::")[0] for name in short_run} | {"tests/documents/test_short_run.py"}
    assert files == {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")}


@pytest.mark.parametrize("kind", ["cpu", "standin"])
def test_every_algorithm_on_each_number_of_devices(short_run, kind):
    sums = {name.partition("sum[")[2] for name in short_run if "::test_every_device_gets_the_sum[" in name}
    for algorithm in ALGORITHMS.keys() - {"none"}:
        assert {f"{kind}-{algorithm}-{k}-float32]" for k in KS} <= sums


@pytest.mark.parametrize("kind, dtype", [("cpu", "float32"), ("cpu", "float64"), ("standin", "float32")])
def test_training_on_each_number_of_devices(short_run, kind, dtype):
    steps = [name for name in short_run if re.search(rf"parallel.py::test_k_devices.*{kind}-{dtype}\]", name)]
    assert {int(re.search(r"-(\d+)-", name)[1]) for name in steps} >= set(KS)


def test_every_notebook_begins(short_run):
    notebooks = {path.stem for path in (ROOT / "notebooks").glob("*.ipynb")}
    begun = {name.partition("::test_a_notebooks_first_cells")[2] for name in short_run}
    assert {f"[{name}]" for name in notebooks} <= begun
