"""The cards of a machine: who uses which, what tells them apart, and what is said of one that CUDA refuses.

To use a card makes a *context* there, some half a gigabyte of its memory; a card in exclusive mode permits only one.
"""

import sys

import numpy as np
import pytest
from conftest import long
from gpus import gpus, machine, small_data, train  # noqa: F401

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.cluster.launch import share_cards
from d2lmgpu.cluster.staging import endpoint
from d2lmgpu.devices.discovery import identities_of_cards

pytestmark = pytest.mark.threads


@pytest.mark.parametrize("card, graphs", [(2, True), *long((0, True), (1, False))])
def test_only_the_cards_in_use_have_a_context(machine, rng, card, graphs):  # noqa: F811
    """Pinned memory, clocks and events included, of whatever thread."""
    made = machine(3)
    train([d2l.gpu(card)], small_data(rng), graphs=graphs, num_epochs=1)
    assert made.contexts == {card}


def test_pinned_memory_is_of_its_devices_card(machine):  # noqa: F811
    """Whichever thread takes it: the program's, or that which sends and receives."""
    made, gpu = machine(2), d2l.gpu(1)
    for number, staging in enumerate([endpoint(gpu), endpoint(gpu.comm_stream)], 1):
        staging.submit(staging.buffer, "messages", 5, np.float32).result()
        staging.buffer("array", 5, np.float32)
        assert made.contexts == {1} and made.calls["hostAlloc"] == 2 * number


@pytest.mark.parametrize(
    "present, count, shares",
    [
        ([["X", "Y"], ["X", "Y"]], 1, [[0], [1]]),
        ([["X"], ["Y"]], 1, [[0], [0]]),  # a batch system has divided them
        ([["X", "Y"], ["V", "W"]], 2, [[0, 1], [0, 1]]),
        ([["X", "Y", "Z"], ["X", "Y", "Z"]], 2, [[0, 1], [2]]),
        ([["X"], [], ["X"]], 1, [[0], [], []]),
    ],
)
def test_each_process_takes_cards_of_its_own(present, count, shares):
    assert share_cards(present, count) == shares


@pytest.mark.parametrize(
    "hosts, uuids, count, shares",
    [
        # two slices of a card have one place on the bus, and each process sees one of them
        (["one"] * 3, [[b"MIG1" * 4], [b"MIG2" * 4], [b"MIG1" * 4]], 1, [[0], [0], []]),
        # containers of one machine have two names
        (["one", "other"], [[b"GPU1" * 4]] * 2, 1, [[0], []]),
        # of a UUID CuPy gives what is before its first zero byte
        (["one", "other", "one"], [[b"", b"G"]] * 3, 2, [[0, 1], [0, 1], []]),
    ],
)
def test_what_tells_cards_apart(machine, monkeypatch, hosts, uuids, count, shares):  # noqa: F811
    machine(count)
    runtime, seen = sys.modules["cupy"].cuda.runtime, []
    for host, own in zip(hosts, uuids, strict=True):
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        monkeypatch.setattr(runtime, "getDeviceProperties", lambda card, own=own: {"uuid": own[card]})
        seen.append(identities_of_cards())
    assert share_cards(seen, count) == shares


# Cards that CUDA refuses.

ECC = "cudaErrorECCUncorrectable"


@pytest.mark.parametrize("error", ["cudaErrorDevicesUnavailable", "cudaErrorMemoryAllocation", ECC])
@pytest.mark.parametrize("bad", [0, 1])
def test_one_card_is_refused(machine, capsys, bad, error):  # noqa: F811
    """Whoever asks for it is told in a line; the other is as good as ever."""
    made = machine(2, refuses={bad: error})
    with pytest.raises(d2l.DeviceError, match=rf"gpu.{bad}. cannot be used: {error}: .*; use another device"):
        d2l.gpu(bad)
    assert cli.main(["train", "--devices", "2", "--epochs", "1", "--limit", "20"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith(f"d2lmgpu train: error: gpu({bad}) cannot be used: {error}: ")
    assert not any(line.startswith("Traceback") for line in said)
    assert d2l.to_host(d2l.put(np.ones(3), d2l.gpu(1 - bad))).sum() == 3 and made.contexts == {1 - bad}


@pytest.mark.parametrize("error", ["cudaErrorMemoryAllocation", ECC])
def test_the_table_tells_of_all_cards(machine, capsys, error):  # noqa: F811
    """Without a context. Of a card that is full CUDA says nothing until somebody uses it; of a broken one it does."""
    made = machine(2, refuses={0: error})
    assert cli.main(["devices"]) == 0
    row, other = (line for line in capsys.readouterr().out.splitlines() if line.startswith("gpu"))
    assert "Stand-in" in other and ("Stand-in" in row) == (error != ECC)
    if error == ECC:
        assert row.split()[1:4] == ["?"] * 3 and f"cannot be used: {ECC}: uncorrectable ECC error" in row
    assert made.contexts == set()


def test_free_memory_and_use_are_what_nvidias_tool_says(machine, tmp_path, monkeypatch):  # noqa: F811
    """Which writes places on the bus with eight digits before the first colon, and asks no card for a context."""
    made, tool = machine(3), tmp_path / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tmp_path))

    def told():
        return [(row.memory_free, row.busy) for row in d2l.device_table() if row.kind == "gpu"]

    assert told() == [(None, None)] * 3
    lines = r"00000000:05:00.0, 1024, 37\n00000000:04:00.0, [N/A], [N/A]\nnonsense\n"
    tool.write_text(f"#!/bin/sh\n[ \"$1\" = --query-gpu=pci.bus_id,memory.free,utilization.gpu ] && printf '{lines}'\n")
    tool.chmod(0o755)
    assert told() == [(None, None), (2**30, 37), (None, None)]
    runtime = sys.modules["cupy"].cuda.runtime
    right, sliced = runtime.getDeviceProperties, {"name": b"NVIDIA A100-SXM4-40GB MIG 1g.5gb"}
    monkeypatch.setattr(runtime, "getDeviceProperties", lambda card: right(card) | sliced)
    assert told() == [(None, None)] * 3  # it knows only the whole card
    assert made.contexts == set()
