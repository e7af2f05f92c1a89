"""Arrays for other frameworks: in the names and shapes of a `torch.nn.Sequential` of the same layers."""

import ast
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import references
from runs import DATA, PLAIN, brief
from safetensors.numpy import load_file

import d2lmgpu as d2l

ROOT = Path(__file__).resolve().parents[2]


def outputs(x, state):
    """Of `runs.TINY`, as PyTorch describes its layers: a `Linear` of the flattened (C, H, W) is x · weightᵀ + bias."""
    x = references.conv2d(x, state["0.weight"], state["0.bias"])
    mean, variance, weight, bias = (
        state[f"1.{name}"][:, None, None] for name in ("running_mean", "running_var", "weight", "bias")
    )
    x = np.maximum((x - mean) / np.sqrt(variance + 1e-5) * weight + bias, 0)
    return x.reshape(len(x), -1) @ state["4.weight"].T + state["4.bias"]


@pytest.mark.parametrize("ending, load", [(".npz", np.load), (".safetensors", load_file)])
def test_a_model_elsewhere(tmp_path, ending, load):
    model = brief(2).model
    model.export(tmp_path / f"tiny{ending}")
    state = {name: array.astype(float) for name, array in dict(load(tmp_path / f"tiny{ending}")).items()}
    shapes = {name: array.shape for name, array in state.items()}
    assert shapes["4.weight"] == (4, 108) and shapes["0.weight"] == (3, 1, 3, 3) and len(state) == 8
    scores = np.exp(outputs(DATA[2].astype(float) / 255, state))
    expected = scores / scores.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict(DATA[2]), expected, rtol=1e-4, atol=1e-6)


def test_without_the_package_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    with pytest.raises(ValueError, match=r"pip install -e '.\[export\]'"):
        d2l.Model(PLAIN, d2l.init_params(network=PLAIN)).export(tmp_path / "a.safetensors")
    assert not [*tmp_path.iterdir()]


def test_the_page_shows_what_the_script_runs():
    script = (ROOT / "benchmarks" / "load_in_pytorch.py").read_text(encoding="utf-8")
    functions = {
        node.name: ast.get_source_segment(script, node) for node in ast.parse(script).body if hasattr(node, "name")
    }
    shown = re.findall(r"```py\n(.*?)```", (ROOT / "docs" / "pytorch.md").read_text(encoding="utf-8"), re.DOTALL)
    assert functions["into_pytorch"] in shown[0] and functions["from_pytorch"] in shown[1]
