"""Answers: how fast is a training step beside PyTorch's, on the same LeNet, data, batch, precision and threads?

    pip install torch==2.13.0
    python benchmarks/compare_pytorch.py --json FILE --plot FILE
    python benchmarks/compare_pytorch.py --before FOLDER --rounds 20
    python benchmarks/compare_pytorch.py --environment gpu --json FILE --plot FILE
    python benchmarks/compare_pytorch.py --environment gpu --precision mixed --batch 2048 --json FILE --plot FILE

Every contender (contenders.py) has a process of its own. They take turns: in every round each trains the same
minibatches, a tenth of an epoch (on a GPU all of it), while the others sleep, so that a machine whose speed drifts
treats all alike. The first round is a warm-up. Quoted are medians and spread over the rounds, and of every ratio those
of the rounds' own ratios (above 1: ours is faster). Before the race three steps' losses are compared: a race counts
only if all run the same course.
"""

import argparse
import platform
import statistics
from datetime import date

import numpy as np
from contenders import BATCH, DDP, SGEMM, Before, Ours, PyTorch, Worker
from quoted import as_table, git, machine, save_picture, spread, write

import d2lmgpu as d2l
from d2lmgpu.base.packages import optional

PART = {"cpu": 10, "gpu": 1}  # a round is an epoch's whole minibatches over this
TOLERANCE = {"float32": 1e-4, "mixed": 2e-2}  # of losses; PyTorch's mixed precision is with bfloat16
EXAMPLES = 60_000  # in an epoch
GFLOP_PER_EPOCH = 640
"""Arithmetic of an epoch if every product is computed, of the second convolution 8 × 8 outputs."""

CPU = {
    "ours, 1 device": (Ours, {}),
    "ours, 2 devices": (Ours, {"devices": 2}),
    "ours, 8 devices": (Ours, {"devices": 8}),
    "PyTorch eager, 1 thread": (PyTorch, {}),
    "PyTorch eager, 2 threads": (PyTorch, {"threads": 2}),
    "torch.compile, 1 thread": (PyTorch, {"mode": "compile"}),
    "torch.compile, 2 threads": (PyTorch, {"mode": "compile", "threads": 2}),
    "PyTorch DDP, 2 processes": (DDP, {}),
    "SGEMM, 1 thread": (SGEMM, {}),
    "SGEMM, 2 threads": (SGEMM, {"threads": 2}),
}
CPU_RATIOS = [  # theirs, ours
    ("PyTorch eager, 1 thread", "ours, 1 device"),
    ("torch.compile, 1 thread", "ours, 1 device"),
    ("PyTorch DDP, 2 processes", "ours, 2 devices"),
    ("torch.compile, 2 threads", "ours, 2 devices"),
    ("PyTorch eager, 2 threads", "ours, 2 devices"),
    ("ours, 1 device", "ours, 2 devices"),
    ("ours, 2 devices", "ours, 8 devices"),
]
SHARED, APART = "ours, 2 devices on one GPU", "ours, 2 GPUs"  # the same settings, on machines with one GPU and more
GPU = {
    "ours, 1 device": (Ours, {"environment": "gpu"}),
    SHARED: (Ours, {"environment": "gpu", "devices": 2}),
    "ours, without graphs": (Ours, {"environment": "gpu", "graphs": False}),
    "PyTorch eager": (PyTorch, {"environment": "gpu"}),
    "PyTorch CUDA graph": (PyTorch, {"environment": "gpu", "mode": "graph"}),
    "torch.compile": (PyTorch, {"environment": "gpu", "mode": "compile"}),
}
GPU_RATIOS = [
    ("PyTorch eager", "ours, 1 device"),
    ("PyTorch CUDA graph", "ours, 1 device"),
    ("torch.compile", "ours, 1 device"),
    ("ours, without graphs", "ours, 1 device"),
    ("ours, 1 device", SHARED),
    ("ours, 1 device", APART),
]


