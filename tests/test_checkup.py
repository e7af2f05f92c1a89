"""``d2lmgpu devices --check``: on a good machine all works; of what is broken it says so, and of nothing else.

A check tries every kernel, so that most of these tests are long: to compile them all for the CPU takes some seconds.
"""

import json
import sys
import threading
import time

import numpy as np
import pytest
from standin_nccl import install_nccl
from test_cuda_program import TINY_NETWORK
from test_gpu_rules import assert_as, machine, small_data, train  # noqa: F401

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.devices import find_gpus
from d2lmgpu.devices.probes import forget_probes, probe

SINGLE = {
    "a stream of its own",
    "the kernels",
    "kernels with precision mixed",
    "a CUDA graph",
}
PAIR = {"peer access", "adding across", "a sum over both"}
VIRTUAL = {("cpu", "BLAS on one thread"), ("cpu(0)", "the kernels"), ("cpu(0) and cpu(1)", "a sum over both")}
BOTH = "gpu(0) and gpu(1)"
NCCL, SPAN = ("gpu(0), gpu(1)", "NCCL"), ("gpu(0), gpu(1)", "a CUDA graph over them")
ACROSS = {(BOTH, "adding across"), SPAN}
"""What is tried only where cards have access to each other; the second only where the first works, too."""


def rows_of(*parts):
    """{(device, tried)} of what is tried on each device."""
    return {(device, tried) for device, all_tried in parts for tried in all_tried}


GOOD = rows_of(("gpu(0)", SINGLE), ("gpu(1)", SINGLE), (BOTH, PAIR)) | {NCCL, SPAN} | VIRTUAL


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
            assert list(row) == ["device", "tried", "works", "why", "seconds"]
            assert row["works"] == (row["why"] is None) and 0 <= row["seconds"] < 600
            assert line.startswith(row["device"]) and f" {row['tried']} " in line
            assert line.endswith("  yes" if row["works"] else f"  no: {row['why']}")
        cards, reason = find_gpus()
        assert lines[1 + len(rows) :] == ([] if cards else [f"no GPU: {reason}."])
        assert code == (0 if all(row["works"] for row in rows) else 1)
        found = {(row["device"], row["tried"]): row["why"] for row in rows}
        assert len(found) == len(rows)
        return found

    return check


@pytest.fixture
def nccl(monkeypatch):
    return install_nccl(monkeypatch)


def failures(found):
    return {row for row, why in found.items() if why is not None}


@pytest.mark.parametrize("reason", ["no driver", "no CuPy"])
def test_without_a_gpu(machine, check, monkeypatch, reason):  # noqa: F811
    made = machine(0)
    if reason == "no driver":
        made.broken.add("getDeviceCount")
    else:
        monkeypatch.setitem(sys.modules, "cupy", None)
    assert check() == dict.fromkeys(VIRTUAL)


@pytest.mark.long
def test_a_good_machine(machine, nccl, check):  # noqa: F811
    machine(2)
    found = check()
    assert found == dict.fromkeys(GOOD)
    assert len(nccl) == 4  # two sums of two devices


MIXED = "kernels with precision mixed"
KERNELS = {"the kernels", MIXED}
STAGED = {"peer access", "copies through the host", "a sum over both"}  # what is tried then
EACH_GRAPH = rows_of(("gpu(0)", {"a CUDA graph"}), ("gpu(1)", {"a CUDA graph"}))
BROKEN = {  # what does not work: the call to CUDA, what the table says does not, and of what it cannot speak
    "to begin a graph": ("streamBeginCapture", EACH_GRAPH | {SPAN}),
    "to make a graph": ("graphInstantiate", EACH_GRAPH | {SPAN}),
    "to make a graph of two cards": ("graphInstantiate over cards", {SPAN}),
    "to launch a graph": ("graphLaunch", EACH_GRAPH | {SPAN}),
    "to load kernels": (
        "moduleLoad",
        rows_of(*((f"gpu({i})", KERNELS | {"a CUDA graph"}) for i in range(2)), (BOTH, {"adding across"})),
    ),
    "to enable peer access": ("deviceEnablePeerAccess", rows_of((BOTH, {"peer access"}))),
    "to sum with NCCL": ("ncclAllReduce", {NCCL}),
}


@pytest.mark.long
@pytest.mark.parametrize("what", BROKEN)
def test_a_call_that_does_not_work(machine, nccl, check, what):  # noqa: F811
    call, expected = BROKEN[what]
    made = machine(2, broken=[call])
    found = check()
    assert failures(found) == expected and found.keys() >= GOOD - ACROSS
    unknown = "CUDARuntimeError: cudaErrorUnknown: unknown error"
    nccl = "DeviceError: allreduce 'nccl': NCCL_ERROR_UNHANDLED_CUDA_ERROR: unhandled cuda error; NCCL_DEBUG=WARN says"
    why = {"ncclAllReduce": f"{nccl} more, and 'ring' needs no NCCL"}.get(call, unknown)
    assert {found[row] for row in expected} == {why}
    made.broken.clear()
    assert check() == dict.fromkeys(GOOD)  # all is tried again


@pytest.mark.long
@pytest.mark.parametrize("peers", ["none", "one way"])
def test_cards_that_do_not_reach_each_other(machine, nccl, check, peers):  # noqa: F811
    made = machine(2, peers=[])
    if peers == "one way":
        made.peers.add((0, 1))
    found = check()
    assert failures(found) == rows_of((BOTH, {"peer access"})) and made.staged and not made.enabled
    assert found.keys() == (GOOD - ACROSS) | rows_of((BOTH, {"copies through the host"}))
    assert found[BOTH, "peer access"] == "DeviceError: CUDA says that they cannot reach each other's memory"


