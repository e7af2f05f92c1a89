"""Across hosts: benchmarks/hosts.py makes some of network namespaces, joined by wires that can be cut."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.threads

ROOT = Path(__file__).resolve().parents[1]
MINUTE = 60
TRAIN = "train --environment parallel --init he --batch-size 64 --limit 320".split()


@pytest.fixture
def make_hosts(monkeypatch):
    """A function that gives `hosts.Hosts`, where they can be had."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    import hosts

    try:
        with hosts.Hosts(1):
            pass
    except hosts.NoNamespaces as error:
        pytest.skip(f"network namespaces are not allowed here: {error}")
    return hosts.Hosts


@pytest.fixture
def with_mpi(make_hosts):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    if shutil.which("mpiexec") is None:
        pytest.skip("there is no mpiexec")
    return make_hosts


def started(hosts, *words, host="a"):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return hosts.start(words, host, cwd=ROOT, **pipes)


def processes():
    """What runs on this machine, its hosts included."""
    return subprocess.run(["ps", "-wweo", "args"], capture_output=True, text=True).stdout


def test_hosts_have_names_of_their_own_and_leave_nothing_behind(make_hosts):
    with make_hosts(2) as hosts:
        assert started(hosts, "hostname", host="b").communicate(timeout=MINUTE)[0] == "b\n"
        assert "10.77.0.2" in started(hosts, "ip", "addr", host="b").communicate(timeout=MINUTE)[0]
        command = [hosts.folder / "login", "-x", "b", "cat", "/etc/hosts"]
        assert "10.77.0.1 a" in started(hosts, *command).communicate(timeout=MINUTE)[0]
        running, folder = started(hosts, "sleep", "54321", host="b"), hosts.folder
        while "sleep 54321" not in processes():
            time.sleep(0.05)
    running.communicate(timeout=MINUTE)
    assert running.returncode != 0 and not folder.exists()
    assert "sleep 54321" not in processes()


WAYS = {
    "flat": ["--allreduce", "ring"],
    "hierarchy": ["--allreduce", "hierarchical"],
    "pipeline": ["--split", "layers", "--pipeline", "1f1b", "--micro-batches", "3"],
}


@pytest.mark.long
def test_hosts_learn_what_one_process_learns(with_mpi, tmp_path):
    """Two hosts of two processes: bit for bit, and a hierarchy, which one process does not have, up to rounding."""
    found = {}
    with with_mpi(2, 100, each=2) as hosts:
        for name, way in WAYS.items():
            file = tmp_path / "run.json"
            words = [*TRAIN, "--epochs", "1", *way, "--json", file]
            done = started(hosts, "mpiexec", "-n", "4", sys.executable, "-m", "d2lmgpu", *words)
            said, _ = done.communicate(timeout=5 * MINUTE)
            assert done.returncode == 0, said
            found[name] = json.loads(file.read_text())
    assert [device.split("(")[-1] for device in found["flat"]["devices"]] == ["a)", "a)", "b)", "b)"]
    for name, there in found.items():
        way = WAYS["flat"] if name == "hierarchy" else WAYS[name]
        words = [*TRAIN[:1], *TRAIN[3:], "--epochs", "1", *way, "--devices", "cpu:0,cpu:1,cpu:2,cpu:3"]
        words += ["--json", tmp_path / "one.json"]
        subprocess.run([sys.executable, "-m", "d2lmgpu", *words], check=True, cwd=ROOT, capture_output=True)
        here = json.loads((tmp_path / "one.json").read_text())
        assert there["train_loss"] == pytest.approx(here["train_loss"], rel=1e-5)
        if name != "hierarchy":
            for what in ("train_loss", "test_accuracy", "final_parameters_sha256"):
                assert there[what] == here[what], name


@pytest.mark.long
@pytest.mark.timing
def test_a_wire_that_is_cut_ends_training_and_is_told(with_mpi):
    """By host and rank; and the processes end on both sides of it, within patience and what they are left to speak."""
    with with_mpi(3, 100) as hosts:
        words = [*TRAIN, "--epochs", "1000", "--patience", "4", "--seed", "54323"]
        job = started(hosts, "mpiexec", "-n", "3", sys.executable, "-m", "d2lmgpu", *words)
        said = ""
        while "epoch 2/1000" not in said:
            line = job.stdout.readline()
            assert line, said
            said += line
        hosts.cut("b")
        end = time.monotonic() + MINUTE
        while "\n" + " ".join([sys.executable, "-m", "d2lmgpu", *words]) in processes():
            assert time.monotonic() < end
            time.sleep(0.1)
    said += job.communicate(timeout=MINUTE)[0]  # MPICH's mpiexec itself would wait until TCP gives that host up
    assert "of waiting the job ends: cpu(0) of rank " in said
    assert re.search(r"of rank [02] \([ac]\) waits in .* of rank 1 \(b\)", said)


@pytest.mark.long
def test_the_pages_command(with_mpi):
    """As typed, with this Python and this package."""
    (line,) = re.findall(r"^python (benchmarks/hosts.py .*)$", (ROOT / "docs" / "cluster.md").read_text(), re.MULTILINE)
    words = line.replace(" d2lmgpu ", f" {sys.executable} -m d2lmgpu ").split()
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=5 * MINUTE)
    assert done.returncode == 0, done.stderr
    assert "on [cpu(0) of rank 0 (a), cpu(0) of rank 1 (b)]" in done.stdout
