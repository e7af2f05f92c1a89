"""The benchmarks of GPUs, on the stand-in: whoever rents two cards for an hour should not meet our mistakes there."""

import importlib
import json
import sys

import pytest
from gpus import TINY_NETWORK, machine  # noqa: F401

KERNELS = "conv_forward conv_weight_grad_strips conv_weight_grad_sum dense_forward dense_input_grad gather head sgd"
KERNELS = [*KERNELS.split(), "dense_weight_grad", "dense_weight_grad", "softmax_cross_entropy_sum"]
"""Of a step of `TINY_NETWORK`."""

pytestmark = pytest.mark.threads


@pytest.mark.long
@pytest.mark.parametrize("cards", [1, 2])
def test_each_kernel_of_a_step(machine, tmp_path, monkeypatch, cards):  # noqa: F811
    """On two cards each has half of the images, and only the kernels of an allreduce more."""
    machine()
    module = importlib.reload(importlib.import_module("measure_gpu"))  # it notes the launches of kernels
    for constant, value in {"REPEATS": 2, "ROUNDS": 2, "WARM_UP": 1, "IMAGES": 200}.items():
        monkeypatch.setattr(module, constant, value)
    monkeypatch.setitem(module.NETWORKS, "tiny", TINY_NETWORK)
    run, file = sys.modules["d2lmgpu.kernels.cuda.launch"], tmp_path / "measured.json"
    monkeypatch.setattr(run, "_module", run._module)  # the script leaves another there
    assert module.main(["--network", "tiny", "--batch", "8", "--cards", str(cards), "--json", str(file)]) == 0
    (step,) = json.loads(file.read_text())["steps"]
    assert (step["network"], step["batch"], step["cards"]) == ("tiny", 8, cards)
    names = [sorted(row["name"] for row in step["kernels"] if row["card"] == card) for card in range(cards)]
    assert names == [sorted(KERNELS + ["add"] * (cards > 1))] * cards
    for found in (step["step"]["1"], step["step"]["8"], step["empty_kernel"]):
        assert 0 < found["min"] <= found["median"] <= found["max"]
