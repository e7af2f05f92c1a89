"""The programs and batch jobs of the page on sweeps over a cluster, with ``srun`` replaced by ``mpiexec``."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_sweep import find_program

import d2lmgpu as d2l

pytestmark = pytest.mark.threads

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")
WAYS = dict(re.findall(r"^## (By .*?)\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL))
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
exec "{mpiexec}" -n 3 "$@"
"""


def test_both_ways_are_there():
    assert list(WAYS) == ["By MPI", "By Dask"]


@pytest.mark.long
@pytest.mark.parametrize("way, package", [("By MPI", "mpi4py"), ("By Dask", "distributed")])
def test_a_job(way, package, tmp_path):
    """Up to ten seconds: processes of Dask's begin one after the other."""
    pytest.importorskip(package, reason=f"{package} is not installed")
    mpiexec = find_program("mpiexec")
    if mpiexec is None:
        pytest.skip("there is no mpiexec")
    (program,) = re.findall(r"```python\n(.*?)```", WAYS[way], re.DOTALL)
    (job,) = re.findall(r"```bash\n(.*?)```", WAYS[way], re.DOTALL)
    (tmp_path / "sweep.py").write_text(program.replace("num_epochs=10", 'num_epochs=1, limit=300, environment="cpu"'))
    (tmp_path / "job").write_text(job)
    (tmp_path / "srun").write_text(SRUN.format(mpiexec=mpiexec))
    (tmp_path / "srun").chmod(0o755)
    path = [str(tmp_path), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = os.environ | {"PATH": os.pathsep.join(path), "SLURM_JOB_ID": "7", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "job"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    rows = d2l.load_sweep(tmp_path / "sweep.jsonl")
    assert [row["status"] for row in rows] == ["done"] * 6
