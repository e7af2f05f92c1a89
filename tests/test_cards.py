"""The cards of a machine: who uses which, what tells them apart, and what is said of one that CUDA refuses.

To use a card makes a *context* there, some half a gigabyte of its memory; a card in exclusive mode permits only one.
"""

import sys

import numpy as np
import pytest
from test_cuda_program import TINY_NETWORK
from test_gpu_rules import machine, small_data  # noqa: F401

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.cluster.launch import share_cards
from d2lmgpu.cluster.staging import endpoint
from d2lmgpu.devices.discovery import identities_of_cards

pytestmark = pytest.mark.threads

TRAIN = {"batch_size": 4, "num_epochs": 1, "network": TINY_NETWORK, "progress": False}


@pytest.mark.parametrize("card", [0, 1, 2])
@pytest.mark.parametrize("graphs", [True, False])
def test_only_the_cards_in_use_have_a_context(machine, rng, card, graphs):  # noqa: F811
    """Pinned memory, clocks and events included, of whatever thread."""
    made = machine(3)
    d2l.train([d2l.gpu(card)], data=small_data(rng), graphs=graphs, **TRAIN)
    assert made.contexts == {card}


def test_pinned_memory_is_of_its_devices_card(machine):  # noqa: F811
    """Whichever thread takes it: the program's, or that which sends and receives."""
    made, gpu = machine(2), d2l.gpu(1)
    for number, staging in enumerate([endpoint(gpu), endpoint(gpu.comm_stream)], 1):
        staging.submit(staging.buffer, "messages", 5, np.float32).result()
        staging.buffer("array", 5, np.float32)
        assert made.contexts == {1} and made.calls["hostAlloc"] == 2 * number


def test_to_look_at_a_machine_makes_no_context(machine, capsys):  # noqa: F811
    made = machine(2)
    assert cli.main(["devices"]) == 0 and "gpu(1)" in capsys.readouterr().out
    identities_of_cards()
    assert made.contexts == set()


# What tells cards apart.


def cards_with(monkeypatch, uuids, places):
    """Let CuPy tell these UUIDs and places on the bus; returns `identities_of_cards`."""
    runtime = sys.modules["cupy"].cuda.runtime
    monkeypatch.setattr(runtime, "getDeviceProperties", lambda card: {"uuid": uuids[card]})
    monkeypatch.setattr(runtime, "deviceGetPCIBusId", lambda card: places[card])
    return identities_of_cards()


def test_two_slices_of_a_card_are_two(machine, monkeypatch):  # noqa: F811
    """They have one place on the bus; each process sees one of them."""
    machine(1)
    one, other = (cards_with(monkeypatch, [uuid * 4], ["0000:04:00.0"]) for uuid in (b"MIG1", b"MIG2"))
    assert share_cards([one, other, one], 1) == [[0], [0], []]


def test_containers_of_one_machine_with_two_names(machine, monkeypatch):  # noqa: F811
    machine(1)
    seen = []
    for name in ("one", "other"):
        monkeypatch.setattr("socket.gethostname", lambda name=name: name)
        seen.append(cards_with(monkeypatch, [b"GPU1" * 4], ["0000:04:00.0"]))
    assert share_cards(seen, 1) == [[0], []]


def test_a_uuid_that_ends_at_once(machine, monkeypatch):  # noqa: F811
    """CuPy gives what is before its first zero byte."""
    machine(2)
    seen = []
    for name in ("one", "other"):
        monkeypatch.setattr("socket.gethostname", lambda name=name: name)
        seen.append(cards_with(monkeypatch, [b"", b"G"], ["0000:04:00.0", "0000:05:00.0"]))
    assert share_cards([*seen, seen[0]], 2) == [[0, 1], [0, 1], []]


# Cards that CUDA refuses.

TAKEN, FULL, ECC = "cudaErrorDevicesUnavailable", "cudaErrorMemoryAllocation", "cudaErrorECCUncorrectable"


@pytest.mark.parametrize("error", [TAKEN, FULL, ECC])
@pytest.mark.parametrize("bad", [0, 1])
def test_one_card_is_refused(machine, rng, capsys, bad, error):  # noqa: F811
    """Whoever asks for it is told in a line; the other is as good as ever."""
    made = machine(2, refuses={bad: error})
    with pytest.raises(d2l.DeviceError, match=rf"gpu.{bad}. cannot be used: {error}: .*; use another device"):
        d2l.gpu(bad)
    assert cli.main(["train", "--devices", "2", "--epochs", "1", "--limit", "20"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith(f"d2lmgpu train: error: gpu({bad}) cannot be used: {error}: ")
    assert not any(line.startswith("Traceback") for line in said)
    d2l.train([d2l.gpu(1 - bad)], data=small_data(rng), **TRAIN)
    assert made.contexts == {1 - bad}


@pytest.mark.parametrize("error", [TAKEN, FULL, ECC])
def test_the_table_tells_of_all_cards(machine, capsys, error):  # noqa: F811
    """CUDA says nothing about a card that is taken or full until somebody uses it; of a broken one it says so."""
    machine(2, refuses={0: error})
    assert cli.main(["devices"]) == 0
    row, other = (line for line in capsys.readouterr().out.splitlines() if line.startswith("gpu"))
    assert "Stand-in" in other
    if error == ECC:
        assert row.split()[1:4] == ["?", "?", "?"] and row.endswith(
            f"cannot be used: {ECC}: uncorrectable ECC error encountered"
        )
    else:
        assert "Stand-in" in row


def test_free_memory_and_use_are_what_nvidias_tool_says(machine, tmp_path, monkeypatch):  # noqa: F811
    """Which writes places on the bus with eight digits before the first colon, and asks no card for a context."""
    made = machine(3)
    tool = tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path))

    def told():
        return [(row.memory_free, row.busy) for row in d2l.device_table() if row.kind == "gpu"]

    assert told() == [(None, None)] * 3
    lines = r"00000000:05:00.0, 1024, 37\n00000000:04:00.0, [N/A], [N/A]\nnonsense\n"
    tool.write_text(f"#!/bin/sh\n[ \"$1\" = --query-gpu=pci.bus_id,memory.free,utilization.gpu ] && printf '{lines}'\n")
    tool.chmod(0o755)
    assert told() == [(None, None), (2**30, 37), (None, None)]
    right = sys.modules["cupy"].cuda.runtime.getDeviceProperties
    sliced = lambda card: right(card) | {"name": b"NVIDIA A100-SXM4-40GB MIG 1g.5gb"}  # noqa: E731
    monkeypatch.setattr(sys.modules["cupy"].cuda.runtime, "getDeviceProperties", sliced)
    assert told() == [(None, None)] * 3  # it knows only the whole card
    assert made.contexts == set()
