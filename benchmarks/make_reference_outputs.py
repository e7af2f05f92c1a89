"""Answers: what does PyTorch compute in float64 for LeNet's inputs in the tests?

    pip install torch==2.13.0
    python benchmarks/make_reference_outputs.py

It writes the tests' reference_outputs.npz, for the inputs of test_networks.py.
"""

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

TESTS = Path(__file__).resolve().parents[1] / "tests"
(FILE,) = TESTS.rglob("reference_outputs.npz")
sys.path[:0] = [str(TESTS), *(str(path.parent) for path in TESTS.rglob("test_networks.py"))]

from test_networks import reference_inputs  # noqa: E402

X, y, params = reference_inputs()
W1, b1, W2, b2, W3, b3, W4, b4 = tensors = [torch.tensor(p, requires_grad=True) for p in params]
h = F.avg_pool2d(F.relu(F.conv2d(torch.tensor(X), W1, b1)), 2)
h = F.avg_pool2d(F.relu(F.conv2d(h, W2, b2)), 2)
h = F.relu(h.flatten(1) @ W3 + b3)
logits = h @ W4 + b4
loss = F.cross_entropy(logits, torch.tensor(y), reduction="sum")
loss.backward()
outputs = {f"grad{i}": tensor.grad.numpy().reshape(-1)[::97] for i, tensor in enumerate(tensors)}
np.savez_compressed(FILE, logits=logits.detach().numpy(), loss=loss.item(), **outputs)
