"""Allreduce "auto": what is measured is taken, by all processes, and taken again by a run that goes on."""

import functools
import json
import types

import pytest
from mpiexec import mpiexec
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu.cluster import Wires, choose, measure_wires, on_wiring, wiring_of
from d2lmgpu.collectives import ALGORITHMS, simulate
from d2lmgpu.collectives.network import read_wires
from d2lmgpu.scaling import measure_scaling
from d2lmgpu.training import runner

WIRING = """latency: 10 us
0-memory: 1 GB/s
1-memory: 1 GB/s
2-memory: 100 MB/s"""
"""Of three devices, for which the ring is not the fastest."""


@pytest.fixture
def chosen(monkeypatch):
    """What `choose` is to find, in place of measuring: a dict; "asked" counts how often."""
    found = {"name": "invented", "asked": 0}

    def choose(cluster, n):
        found["asked"] += 1
        found["n"], found["k"] = n, len(cluster)
        return found["name"], {"ring": 2e-3, found["name"]: 1e-3}, WIRING

    monkeypatch.setattr(runner, "choose", choose)
    return found


def test_it_is_measured_on_these_devices_for_this_size(small, capsys):
    history, _ = quick([d2l.cpu(i) for i in range(3)], small, num_epochs=1, allreduce="auto", progress=True)
    assert history.allreduce in {*ALGORITHMS, "invented"} - {"none"}
    assert read_wires(history.wiring).k == 3
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "allreduce: " in line]
    assert f"{history.allreduce} is the fastest here" in line


@pytest.mark.parametrize("name", ["invented", "tree"])
def test_a_run_that_goes_on_takes_the_same_again(small, chosen, tmp_path, name):
    devices, file = [d2l.cpu(i) for i in range(3)], tmp_path / "run.npz"
    chosen["name"] = name
    how = {"allreduce": "auto", "init": "he"}
    whole, _ = quick(devices, small, num_epochs=2, **how)
    quick(devices, small, num_epochs=1, checkpoint=file, **how)
    assert (chosen["asked"], chosen["n"], chosen["k"]) == (2, 129_068, 3)
    chosen["name"] = "naive"
    resumed, _ = quick(devices, small, num_epochs=2, resume=file, **how)
    assert chosen["asked"] == 2 and resumed.allreduce == name and resumed.wiring == WIRING
    assert resumed.final_parameters_sha256 == whole.final_parameters_sha256
    quick(devices[:2], small, num_epochs=2, resume=file, **how)  # on other devices another may be faster
    assert (chosen["asked"], chosen["k"]) == (3, 2)


def test_what_was_not_measured_is_not_taken_again(small, chosen, tmp_path):
    devices, file = [d2l.cpu(i) for i in range(3)], tmp_path / "run.npz"
    quick(devices, small, num_epochs=1, checkpoint=file, allreduce="tree")
    history, _ = quick(devices, small, num_epochs=2, resume=file, allreduce="auto")
    assert chosen["asked"] == 1 and history.allreduce == "invented"
    history, _ = quick(devices, small, num_epochs=2, resume=file, allreduce="tree")
    assert history.allreduce == "tree" and history.wiring is None


def test_one_device_has_nothing_to_choose(small, chosen):
    history, _ = quick([d2l.cpu(0)], small, num_epochs=1, allreduce="auto")
    assert chosen["asked"] == 0 and history.allreduce == "ring" and history.wiring is None


@pytest.mark.parametrize("change", [{"processes": 2}, {"devices": ["gpu(0)"] * 3}, {"wiring": None}])
def test_elsewhere_it_is_measured_anew(small, chosen, change):
    """What another number of processes found, or GPUs, may not even be possible here, such as "mpi"."""
    saved = {"allreduce": "mpi", "wiring": WIRING, "processes": 1, "devices": ["cpu(0)", "cpu(1)", "cpu(2)"]}
    find = functools.partial(
        runner.find_allreduce, [], d2l.cluster(["cpu:0", "cpu:1", "cpu:2"]), d2l.Settings(allreduce="auto")
    )
    assert find(saved, print)[0].algorithm == "mpi" and chosen["asked"] == 0
    settings, wiring = find(saved | change, print)
    assert settings.algorithm.__name__ == "invented" and wiring == WIRING and chosen["asked"] == 1


