"""How well PyTorch learns LeNet at batch 2048 and lr 0.8, seed by seed.

    pip install torch==2.13.0
    python benchmarks/large_batch_pytorch.py --seeds 0,1,2,3 --json benchmarks/results/cpu_large_batch_pytorch.json

He's weights, warm-up over two of ten epochs: what `d2lmgpu train --devices 8 --init he --lr 0.1 --scale-batch
--warmup 2` is to be compared with. The random numbers are PyTorch's own; with ``--course ours`` the initial values and
the order of examples are d2lmgpu's of the same seed.
"""

import argparse
import datetime

import torch
from torch import nn

import d2lmgpu as d2l
from d2lmgpu.base.files import check_writable, write_json
from d2lmgpu.data.minibatches import epoch_order
from d2lmgpu.networks.lr_schedules import learning_rates

BATCH, LR, EPOCHS, WARMUP = 2048, 0.8, 10, 2


def train(seed, course, X, y, X_test, y_test):
    """Test accuracies and training losses by epoch."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2)]
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10))
    for layer in network:
        if hasattr(layer, "weight"):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    if course == "ours":
        with torch.no_grad():
            for param, value in zip(network.parameters(), d2l.init_params(seed, init="he"), strict=True):
                value = torch.tensor(value)
                param.copy_(value.T if value.ndim == 2 else value)  # dense weights are (inputs, outputs) here
    optimizer = torch.optim.SGD(network.parameters(), lr=LR)
    accuracies, losses = [], []
    for epoch in range(EPOCHS):
        order = torch.tensor(epoch_order(len(X), seed, epoch)) if course == "ours" else torch.randperm(len(X))
        parts = order.split(BATCH)
        total = 0.0
        for part, rate in zip(parts, learning_rates(LR, epoch, len(parts), EPOCHS, WARMUP), strict=True):
            optimizer.param_groups[0]["lr"] = float(rate)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(X[part]), y[part])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(part)
        with torch.no_grad():
            right = sum(
                int((network(a).argmax(1) == b).sum())
                for a, b in zip(X_test.split(2000), y_test.split(2000), strict=True)
            )
        losses.append(total / len(X))
        accuracies.append(right / len(X_test))
    return {"seed": seed, "test_accuracy": accuracies, "train_loss": losses}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="0,1,2,3", help="with commas between")
    parser.add_argument("--course", choices=("own", "ours"), default="own", help="whose initial values and order")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if options.json:
        check_writable(options.json)
    X, y, X_test, y_test = d2l.load_fashion_mnist()
    data = [
        torch.tensor(d2l.to_float(X)),
        torch.tensor(y).long(),
        torch.tensor(d2l.to_float(X_test)),
        torch.tensor(y_test).long(),
    ]
    runs = []
    for seed in map(int, options.seeds.split(",")):
        runs.append(train(seed, options.course, *data))
        accuracies = runs[-1]["test_accuracy"]
        print(
            f"seed {seed}: mean of the last three {sum(accuracies[-3:]) / 3:.3f}, best {max(accuracies):.3f}",
            flush=True,
        )
    if options.json:
        settings = {
            "batch_size": BATCH,
            "lr": LR,
            "epochs": EPOCHS,
            "warmup": WARMUP,
            "init": "He",
            "course": options.course,
        }
        about = {"torch": torch.__version__, "date": datetime.date.today().isoformat(), **settings}
        write_json(options.json, {**about, "runs": runs})


if __name__ == "__main__":
    main()
