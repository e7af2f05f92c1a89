"""Programs by several processes, where mpi4py and an MPI are installed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import d2lmgpu as d2l


def command_of(count, *arguments):
    """The words that run Python with these arguments by so many processes. Skips a test where that cannot be."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which("mpiexec", path=path)
    if found is None:
        pytest.skip("there is no mpiexec")
    return [found, "-n", str(count), sys.executable, "-W", "error", *map(str, arguments)]


def mpiexec(count, *arguments, timeout=120):
    """Run Python with these arguments by so many processes."""
    folder = Path(d2l.__file__).parents[1]
    command = command_of(count, *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=folder)
