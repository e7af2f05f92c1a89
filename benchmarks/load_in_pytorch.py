"""Answers: does a model that was trained here compute the same in PyTorch, and when it comes back?

    pip install torch==2.13.0 safetensors
    python benchmarks/load_in_pytorch.py

It trains a network with batch norm on a few images, and prints how far the two frameworks' outputs for the test set are
apart. docs/pytorch.md shows its two functions, and what it printed.
"""

import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

import d2lmgpu as d2l


def into_pytorch(file):
    """LeNet with batch norm, from a file of `Model.export`."""
    net = nn.Sequential(
        *(nn.Conv2d(1, 20, 3), nn.BatchNorm2d(20), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(20, 50, 5), nn.BatchNorm2d(50), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10)),
    )
    net.load_state_dict(load_file(file))
    return net.eval()


def from_pytorch(net):
    """The same network's `Model`, with batch norm's statistics."""
    arrays = {name: tensor.detach().cpu().numpy() for name, tensor in net.state_dict().items()}
    params = [
        array.T if array.ndim == 2 else array for name, array in arrays.items() if name.endswith(("weight", "bias"))
    ]
    statistics = [array for name, array in arrays.items() if name.endswith(("running_mean", "running_var"))]
    return d2l.Model(d2l.networks.NETWORKS["lenet-bn"], params, statistics)


def main():
    X, y, X_test, y_test = d2l.load_fashion_mnist()
    data = X[:2000], y[:2000], X_test, y_test
    model = d2l.train(init="he", num_epochs=2, network="lenet-bn", data=data, progress=False).model
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "lenet.safetensors")
        model.export(file)
        net = into_pytorch(file)
    images = X_test[:1000]
    with torch.no_grad():
        theirs = torch.softmax(net(torch.from_numpy(d2l.to_float(images))), dim=1).numpy()
    ours, back = model.predict(images), from_pytorch(net).predict(images)
    print(f"into PyTorch: probabilities differ by at most {np.abs(ours - theirs).max():.1e}")
    print(f"and back: probabilities differ by at most {np.abs(ours - back).max():.1e}")


if __name__ == "__main__":
    main()
