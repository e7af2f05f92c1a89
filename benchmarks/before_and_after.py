"""An earlier version beside this one, in one process and in turns: what took less time in the end, and what did not.

    python benchmarks/before_and_after.py FOLDER --json FILE

FOLDER is a checkout of the earlier version. On one thread: loss and gradients of all networks, evaluation, prediction
and metrics of 1,024 images, proofs, simulations and compilation of a ring of many devices, pictures of its steps.
Quoted are milliseconds, medians, and factors with quartiles, round by round.
"""

import argparse
import functools
import importlib
import io
import os
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before NumPy is imported

import numpy as np
from compare_splits import circumstances
from contenders import import_from

from d2lmgpu.base.files import write_json

IMAGES, TESTED = 256, 1024


def package(folder):
    """The package in ``folder``, and modules of it."""
    found = import_from(folder)
    modules = ["networks.known", "collectives", "collectives.program", "collectives.network", "language.prove"]
    modules = {name: importlib.import_module(f"d2lmgpu.{name}") for name in modules}
    return found, modules


def variants(d2l, modules):
    """What is timed, by name: functions of no arguments."""
    found = {}
    X, y, X_test, y_test = d2l.load_fashion_mnist()
    X, y = X[:IMAGES] / np.float32(255), y[:IMAGES]
    X_test, y_test, device = X_test[:TESTED], y_test[:TESTED], [d2l.cpu(0)]
    for name in ("lenet", "cnn", "deep"):
        network = modules["networks.known"].NETWORKS[name]
        params = d2l.init_params(0, init="he", network=network)
        for param in params:
            param += np.float32(0.01)  # biases of exactly 0 are the first step's only
        arguments = params, X_test, device, network
        found[f"{name}: loss and gradients"] = functools.partial(d2l.loss_and_grads, X, y, params, network)
        found[f"{name}: predict"] = functools.partial(d2l.predict, *arguments)
        tested = functools.partial(d2l.evaluate, params, X_test, y_test, device, network)
        found[f"{name}: evaluate"] = tested
        found[f"{name}: evaluate with a metric"] = functools.partial(tested, metrics={"top 3": top_3})
    ring, collectives = modules["collectives"].ALGORITHMS["ring"], modules["collectives"]
    for k in (128, 512):
        schedule, network = ring(k, 4 * k), modules["collectives.network"].full_switch(k, 1e10, 1e-6)
        found[f"ring of {k}: make"] = functools.partial(ring, k, 4 * k)
        found[f"ring of {k}: prove"] = functools.partial(modules["language.prove"].prove, schedule, k, 4 * k)
        found[f"ring of {k}: simulate"] = functools.partial(collectives.simulate, schedule, network)
    compiled = modules["collectives.program"].compile_schedule
    found["ring of 128: compile"] = functools.partial(compiled, ring(128, 512), 128)
    for k in (8, 16):
        found[f"ring of {k}: draw the steps and save"] = functools.partial(draw, collectives, ring(k, 4 * k), k)
    return found


def top_3(logits, y):
    return float((np.argsort(logits, axis=1)[:, -3:] == y[:, None]).sum())


def draw(collectives, schedule, k):
    collectives.draw_steps(schedule, k, 4 * k).savefig(io.BytesIO())


def main():
    parser = argparse.ArgumentParser(description="An earlier version beside this one.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    both = [variants(*package(folder)) for folder in (options.folder, Path(__file__).resolve().parents[1])]
    result = circumstances("one thread") | {"rows": {}}
    for name in both[0]:
        seconds = []
        for _ in range(1 + options.rounds):
            seconds.append([])
            for version in both:
                begin = time.perf_counter()
                version[name]()
                seconds[-1].append(time.perf_counter() - begin)
        before, after = np.array(seconds[1:]).T
        low, median, high = np.percentile(before / after, [25, 50, 75]).tolist()
        row = {"before": 1000 * float(np.median(before)), "after": 1000 * float(np.median(after))}
        result["rows"][name] = row | {"times as fast": median, "quartiles": [low, high]}
        times = f"{row['before']:9.2f} → {row['after']:9.2f} ms"
        print(f"{name:40s} {times}: {median:.2f} ({low:.2f} to {high:.2f})", flush=True)
    if options.json:
        write_json(options.json, result)


if __name__ == "__main__":
    main()
