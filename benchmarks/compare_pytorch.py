"""Our training step beside PyTorch eager's, on the same LeNet, data, batch, precision and thread.

    pip install torch==2.13.0
    python benchmarks/compare_pytorch.py                        one CPU device, one thread
    python benchmarks/compare_pytorch.py --environment gpu      one GPU

Both train from the same weights on the same minibatches, in turn: a fifth of an
epoch (47 steps) of ours, then the same fifth of theirs, so that a machine whose
speed drifts treats both alike. The first pair of each is a warm-up and is not
counted. Quoted are the medians of the pairs, and the median, least and largest
of the pairs' ratios (theirs / ours: above 1 we are faster). First the losses of
three steps are compared, since a race counts only if both run the same course
(later, rounding errors grow and the courses part).
"""

import argparse
import json
import platform
import statistics
import subprocess
import time
from datetime import date
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import d2lmgpu as d2l
from d2lmgpu.devices.choose import processor_name

STEPS = 47  # a fifth of the 235 steps of an epoch
BATCH, LR = 256, 0.2


class Ours:
    def __init__(self, environment, params, data):
        _, self.devices = d2l.choose_devices(environment, 1)
        self.device_params = [d2l.get_params(params, device) for device in self.devices]
        self.X, self.y = data

    def steps(self, indices):
        loss = 0.0
        for index in indices:
            X, y = d2l.to_float(self.X[index]), self.y[index]
            loss += d2l.train_batch(X, y, self.device_params, self.devices, LR, "ring")
        d2l.synchronize(self.devices)
        return loss / (len(indices) * BATCH)


class PyTorch:
    def __init__(self, environment, params, data):
        torch.set_num_threads(1)
        self.device = "cuda" if environment == "gpu" else "cpu"
        self.params = [torch.tensor(p, device=self.device, requires_grad=True) for p in params]
        self.optimizer = torch.optim.SGD(self.params, LR)
        self.X, self.y = torch.tensor(data[0]), torch.tensor(data[1].astype(np.int64))

    def steps(self, indices):
        W1, b1, W2, b2, W3, b3, W4, b4 = self.params
        loss = 0.0
        for index in indices:
            index = torch.from_numpy(index)
            X = (self.X[index].float() / 255).to(self.device)
            h = F.avg_pool2d(F.relu(F.conv2d(X, W1, b1)), 2)
            h = F.avg_pool2d(F.relu(F.conv2d(h, W2, b2)), 2)
            h = F.relu(torch.addmm(b3, h.flatten(1), W3))
            batch_loss = F.cross_entropy(torch.addmm(b4, h, W4), self.y[index].to(self.device))
            self.optimizer.zero_grad()
            batch_loss.backward()
            self.optimizer.step()
            loss += batch_loss.item()
        if self.device == "cuda":
            torch.cuda.synchronize()
        return loss / len(indices)


def main():
    parser = argparse.ArgumentParser(description="Our training step beside PyTorch eager's.")
    parser.add_argument("--environment", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--pairs", type=int, default=10, help="counted pairs of a fifth of an epoch each")
    parser.add_argument("--json", metavar="FILE", help="write the result here")
    options = parser.parse_args()

    X, y, _, _ = d2l.load_fashion_mnist()
    params = d2l.init_params(0, init="he")
    sides = {name: side(options.environment, params, (X, y)) for name, side in (("ours", Ours), ("pytorch", PyTorch))}
    rng = np.random.default_rng(0)
    first = [side.steps(np.arange(3 * BATCH).reshape(3, BATCH)) for side in sides.values()]
    if abs(first[0] - first[1]) > 1e-4 * first[1]:
        raise SystemExit(f"the two do not compute the same: losses {first}")
    seconds = {name: [] for name in sides}
    for pair in range(options.pairs + 1):
        indices = rng.permutation(len(X))[: STEPS * BATCH].reshape(STEPS, BATCH)
        losses = {}
        for name, side in sides.items():
            begin = time.perf_counter()
            losses[name] = side.steps(indices)
            if pair:
                seconds[name].append(time.perf_counter() - begin)
        print(f"pair {pair}: losses {losses['ours']:.4f} {losses['pytorch']:.4f}", flush=True)
    ratios = [theirs / ours for ours, theirs in zip(seconds["ours"], seconds["pytorch"], strict=True)]
    result = {
        "what": "LeNet training, batch 256, float32, one device, one thread",
        "environment": options.environment,
        "machine": _machine(options.environment),
        "versions": {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__},
        "date": date.today().isoformat(),
        "commit": subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent
        ).stdout.strip(),
        "seconds_per_epoch": {name: _spread([5 * t for t in times]) for name, times in seconds.items()},
        "speedup_over_pytorch": _spread(ratios),
    }
    print(json.dumps(result, indent=2))
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n")


def _machine(environment):
    name = processor_name() if environment == "cpu" else torch.cuda.get_device_name()
    return f"{name}, {platform.system()} {platform.machine()}"


def _spread(values):
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
        "n": len(values),
    }


if __name__ == "__main__":
    main()
