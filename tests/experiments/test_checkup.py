"""``d2lmgpu devices --check``: on a good machine all probe; of what is broken it says so, and of nothing else.

And training then goes another way, which a note names, to the same end.
"""

import json

import pytest
import standin_cupy
from conftest import few, forget_gpus
from gpus import alone, assert_as, gpus, train  # noqa: F401
from standin_nccl import install_nccl

from d2lmgpu import cli
from d2lmgpu.devices import find_gpus
from d2lmgpu.devices.probes import forget_probes

KERNELS, GRAPH = {"the kernels", "kernels with precision mixed"}, {"a CUDA graph"}
SINGLE = {"a stream of its own", *KERNELS, *GRAPH}
VIRTUAL = {("cpu(0)", "the kernels"), ("cpu(0) and cpu(1)", "a sum over both")}
BOTH = "gpu(0) and gpu(1)"
NCCL, SPAN = ("gpu(0), gpu(1)", "NCCL"), ("gpu(0), gpu(1)", "a CUDA graph over them")


def on_each(tried):
    """{(device, tried)} of what is tried on each of two cards."""
    return {(f"gpu({i})", each) for i in range(2) for each in tried}


def on_both(*tried):
    return {(BOTH, each) for each in tried}


GOOD = on_each(SINGLE) | on_both("peer access", "adding across", "a sum over both") | {NCCL, SPAN} | VIRTUAL
ACROSS = on_both("adding across") | {SPAN}
"""What is tried only where cards have access to each other; the second only where the first probe, too."""


@pytest.fixture
def machine(monkeypatch):
    """A function that makes a machine of the stand-in; here the library tries the network that it always tries."""

    def make(cards, has_nccl=True, **properties):
        forget_gpus()
        made = standin_cupy.install(monkeypatch, cards, **properties)
        if has_nccl:
            install_nccl(monkeypatch)
        return made

    yield make
    forget_gpus()


@pytest.fixture
def check(tmp_path, capsys):
    """A function that runs the command: all rows {(device, tried): why not}, after looking at everything it tells."""

    def check():
        file = tmp_path / "check.json"
        code = cli.main(["devices", "--check", "--json", str(file)])
        captured = capsys.readouterr()
        rows = json.loads(file.read_text())["trials"]
        lines = captured.out.splitlines()
        assert lines[0].split() == ["device", "tried", "seconds", "works"] and captured.err == ""
        for row, line in zip(rows, lines[1:], strict=False):
            assert row["works"] == (row["why"] is None) and row["seconds"] >= 0
            assert line.startswith(row["device"]) and f" {row['tried']} " in line
            assert line.endswith("  yes" if row["works"] else f"  no: {row['why']}")
        cards, reason = find_gpus()
        assert lines[1 + len(rows) :] == ([] if cards else [f"no GPU: {reason}."])
        assert code == (0 if all(row["works"] for row in rows) else 1)
        return {(row["device"], row["tried"]): row["why"] for row in rows}

    return check


def test_without_a_gpu(machine, check):
    machine(0).broken.add("getDeviceCount")
    assert check() == dict.fromkeys(VIRTUAL)


UNKNOWN = "cudaErrorUnknown: unknown error"
MACHINES = {  # what does not work: the machine, what the table says does not, and why; of what it cannot speak
    "nothing": ({}, set(), None, set()),
    "to begin a graph": ({"broken": ["streamBeginCapture"]}, on_each(GRAPH) | {SPAN}, UNKNOWN, set()),
    "to launch a graph": ({"broken": ["graphLaunch"]}, on_each(GRAPH) | {SPAN}, UNKNOWN, set()),
    "a graph of two cards": ({"broken": ["graphInstantiate over cards"]}, {SPAN}, UNKNOWN, set()),
    "a graph forgets a card": ({"garbled": ["graphs"]}, {SPAN}, "launched 3 times it gives 3.0 to 3.0", set()),
    "to load kernels": (
        *({"broken": ["moduleLoad"]}, on_each(KERNELS | GRAPH) | on_both("adding across"), UNKNOWN, {SPAN}),
    ),
    "peer access": ({"broken": ["deviceEnablePeerAccess"]}, on_both("peer access"), UNKNOWN, ACROSS),
    "no peers": ({"peers": []}, on_both("peer access"), "cannot reach each other's memory", ACROSS),
    "copies": ({"garbled": ["copies"]}, on_both("peer access"), "from card 0 to card 1 arrives changed", ACROSS),
    "adding on 0": ({"garbled": ["kernels on 0"]}, on_both("adding across"), "on gpu(0) adds other numbers", {SPAN}),
    "adding on 1": ({"garbled": ["kernels on 1"]}, on_both("adding across"), "on gpu(1) adds other numbers", {SPAN}),
    "NCCL": ({"broken": ["ncclAllReduce"]}, {NCCL}, "NCCL_ERROR_UNHANDLED_CUDA_ERROR", set()),
    "no NCCL": ({"has_nccl": False}, {NCCL}, "CuPy finds no NCCL here: pip install", set()),
}


@pytest.mark.long
@pytest.mark.parametrize("what", few(MACHINES, "nothing", "copies", parts=4))
def test_what_does_not_work_is_named_and_something_slower_used(machine, check, alone, capsys, what):  # noqa: F811
    properties, failures, why, untried = MACHINES[what]
    made = machine(2, **properties)
    found = check()
    assert {row for row, failed in found.items() if failed is not None} == failures
    assert all(why in found[row] for row in failures)
    staged = on_both("copies through the host") if "peer access" in {tried for _, tried in failures} else set()
    assert found.keys() == (GOOD - untried) | staged and bool(made.staged) == bool(staged)
    forget_probes()
    data, expected = alone
    run = train(gpus(), data)
    assert (run.history.phases["step"] > 0) == (failures <= {NCCL})
    assert_as(run, expected)
    notes = capsys.readouterr().err.splitlines()
    assert all(note.startswith("note: ") for note in notes) and (not notes) == (failures <= {NCCL})
    named = [f"note: {device}: {tried}: does not work here (" for device, tried in failures - {NCCL}]
    assert not named or any(note.startswith(tuple(named)) for note in notes)
    made.broken.clear()
    if "broken" in properties:
        assert check() == dict.fromkeys(GOOD)  # all is tried again


@pytest.mark.long
def test_kernels_that_compute_something_else_are_found(machine, check, monkeypatch):
    machine(1, capability=(6, 1), version=12090)  # too old for mixed precision
    right = standin_cupy.RawModule.get_function
    wrong = {"dense_forward": lambda *args: None}
    monkeypatch.setattr(standin_cupy.RawModule, "get_function", lambda *args: wrong.get(args[1]) or right(*args))
    why = check()["gpu(0)", "the kernels"]
    assert why.startswith("RuntimeError: gradients have a relative error of")


@pytest.mark.long
def test_three_cards_of_which_two_reach_each_other(machine, check):
    machine(3, peers=[(0, 2)])
    found = check()
    failures = {row for row, why in found.items() if why is not None}
    assert failures == {("gpu(0) and gpu(1)", "peer access"), ("gpu(1) and gpu(2)", "peer access")}
    assert ("gpu(0) and gpu(2)", "adding across") in found
    assert {row for row in found if row[1] == SPAN[1]} == {("gpu(0), gpu(2)", SPAN[1])}