def test_elsewhere_it_is_refused():
    arrays = [d2l.put([1.0], d2l.cpu(i)) for i in range(2)]
    for wrong in (
        lambda: d2l.allreduce(arrays, "auto"),
        lambda: measure_scaling([arrays[0].device], (1,), algorithm="auto"),
    ):
        with pytest.raises(ValueError, match="allreduce 'auto' works only in train; give a name"):
            wrong()


@pytest.mark.parametrize("overlap, flat", [(True, True), (False, False)])
def test_gradients_of_all_sizes_are_summed_by_it(small, chosen, overlap, flat):
    """In buckets, and one by one; the sums of three devices differ from the ring's by rounding alone."""
    devices = [d2l.cpu(i) for i in range(3)]
    how = {"num_epochs": 1, "init": "he", "overlap": overlap, "flat": flat}
    invented, _ = quick(devices, small, allreduce="auto", **how)
    ring, _ = quick(devices, small, allreduce="ring", **how)
    assert invented.train_loss[-1] == pytest.approx(ring.train_loss[-1], rel=1e-3)


@pytest.mark.parametrize("more", [{"split": "zero1"}, {"split": "layers"}])
def test_where_it_cannot_be(small, more):
    with pytest.raises(ValueError, match="allreduce is 'auto'; with this split it is one of naive"):
        quick([d2l.cpu(0), d2l.cpu(1)], small, allreduce="auto", **more)


def test_the_fastest_that_was_measured_is_taken(monkeypatch):
    cluster = d2l.cluster(["cpu:0", "cpu:1", "cpu:2"])

    def measured(devices, algorithms, sizes):
        assert sizes == [4 * 1000]
        for seconds, algorithm in enumerate(reversed(algorithms), 1):
            yield types.SimpleNamespace(algorithm=algorithm, seconds=seconds)

    module = __import__("sys").modules["d2lmgpu.cluster.choose"]
    monkeypatch.setattr(module, "measure_allreduce", lambda *what: reversed([*measured(*what)]))
    monkeypatch.setattr(module, "wiring_of", lambda *what: WIRING)
    name, seconds, wiring = choose(cluster, 1000)
    assert name == "invented" and wiring == WIRING and len(seconds) == 4
    k, network = 3, read_wires(WIRING)
    tried = [simulate(ALGORITHMS[each](k, 1000), network).seconds for each in seconds if each != "invented"]
    rest = [each for each in ALGORITHMS if each not in ("none", *seconds)]
    assert max(tried) <= min(simulate(ALGORITHMS[each](k, 1000), network).seconds for each in rest)
    arrays = [d2l.put([float(i + 1)] * 5, device) for i, device in enumerate(cluster.mine)]
    d2l.allreduce(arrays, on_wiring(name, wiring))
    assert [d2l.to_host(array).tolist() for array in arrays] == [[6.0] * 5] * 3


def test_a_slow_host_is_in_the_wiring():
    wires = Wires(
        0.0, {"process": 1e-6, "host": 1e-5, "hosts": 1e-4}, {"process": 1e-10, "host": 1e-9, "hosts": 1e-8}, 0.0
    )
    wires.hosts = [1e-8, 1e-7]
    cluster = types.SimpleNamespace(hosts=["a", "a", "b"], size=3, owners=(0, 0, 1, 2))
    network = read_wires(wiring_of(cluster, wires))
    by_name = dict(zip(network.links, network.bandwidth.tolist(), strict=True))
    assert network.k == 4 and network.direct.sum() == 12
    assert by_name["host 1 to network"] == pytest.approx(1e7) and by_name["network to host 0"] == pytest.approx(1e8)
    assert by_name["process 2 to host 1"] == pytest.approx(1e9) and by_name["0 to process 0"] == pytest.approx(1e10)
    assert network.latency(0, 3) == pytest.approx(1e-4)


def test_wires_of_one_process_are_measured():
    wires = measure_wires(d2l.cluster(["cpu:0", "cpu:1"]), sizes=(2**10, 2**14))
    assert list(wires.latency) == ["process"] and wires.hosts == []


def test_all_processes_take_the_same(tmp_path):
    file = tmp_path / "history.json"
    words = "-m d2lmgpu train --environment parallel --devices 2 --allreduce auto --epochs 1 --limit 300 --json"
    done = mpiexec(2, *words.split(), file)
    assert done.returncode == 0, done.stderr
    assert (done.stdout + done.stderr).count("is the fastest here") == 1
    history = json.loads(file.read_text())
    assert read_wires(history["wiring"]).k == 4
    assert history["allreduce"] in {*ALGORITHMS, "invented", "mpi"}
