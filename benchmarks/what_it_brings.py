"""What some choices bring: the size of micro-batches, and switches of the training step.

    python benchmarks/what_it_brings.py --json FILE

Variants take turns in every round, so that a machine whose speed drifts treats
them alike; the first round is a warm-up. Quoted are medians and spread of the
times, and of each variant's ratio to the one it is compared with, round by round.
"""

import argparse
import platform
import time
from datetime import date

import numpy as np
from compare_pytorch import git, machine, spread

import d2lmgpu as d2l
from d2lmgpu.base.files import as_json, write_json
from d2lmgpu.kernels.cpu import program
from d2lmgpu.training.plan_step import PlanStep
from d2lmgpu.training.textbook_steps import TextbookSteps

STEPS, BATCH = 12, 256


def main():
    parser = argparse.ArgumentParser(description="What some choices bring.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    result = {
        "machine": machine("cpu"),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "date": date.today().isoformat(),
        "commit": git("rev-parse", "--short", "HEAD"),
        "milliseconds": "of a step of 256 images",
    }
    for name, (variants, against) in groups().items():
        result[name] = race(variants, against, options.rounds)
        print(name, as_json(result[name], indent=1), flush=True)
    if options.json:
        write_json(options.json, result)


def groups():
    """Name → ({variant: function that returns the milliseconds of a step}, what each is compared with)."""
    sizes = (8, 16, 32, 64, 128, 256)
    switches = {
        "overlap in buckets": {"overlap": True},
        "one message a parameter": {"flat": False},
        "no prefetch": {"prefetch": False},
    }
    result = {}
    for k in (1, 2):
        variants = {f"{n} images": training_step(k, micro_batch=n) for n in sizes if n <= BATCH // k}
        result[f"micro-batch, {k} device(s)"] = variants, "32 images"
    for k in (2, 8):
        variants = {"as it is": training_step(k)} | {n: training_step(k, **s) for n, s in switches.items()}
        result[f"switches, {k} devices"] = variants, "as it is"
    return result


def training_step(k, micro_batch=None, flat=True, overlap=False, prefetch=True):
    """Whole training steps on k virtual devices."""
    X, y, _, _ = d2l.load_fashion_mnist()
    X, y = X[: STEPS * BATCH], y[: STEPS * BATCH]
    devices = [d2l.cpu(i) for i in range(k)]
    settings = {"flat": flat, "overlap": overlap, "prefetch": prefetch}
    steps = PlanStep if overlap else TextbookSteps
    runner = steps.of(X, y, d2l.init_params(0, init="he"), devices, batch_size=BATCH, **settings)

    def run():
        usual, program.MICRO_BATCH = program.MICRO_BATCH, micro_batch or program.MICRO_BATCH
        begin = time.perf_counter()
        runner.start_epoch(np.arange(len(X)), 0.01)
        for _ in range(STEPS):
            runner.launch(1)
        runner.pause()
        program.MICRO_BATCH = usual
        return 1000 * (time.perf_counter() - begin) / STEPS

    return run


def race(variants, against, rounds):
    times = {name: [] for name in variants}
    for number in range(rounds + 1):
        for name, run in variants.items():
            milliseconds = run()
            if number:
                times[name].append(milliseconds)
    return {
        name: {
            "milliseconds": spread(values),
            f"times as fast as {against}": spread([b / a for a, b in zip(values, times[against], strict=True)]),
        }
        for name, values in times.items()
    }


if __name__ == "__main__":
    main()
