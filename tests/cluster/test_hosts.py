"""Across hosts: benchmarks/hosts.py makes some of network namespaces, joined by wires that can be cut."""

import json
import re
import shutil
import subprocess
import sys
import time
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


def processes():
    """What runs on this machine, its hosts included."""
    return subprocess.run(["ps", "-wweo", "args"], capture_output=True, text=True).stdout


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


@pytest.mark.timing
def test_a_wire_that_is_cut_ends_training_and_is_told(make_hosts):
    """By host and rank; and the processes end on both sides of it, within patience and what they are left to speak."""
    with make_hosts(3, 100) as hosts:
        words = [*COMMAND, *"--environment parallel --epochs 1000 --patience 4 --seed 54323".split()]
        job = started(hosts, "mpiexec", "-n", "3", *words)
        said = ""
        while "epoch 2/1000" not in said:
            line = job.stdout.readline()
            assert line, said
            said += line
        hosts.cut("b")
        end = time.monotonic() + MINUTE
        while "\n" + " ".join(words) in processes():
            assert time.monotonic() < end
            time.sleep(0.1)
    said += job.communicate(timeout=MINUTE)[0]  # MPICH's mpiexec itself would wait until TCP gives that host up
    assert "of waiting the job ends: cpu(0) of rank " in said
    assert re.search(r"of rank [02] \([ac]\) waits in .* of rank 1 \(b\)", said)
