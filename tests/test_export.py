"""Arrays for other frameworks: in the names and shapes of a `torch.nn.Sequential` of the same layers."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
import references
from safetensors.numpy import load_file
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu.data.minibatches import first_examples
from d2lmgpu.networks import Dense, Flatten, Layer, sequential

ROOT = Path(__file__).resolve().parents[1]


def lenet_bn(x, state):
    """As PyTorch's layers are described: a `Linear` of the flattened (C, H, W) is x · weightᵀ + bias."""
    for first, size in ((0, 2), (4, 2)):
        x = references.conv2d(x, state[f"{first}.weight"], state[f"{first}.bias"])
        mean, variance, weight, bias = (
            state[f"{first + 1}.{name}"][:, None, None] for name in ("running_mean", "running_var", "weight", "bias")
        )
        x = (x - mean) / np.sqrt(variance + 1e-5) * weight + bias
        x = references.avg_pool2d(np.maximum(x, 0), size)
    x = x.reshape(len(x), -1) @ state["9.weight"].T + state["9.bias"]
    return np.maximum(x, 0) @ state["11.weight"].T + state["11.bias"]


def test_a_model_elsewhere(small, tmp_path):
    result = quick(2, first_examples(small, 200), num_epochs=2, init="he", network="lenet-bn", lr=0.1)
    for ending, load in ((".npz", np.load), (".safetensors", load_file)):
        result.model.export(tmp_path / f"lenet{ending}")
        state = {name: array.astype(float) for name, array in dict(load(tmp_path / f"lenet{ending}")).items()}
        shapes = {name: array.shape for name, array in state.items()}
        assert shapes["9.weight"] == (128, 800) and shapes["4.weight"] == (50, 20, 5, 5) and len(state) == 16
        images = small[2][:5]
        outputs = np.exp(lenet_bn(images.astype(float) / 255, state))
        expected = outputs / outputs.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(result.model.predict(images), expected, rtol=1e-4, atol=1e-6)


def test_what_cannot_be_exported(tmp_path, monkeypatch):
    model = d2l.Model(d2l.networks.LENET, d2l.init_params())
    for path, message in ((tmp_path / "a.pt", "should end with .npz or .safetensors"), (3, "the name of a file")):
        with pytest.raises(ValueError, match=message):
            model.export(path)
    own = sequential((1, 2, 2), Flatten(), lambda shape: Layer(lambda x, scale: (x, None), None, ((3,),)), Dense(2))
    with pytest.raises(ValueError, match="layer 1 has 1 parameters"):
        d2l.Model(own, []).export(tmp_path / "a.npz")
    monkeypatch.setitem(__import__("sys").modules, "safetensors.numpy", None)
    with pytest.raises(ValueError, match=r"pip install -e '.\[export\]'"):
        model.export(tmp_path / "a.safetensors")
    assert not [*tmp_path.iterdir()]


def test_the_page_shows_what_the_script_runs():
    script = (ROOT / "benchmarks" / "load_in_pytorch.py").read_text(encoding="utf-8")
    functions = {
        node.name: ast.get_source_segment(script, node) for node in ast.parse(script).body if hasattr(node, "name")
    }
    shown = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8"), re.DOTALL)
    assert functions["into_pytorch"] in shown[0] and functions["from_pytorch"] in shown[1]