@pytest.mark.long
def test_three_cards_of_which_two_reach_each_other(machine, check):  # noqa: F811
    machine(3, peers=[(0, 2)])
    found = check()
    both = "gpu({}) and gpu({})".format
    assert failures(found) == {
        (both(0, 1), "peer access"),
        (both(1, 2), "peer access"),
        ("gpu(0), gpu(1), gpu(2)", "NCCL"),
    }
    assert {tried for device, tried in found if device == both(0, 2)} == PAIR
    assert {row for row in found if row[1] == SPAN[1]} == {("gpu(0), gpu(2)", SPAN[1])}


@pytest.mark.long
def test_copies_between_cards_that_arrive_changed(machine, nccl, check, rng, capsys):  # noqa: F811
    """As where a virtual machine's host forbids what CUDA permits. Copies then go another way, and arrive."""
    made = machine(2, garbled=["copies"])
    found = check()
    assert failures(found) == rows_of((BOTH, {"peer access"})) and made.staged and not made.enabled
    assert found[BOTH, "peer access"] == "RuntimeError: a copy of 16396 bytes from card 0 to card 1 arrives changed"
    forget_probes()
    assert_trains(rng)
    assert f"note: {BOTH}: peer access: does not work here (" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize("card", [0, 1])
def test_kernels_that_read_something_else_on_another_card(machine, nccl, check, rng, capsys, card):  # noqa: F811
    """Of both directions one may be wrong."""
    machine(2, garbled=[f"kernels on {card}"])
    found = check()
    assert failures(found) == rows_of((BOTH, {"adding across"})) and found.keys() == GOOD - {SPAN}
    why = f"RuntimeError: a kernel on gpu({card}) adds other numbers than those on gpu({1 - card})"
    assert found[BOTH, "adding across"] == why
    forget_probes()
    assert_trains(rng)
    note = f"note: {BOTH}: adding across: does not work here ({why}); messages are copied before they are added"
    assert note in capsys.readouterr().err.splitlines()


@pytest.mark.long
def test_a_graph_that_forgets_the_other_card(machine, nccl, check, rng, capsys):  # noqa: F811
    machine(2, garbled=["graphs"])
    found = check()
    assert failures(found) == {SPAN} and found.keys() == GOOD
    assert found[SPAN] == "RuntimeError: launched 3 times it gives 3.0 to 3.0 instead of 26"
    forget_probes()
    assert_trains(rng)
    note = (
        f"note: {SPAN[0]}: {SPAN[1]}: does not work here ({found[SPAN]}); steps on them are launched kernel by kernel"
    )
    assert note in capsys.readouterr().err.splitlines()


def assert_trains(rng):
    data = small_data(rng)
    settings = {"batch_size": 4, "lr": 0.05, "num_epochs": 2, "init": "he", "network": TINY_NETWORK}
    assert_as(train(data), d2l.train([d2l.cpu(0)], data=data, progress=False, **settings))


@pytest.mark.long
def test_cards_that_cannot_exchange_anything(machine, check):  # noqa: F811
    """Each by itself is as good as ever, in the check and afterwards."""
    machine(2, broken=["memcpyAsync device to device", "memcpyAsync through the host"])
    found = check()
    assert failures(found) == rows_of((BOTH, STAGED)) | {NCCL}
    error = "CUDARuntimeError: cudaErrorUnknown: unknown error"
    assert found[BOTH, "peer access"] == found[BOTH, "copies through the host"] == error
    assert found[BOTH, "a sum over both"].startswith(f"DeviceError: {BOTH} cannot exchange data")
    for one, other in ((0, 1), (1, 0)):
        machine(2, broken=["memcpyAsync device to device", "memcpyAsync through the host"])
        d2l.gpu(one)
        for _ in range(2):
            with pytest.raises(d2l.DeviceError, match="gpu.0. and gpu.1. cannot exchange data"):
                d2l.gpu(other)
        np.testing.assert_array_equal(d2l.to_host(d2l.put([1.0, 2.0], d2l.gpu(one))), [1, 2])


@pytest.mark.long
def test_without_nccl(machine, check):  # noqa: F811
    machine(2)
    found = check()
    assert failures(found) == {NCCL} and found.keys() == GOOD
    assert found[NCCL].startswith(
        "DeviceError: allreduce 'nccl': CuPy finds no NCCL here: pip install nvidia-nccl-cu13,"
    )


def test_a_trial_may_wait_for_another():
    """As where it waits for a device that first has to try something for somebody else."""
    forget_probes()
    other = threading.Thread(target=lambda: probe("other", "something", "", lambda: None), daemon=True)

    def attempt():
        other.start()
        other.join(20)
        assert not other.is_alive(), "it waits for this trial's end"

    assert probe("one", "something", "", attempt)
    forget_probes()


def test_what_several_threads_ask_at_once_is_tried_once():
    forget_probes()
    asking, tries, answers = threading.Barrier(3), [], []

    def attempt():
        tries.append(1)
        time.sleep(0.05)  # the others are asking by then

    def ask():
        asking.wait()
        answers.append(probe("one", "something", "", attempt))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tries == [1] and answers == [True] * 3
    forget_probes()
