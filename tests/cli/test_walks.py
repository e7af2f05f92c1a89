"""Commands on machines with two cards, good ones and broken ones: each ends well, or says in one line what is wrong.

The machines are the stand-in's, and layers compute as they are written: all that is between the cards is the package's.
"""

import pytest
import standin_cupy
from at_random import nightly
from conftest import forget_gpus, sampled
from standin_nccl import install_nccl

from d2lmgpu import cli
from d2lmgpu.data import fashion_mnist

pytestmark = pytest.mark.threads

FULL, TAKEN = "cudaErrorMemoryAllocation", "cudaErrorDevicesUnavailable"
ECC, NOT_READY = "cudaErrorECCUncorrectable", "cudaErrorSystemNotReady"
MACHINES = {  # by name their properties
    "good": {},
    "no peers": {"peers": []},
    "peers one way": {"peers": [], "one way": (0, 1)},
    "copies garbled": {"garbled": ["copies"]},
    "copies garbled one way": {"garbled": ["copies on 1"]},
    "kernels garbled": {"garbled": ["kernels"]},
    "graphs over cards garbled": {"garbled": ["graphs"]},
    "no graphs over cards": {"broken": ["graphInstantiate over cards"]},
    "no graphs": {"broken": ["streamBeginCapture"]},
    "no NCCL": {"nccl": False},
    "NCCL does not begin": {"broken": ["ncclCommInitAll"]},
    "NCCL fails": {"broken": ["ncclAllReduce"]},
    "nothing gets across": {"broken": ["memcpyAsync device to device", "memcpyAsync through the host"]},
    "card 0 taken": {"refuses": {0: TAKEN}},
    "card 1 full": {"refuses": {1: FULL}},
    "card 0 broken": {"refuses": {0: ECC}},
    "not ready": {"refuses": {0: NOT_READY, 1: NOT_READY}},
    "card 0 too old": {"capability": [(7, 0), (9, 0)]},
}
REFUSED = {"nothing gets across"}
REFUSED |= {name for name, given in MACHINES.items() if {"refuses", "capability"} & given.keys()}
TRAIN = "train --devices 2 --batch-size 8 --epochs 1 --init he"
COMMANDS = {
    "devices": "devices",
    "check": "devices --check",
    "ring": TRAIN,
    "nccl": f"{TRAIN} --allreduce nccl",
    "overlap": f"{TRAIN} --allreduce nccl --overlap --network lenet-bn",
    "allreduce": "allreduce --devices 2 --sizes 4K --algorithms ring,nccl",
    "layers": f"{TRAIN} --split layers --micro-batches 2",
    **{split: f"{TRAIN} --split {split}" for split in ("channels", "zero1", "zero2", "zero3")},
    "data=2,layers=2": f"{TRAIN.replace('2', '4', 1)} --split data=2,layers=2",
}
WITH_NCCL = {"nccl", "overlap", "allreduce"}


@pytest.fixture
def walk(monkeypatch, capsys):
    """A function that gives a command to a machine: the exit code, and what was said on standard error."""
    monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)
    read = fashion_mnist.read_idx
    monkeypatch.setattr(fashion_mnist, "read_idx", lambda *args: read(*args)[:20])

    def walk(name, command):
        properties = dict(MACHINES[name])
        one_way, has_nccl = properties.pop("one way", None), properties.pop("nccl", True)
        forget_gpus()
        made = standin_cupy.install(monkeypatch, 2, **properties)
        if one_way:
            made.peers.add(one_way)
        if has_nccl:
            install_nccl(monkeypatch)
        return cli.main(COMMANDS[command].split()), capsys.readouterr().err.splitlines()

    yield walk
    forget_gpus()


WALKS = [(name, command) for name in MACHINES for command in COMMANDS]
KEPT = ("good", "nccl"), ("card 0 taken", "ring"), ("NCCL fails", "overlap")


@pytest.mark.parametrize("name, command", [*KEPT, *sampled(WALKS, 10), *nightly(*WALKS)])
def test_each_ends_well_or_with_a_line(walk, name, command):
    code, said = walk(name, command)
    errors = [line for line in said if not line.startswith(("note: ", "epoch "))]
    is_fine = name not in REFUSED and (command not in WITH_NCCL or "NCCL" not in name)
    if command in ("devices", "check"):
        assert errors == [] and code in ((0,) if command == "devices" or name == "good" else (0, 1))
    elif is_fine:
        assert (code, errors) == (0, [])
    else:
        assert (
            code == 2 and len(errors) == 1 and errors[0].startswith(f"d2lmgpu {COMMANDS[command].split()[0]}: error: ")
        )
