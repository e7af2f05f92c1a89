"""Scaling on a cluster: the arithmetic, with seconds of which everything is known; no test asserts a time."""

import json

import pytest
from clusters_in_threads import in_each
from mpiexec import mpiexec
from test_across import some

import d2lmgpu as d2l
from d2lmgpu.cli import main
from d2lmgpu.cluster import Wires, network_of
from d2lmgpu.scaling import Compute, machines, measure_cluster_scaling, predict_scaling
from d2lmgpu.scaling.turns import Turn

pytestmark = pytest.mark.threads

WIRES = Wires(1e-5, {"hosts": 1e-4, "process": 1e-6}, {"hosts": 1e-8, "process": 1e-9}, 1e-10)


class Known:
    """A contender that takes, for n examples on a device, n² + 1 seconds alone, and with others 100 times as long."""

    def __init__(self, groups, network, batch_size, steps, data, algorithm=None, how=None):
        self.steps, devices = steps, sum(len(group) for group in groups)
        self.seconds = (batch_size**2 + 1) * (100 if len(groups) == 1 and devices > 1 else 1)

    def __call__(self):
        return Turn(self.seconds * self.steps, {})


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr(machines, "Contender", Known)
    monkeypatch.setattr(machines, "measure_wires", lambda cluster: WIRES)


@pytest.mark.parametrize("mode, sizes", [("strong", [2, 4, 12]), ("weak", [12])])
def test_what_is_predicted_from_what(known, small, mode, sizes):
    """Of three processes of one device: from a whole minibatch, and from the parts of 3 and 6 devices."""
    told = in_each(
        (1, 1, 1), lambda cluster: measure_cluster_scaling(cluster, [2], mode=mode, batch_size=12, steps=2, data=small)
    )
    assert told[0] == told[1] == told[2]
    found, batch = told[0], 12 if mode == "strong" else 36
    compute = Compute(sizes, [n**2 + 1 for n in sizes], 3)
    expected = predict_scaling(compute, [3, 6], 12, 129_068, network_of(WIRES), mode)
    assert found.predicted == expected and [row.devices for row in found.predicted] == [3, 6]
    assert found.measured == [100 * (batch**2 + 1)] * 3
    assert (found.devices_per_process, found.processes_per_host, found.parameters) == (1, 1, 129_068)
    assert found.compute == compute.as_dict() and found.devices[2] == "cpu(0) of rank 2 (host2)"


def test_training_in_turns(small, monkeypatch):
    """For real, with two processes of two devices each; all know the same afterwards."""
    monkeypatch.setattr(machines, "measure_wires", lambda cluster: WIRES)
    data = some(small, 24, 5)
    told = in_each(
        (2, 2), lambda cluster: measure_cluster_scaling(cluster, [2], batch_size=12, steps=2, repeats=1, data=data)
    )
    assert told[0] == told[1] and told[0].devices_per_process == 2
    assert all(seconds > 0 for seconds in [*told[0].measured, *told[0].compute["seconds"]])
    assert told[0].compute["sizes"] == [2, 3, 12]


def test_what_cannot_be_measured(known, small, capsys):
    with pytest.raises(ValueError, match="needs several processes: start them with mpiexec or srun"):
        measure_cluster_scaling(d2l.cluster(), data=small)
    with pytest.raises(ValueError, match="different numbers of devices; to predict more of them, give each as many"):
        in_each((1, 2), lambda cluster: measure_cluster_scaling(cluster, data=small))
    with pytest.raises(ValueError, match="times as many processes is 0"):
        in_each((1, 1), lambda cluster: measure_cluster_scaling(cluster, [0], data=small))
    assert main(["scaling", "--times", "2"]) == 2
    assert "--times is for several processes; add --environment parallel" in capsys.readouterr().err


@pytest.mark.long
def test_the_command_under_mpiexec(tmp_path):
    file, plot = tmp_path / "scaling.json", tmp_path / "scaling.png"
    words = "scaling --environment parallel --batch-size 16 --steps 2 --repeats 2 --limit 100 --times 3 --mode weak"
    done = mpiexec(2, "-m", "d2lmgpu", *words.split(), "--json", file, "--plot", plot, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert [row["devices"] for row in found["predicted"]] == [2, 6]
    assert [row["batch_size"] for row in found["predicted"]] == [32, 96]
    assert found["compute"]["sizes"] == [16] and "host" in found["wires"]["latency"]
    assert done.stdout.count("measured: ") == 2 and len(done.stdout.splitlines()) == 6
    assert plot.read_bytes().startswith(b"\x89PNG")
