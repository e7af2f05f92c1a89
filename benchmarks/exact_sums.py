"""Exact sums beside float sums: what a step costs, and what is learned.

    python benchmarks/exact_sums.py --cost --accuracy --json benchmarks/results/cpu_exact_sums.json

The cost: in each round both do the same twenty steps of LeNet, one after the other, the order changing from round to
round; quoted are quartiles of the ratios. What is learned: ten epochs from five seeds, on two devices, which differ by
rounding alone.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from compare_splits import circumstances

import d2lmgpu as d2l
from d2lmgpu.base.files import write_json
from d2lmgpu.networks import init_params
from d2lmgpu.training.resume import Position
from d2lmgpu.training.textbook_steps import TextbookSteps

SUMS = "float", "exact"
STEPS, BATCH_SIZE = 20, 256


def cost(k, rounds):
    """Milliseconds of a step with each kind of sums, and the quartiles of their ratios, on k devices."""
    X, y, *_ = d2l.load_fashion_mnist()
    some = X[: STEPS * BATCH_SIZE], y[: STEPS * BATCH_SIZE]
    devices, params = [d2l.cpu(i) for i in range(k)], init_params(init="he")
    runners = {
        sums: TextbookSteps.of(*some, params, devices, batch_size=BATCH_SIZE, lr=0.05, sums=sums) for sums in SUMS
    }
    seconds = {sums: [] for sums in SUMS}
    for number in range(-2, rounds):  # the first two are not counted
        for sums in SUMS[:: 1 if number % 2 else -1]:
            runner = runners[sums]
            runner.start_epoch(np.arange(len(some[1])), 0.05, Position(number + 2))
            begin = time.perf_counter()
            for _ in range(STEPS):
                runner.launch(1)
            runner.pause()
            seconds[sums].append((time.perf_counter() - begin) / STEPS)
    times = {sums: np.array(values[2:]) for sums, values in seconds.items()}
    ratio = np.percentile(times["exact"] / times["float"], (25, 50, 75)).round(3).tolist()
    print(f"{k} devices: exact sums take {ratio[1]:.3f} times as long ({ratio[0]:.3f} to {ratio[2]:.3f})", flush=True)
    milliseconds = {sums: float(np.median(values) * 1e3) for sums, values in times.items()}
    return {"devices": k, "rounds": rounds, "milliseconds": milliseconds, "ratio_quartiles": ratio}


def accuracy(seed, epochs):
    """What a seed's run reaches with each kind of sums."""
    found = {"seed": seed, "epochs": epochs}
    for sums in SUMS:
        history = d2l.train(2, num_epochs=epochs, seed=seed, init="he", lr=0.1, sums=sums, progress=False).history
        found[sums] = {"test_accuracy": history.test_accuracy, "train_loss": history.train_loss}
    ends = [found[sums]["test_accuracy"][-1] for sums in SUMS]
    print(f"seed {seed}: test accuracy {ends[0]:.4f} with float sums, {ends[1]:.4f} with exact ones", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description="Exact sums beside float sums.")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--note", default="", help="what should be known of the machine, such as that it was busy")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result = {"circumstances": circumstances(options.note)}
    if options.cost:
        result["cost"] = [cost(k, options.rounds) for k in (1, 2)]
    if options.accuracy:
        result["accuracy"] = [accuracy(seed, options.epochs) for seed in range(5)]
    if options.json:
        earlier = json.loads(options.json.read_text()) if options.json.exists() else {}
        write_json(options.json, earlier | result, indent=1)


if __name__ == "__main__":
    main()
