"""Across hosts: benchmarks/hosts.py makes some of network namespaces, joined by wires that can be cut."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.threads, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
MINUTE = 60
COMMAND = [sys.executable, "-m", "d2lmgpu", *"train --init he --batch-size 64 --limit 320".split()]


@pytest.fixture
def make_hosts(monkeypatch):
    """A function that gives `hosts.Hosts`, where they and MPI can be had."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    if shutil.which("mpiexec") is None:
        pytest.skip("there is no mpiexec")
    import hosts

    try:
        with hosts.Hosts(1):
            pass
    except hosts.NoNamespaces as error:
        pytest.skip(f"network namespaces are not allowed here: {error}")
    return hosts.Hosts


def started(hosts, *words):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return hosts.start(words, "a", cwd=ROOT, **pipes)


WAYS = {
    "flat": ["--allreduce", "ring"],
    "hierarchy": ["--allreduce", "hierarchical"],
    "pipeline": ["--split", "layers", "--pipeline", "1f1b", "--micro-batches", "3"],
}


def test_hosts_learn_what_one_process_learns(make_hosts, tmp_path):
    """Two hosts of two processes: bit for bit, and a hierarchy, which one process does not have, up to rounding."""
    found, file = {}, tmp_path / "run.json"
    with make_hosts(2, 100, each=2) as hosts:
        for name, way in WAYS.items():
            words = ["--environment", "parallel", "--epochs", "1", *way, "--json", file]
            done = started(hosts, "mpiexec", "-n", "4", *COMMAND, *words)
            said, _ = done.communicate(timeout=5 * MINUTE)
            assert done.returncode == 0, said
            found[name] = json.loads(file.read_text())
    assert [device.split("(")[-1] for device in found["flat"]["devices"]] == ["a)", "a)", "b)", "b)"]
    for name, there in found.items():
        way = WAYS["flat"] if name == "hierarchy" else WAYS[name]
        words = ["--epochs", "1", *way, "--devices", "cpu:0,cpu:1,cpu:2,cpu:3", "--json", file]
        subprocess.run([*COMMAND, *words], check=True, cwd=ROOT, capture_output=True)
        here = json.loads(file.read_text())
        assert there["train_loss"] == pytest.approx(here["train_loss"], rel=1e-5)
        if name != "hierarchy":
            for what in ("train_loss", "test_accuracy", "final_parameters_sha256"):
                assert there[what] == here[what], name
    assert not hosts.folder.exists()