def main():
    parser = argparse.ArgumentParser(description="Our training step beside PyTorch's.")
    parser.add_argument("--environment", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--precision", choices=tuple(TOLERANCE), default="float32", help="other than float32: on GPUs")
    parser.add_argument("--batch", type=int, default=BATCH, help="images of a minibatch, on GPUs")
    parser.add_argument("--before", metavar="FOLDER", help="an earlier version of this repository, which takes part")
    parser.add_argument("--rounds", type=int, default=10, help="counted rounds")
    parser.add_argument("--json", metavar="FILE", help="write the result here")
    parser.add_argument("--plot", metavar="FILE", help="plot the result here")
    options = parser.parse_args()

    kinds, ratios = (CPU, CPU_RATIOS) if options.environment == "cpu" else (GPU, GPU_RATIOS)
    X, y, _, _ = d2l.load_fashion_mnist()
    if options.environment == "gpu":
        more = {"batch": options.batch, "precision": options.precision}
        kinds = {name: (kind, settings | more) for name, (kind, settings) in kinds.items()}
        if d2l.num_gpus() > 1:
            kinds = {APART if name == SHARED else name: kind for name, kind in kinds.items()}
    elif (options.batch, options.precision) != (BATCH, "float32"):
        parser.error("--batch and --precision are for --environment gpu")
    if options.before:
        earlier = [name for name in kinds if name in ("ours, 1 device", "ours, 2 devices")]
        kinds |= {f"{name}, before": (Before, kinds[name][1] | {"folder": options.before}) for name in earlier}
        ratios = [*ratios, *((f"{name}, before", name) for name in earlier)]
    workers = {name: Worker(kind, (X, y), **settings) for name, (kind, settings) in kinds.items()}
    workers, failed = same_course(workers, options)
    steps = EXAMPLES // options.batch // PART[options.environment]
    seconds, rates = race(workers, steps, options)
    result = report(options, steps, seconds, rates, ratios, failed)
    print(as_table(result))
    if options.json:
        write(options.json, result)
    if options.plot:
        save_picture(plot(result), options.plot)


def same_course(workers, options):
    """The workers whose losses of three steps agree, and those that could not run, with the reason."""
    losses, failed = {}, {}
    for name, worker in workers.items():
        try:
            losses[name] = worker.steps(list(np.arange(3 * options.batch).reshape(3, -1)))[1]
        except RuntimeError as error:
            failed[name] = str(error)
    trained = {name: loss for name, loss in losses.items() if not name.startswith("SGEMM")}
    middle = statistics.median(trained.values())
    if any(abs(loss - middle) > TOLERANCE[options.precision] * middle for loss in trained.values()):
        raise SystemExit(f"not the same course: {trained}")
    print(f"losses of three steps: {trained}\nfailed: {failed}", flush=True)
    return {name: workers[name] for name in losses}, failed


def race(workers, steps, options):
    """Seconds for each contender and round; rates (GFLOP/s) for those that do not train."""
    rng = np.random.default_rng(0)
    seconds, rates = {}, {}
    for number in range(options.rounds + 1):
        indices = list(rng.permutation(EXAMPLES)[: steps * options.batch].reshape(steps, -1))
        for name, worker in workers.items():
            duration, value = worker.steps(indices)
            if number:
                is_rate = name.startswith("SGEMM")
                (rates if is_rate else seconds).setdefault(name, []).append(value if is_rate else duration)
        print(f"round {number}", {name: round(times[-1], 3) for name, times in seconds.items()}, flush=True)
    for worker in workers.values():
        worker.close()
    return seconds, rates


def report(options, steps, seconds, rates, ratios, failed):
    epoch = EXAMPLES / (steps * options.batch)
    course = f"batch {options.batch}, {options.precision}"
    result = {
        "what": f"LeNet training, {course}, {steps} steps a round, contenders in turn",
        "course": course,
        "machine": machine(options.environment),
        "versions": _versions(),
        "date": date.today().isoformat(),
        "commit": git("rev-parse", "--short", "HEAD") + ("+changes" if git("status", "--porcelain", "-uno") else ""),
        "seconds_per_epoch": {name: spread([epoch * t for t in times]) for name, times in seconds.items()},
        "times_as_fast": [
            {"than": theirs, "is": ours, "ratio": spread(_ratios(seconds[theirs], seconds[ours]))}
            for theirs, ours in ratios
            if theirs in seconds and ours in seconds
        ],
        "failed": failed,
    }
    if rates:
        result["rates"] = {name: spread(values) for name, values in rates.items()}
        for devices, threads in (("1 device", "1 thread"), ("2 devices", "2 threads")):
            times, peak = seconds[f"ours, {devices}"], rates[f"SGEMM, {threads}"]
            parts = [GFLOP_PER_EPOCH / (epoch * t) / p for t, p in zip(times, peak, strict=True)]
            result.setdefault("part_of_sgemm_rate", {})[f"ours, {devices}"] = spread(parts)
    return result


def plot(result):
    """Seconds an epoch, with their spread, as bars."""
    from matplotlib.figure import Figure

    names = list(result["seconds_per_epoch"])
    spreads = [result["seconds_per_epoch"][name] for name in names]
    figure = Figure(figsize=(8, 0.8 + 0.4 * len(names)), layout="constrained")
    axes = figure.subplots()
    middles = [s["median"] for s in spreads]
    errors = [
        [s["median"] - s["lower quartile"] for s in spreads],
        [s["upper quartile"] - s["median"] for s in spreads],
    ]
    colours = ["#0072B2" if name.startswith("ours") else "#E69F00" for name in names]
    bars = axes.barh(names, middles, xerr=errors, color=colours, capsize=3)
    axes.bar_label(bars, [f" {m:.3g} s" for m in middles], padding=8)
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.set(xlabel="seconds per epoch of 60,000 images: median and quartiles")
    axes.set_title(f"LeNet, {result['course']}: {result['machine']}", fontsize=10)
    return figure


def _ratios(theirs, ours):
    return [a / b for a, b in zip(theirs, ours, strict=True)]


def _versions():
    import torch

    versions = {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__}
    cupy, _ = optional("cupy")
    return versions | ({"cupy": cupy.__version__} if cupy else {})


if __name__ == "__main__":
    main()
