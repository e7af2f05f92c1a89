"""The commands that train with a split, and that plan one."""

import json

import pytest
from conftest import long
from one_device import SMOOTH
from training_runs import random_data

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.cli.options import as_splits
from d2lmgpu.collectives.network import topology
from d2lmgpu.networks import known_network
from d2lmgpu.plans import PLANS, copies_of, estimate_costs, prove, simulate


def test_a_sweep_over_splits():
    data = random_data(SMOOTH, 90, 11)
    assert as_splits("zero3,data=2,layers=1, data") == ["zero3", "data=2,layers=1", "data"]
    assert as_splits("data=2,layers=1,layers=2,data=1") == ["data=2,layers=1", "layers=2,data=1"]
    settings = {"devices": 2, "batch_size": 60, "num_epochs": 1, "init": "he", "lr": 0.05, "network": SMOOTH}
    trials = d2l.grid(split=["zero3", "data=2,layers=1"], **settings)
    rows = d2l.sweep(trials, mode="sequential", data=data, progress=False)
    assert [row["status"] for row in rows] == ["done", "done"]
    assert rows[0]["history"]["train_loss"] == pytest.approx(rows[1]["history"]["train_loss"], rel=1e-5)
    with pytest.raises(ValueError, match="trial 1: .*unknown"):
        d2l.sweep(d2l.grid(split="x"), mode="sequential", data=data)


QUICK = ["train", "--environment", "cpu", "--limit", "90", "--epochs", "1", "--init", "he", "--lr", "0.02"]


def test_the_command_trains(tmp_path, capsys):
    file = tmp_path / "run.json"
    words = "--devices 2 --batch-size 30 --split layers --pipeline zero-bubble --micro-batches 3 --width 0.5 --json"
    plot = tmp_path / "run.svg"
    assert cli.main([*QUICK, *words.split(), str(file), "--plot", str(plot)]) == 0
    assert "split layers, he weights" in plot.read_text(encoding="utf-8")
    found = json.loads(file.read_text(encoding="utf-8"))
    plan = PLANS["zero-bubble"](2, 3, known_network("lenet", width=0.5))
    assert found["peak_memory"] == prove(plan, 30).peak and found["width"] == 0.5
    assert (found["split"], found["pipeline"], found["micro_batches"]) == ("layers", "zero-bubble", 3)
    peaks = ", ".join(f"{nbytes / 1e6:.1f}" for nbytes in found["peak_memory"])
    assert f"split layers: devices hold at most {peaks} MB\n" in capsys.readouterr().out


@pytest.mark.parametrize("network", ["lenet"])
def test_the_command_that_plans(tmp_path, capsys, network):
    json_file, plot = tmp_path / "plan.json", tmp_path / "plan.png"
    words = f"plan --split data=2,layers=2 --micro-batches 4 --on pcie_bus --batch-size 200 --network {network}"
    assert cli.main([*words.split(), "--speed", "1e11", "--json", str(json_file), "--plot", str(plot)]) == 0
    plan = copies_of("1f1b", 2, 2, 4, known_network(network))
    proof, costs = prove(plan, 200), estimate_costs(plan, 200, 1e11)
    expected = simulate(plan, topology("pcie_bus", 4), costs, 200)
    found = json.loads(json_file.read_text(encoding="utf-8"))
    assert found["seconds"] == pytest.approx(expected.seconds) and found["bubble"] == pytest.approx(expected.bubble)
    assert (found["bytes"], found["peak_memory"], found["proved"]) == (sum(proof.sent), proof.peak, True)
    out = capsys.readouterr().out
    assert f"{1000 * expected.seconds:.4g} ms a step, bubble {expected.bubble:.1%}" in out
    assert len(out.splitlines()) == 4 + 4 and plot.read_bytes().startswith(b"\x89PNG")


def test_a_network_in_a_file(tmp_path, capsys):
    file = tmp_path / "own.py"
    file.write_text(
        "from d2lmgpu.networks import Dense, Flatten, sequential\n"
        "def network(input_shape, classes):\n"
        "    return sequential(input_shape, Flatten(), Dense(5), Dense(classes))\n"
    )
    assert cli.main(["plan", "--split", "layers", "--devices", "2", "--network", str(file)]) == 0
    assert "layers: custom" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        ("--split rows", "split 'rows' is unknown"),
        ("--split layers --devices 9", "9 stages for a network with 4 layers"),
        ("--split data=2,zero3=2", "'zero3' is unknown"),
        ("--split zero3 --allreduce tree", "its own collectives"),
        ("--split data --pipeline gpipe", "is for a split over layers"),
        ("--devices 0", "k, the number of devices, is 0"),
        *long(("--split channels --devices 4000 --width 100", "k, the number of devices, is 4000")),
        ("--split data=500,channels=3 --devices 1500", "the number of devices, is 1500"),
        ("--on moon", "network 'moon' is unknown; choose from full_switch"),
        ("--on nvlink_mesh --devices 9", "network nvlink_mesh has 8 devices, not 9"),
        ("--batch-statistics aggregated", "which cannot be combined with a split"),
        ("--network lenet-bn --split zero3 --batch-statistics aggregated", "which cannot be combined with a split"),
        (
            "--network lenet-bn --batch-statistics synchronised",
            "'synchronised' is unknown; choose from local",
        ),
        ("--network nowhere.py", "no such file"),
        ("--speed 0", "speed is 0.0"),
        ("--batch-size 0", "batch_size is 0"),
        ("--optimizer sdg", "optimizer 'sdg' is unknown"),
        ("--width 0.01", "at least 0.05"),
        ("--plot plan.txt", "should end in"),
        ("--json same --html same", "same"),
    ],
)
def test_bad_input_to_the_command_that_plans(capsys, arguments, message):
    assert cli.main(["plan", *arguments.split()]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("d2lmgpu plan: error: ") and err.count("\n") == 1 and message in err
