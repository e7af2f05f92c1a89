"""Answers: how many microseconds does a training step take on a real GPU, and each of its kernels?

    python benchmarks/measure_gpu.py --precision float32,mixed --batch 256,2048 --json measured.json
    python benchmarks/measure_gpu.py --cards 1,2 --json measured.json

Each launch of a training step, on each card, is recorded `REPEATS` times in a row as a CUDA graph of its own, with the
step's own arguments; those that read another card's memory do so here, too. Events around it give the time from one
kernel to the next. What an empty kernel takes is told beside it: so much of each time is the way from node to node. In
a step kernels also run beside each other, so the step is measured as a whole, from the graph of one step and from that
of several, and so are the parts of an epoch as the host sees them. Quoted are medians of `ROUNDS` with least and
largest; the first rounds are warm-up.
"""

import argparse
import itertools
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from quoted import git, write

import d2lmgpu as d2l
from d2lmgpu.kernels.cuda import capture, current_card
from d2lmgpu.networks import NETWORKS
from d2lmgpu.training.graph_step import TOGETHER, GraphStep

REPEATS, ROUNDS, WARM_UP = 20, 20, 5
IMAGES = 60_000
EMPTY = 'extern "C" __global__ void empty() {}'

launches = []
"""What the kernels' launches were, in order: (name, card, grid, block, arguments, kernel)."""


class Noted:
    """A module whose kernels write down how they are launched."""

    def __init__(self, module):
        self.module = module

    def get_function(self, name):
        kernel = self.module.get_function(name)

        def launch(grid, block, arguments):
            launches.append((name, current_card(), grid, block, arguments, kernel))
            kernel(grid, block, arguments)

        return launch


def note_launches():
    """From now on, of kernels that were not used before."""
    run = sys.modules["d2lmgpu.kernels.cuda.launch"]
    load = run._module
    run._module = lambda file, options: Noted(load(file, options))


def spread(seconds):
    """Microseconds."""
    chosen = [1e6 * s for s in seconds[WARM_UP:]]
    return {name: round(f(chosen), 3) for name, f in (("median", statistics.median), ("min", min), ("max", max))}


def time_graph(stream, graph, times, before=lambda: None):
    """As `time_row`, of a graph."""
    graph.upload(stream)
    return time_row(stream, lambda: graph.launch(stream), times, before)


def time_row(stream, launch, times, before=lambda: None):
    """Microseconds that one of the ``times`` things takes which are launched in a row: `spread` over the rounds."""
    import cupy

    seconds = []
    for _ in range(WARM_UP + ROUNDS):
        before()
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record(stream)
        launch()
        end.record(stream)
        end.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(begin, end) / 1e3 / times)
    return spread(seconds)


def measure_step(network, batch, precision, cards):
    """What is measured of a step of this number of cards."""
    gpus = [d2l.gpu(i) for i in range(cards)]
    first = gpus[0]
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (IMAGES, *network.input_shape), np.uint8)
    y = rng.integers(0, network.classes, IMAGES).astype(np.uint8)
    params = d2l.init_params(0, init="he", network=network)
    runner = GraphStep.of(X, y, params, gpus, network, batch_size=batch, precision=precision)
    order = rng.permutation(IMAGES)

    def again():
        """Let the next step be the epoch's first."""
        for replica in runner.replicas:
            with replica.device.as_current():
                replica.computation.number.fill(0)
                replica.device.finish()

    def kernels():
        launches.clear()
        runner.issue(batch)
        noted = launches.copy()
        for gpu in gpus:
            gpu.finish()
        rows = []
        for name, card, grid, block, arguments, kernel in noted:

            def issue(kernel=kernel, how=(grid, block, arguments)):
                for _ in range(REPEATS):
                    kernel(*how)

            (gpu,) = (gpu for gpu in gpus if gpu.card == card)
            with gpu.as_current():
                measured = time_graph(gpu.stream, capture(gpu.stream, issue), REPEATS, again)
            row = {"name": name, "card": card, "grid": list(grid), "block": list(block), "microseconds": measured}
            rows.append(row)
        return rows

    def step():
        graphs = {1: runner.graphs[batch], TOGETHER: runner.longer_graph}
        found = {}
        for count, graph in graphs.items():
            if graph is not None:
                found[str(count)] = time_graph(first.stream, graph, count, again)
        return found

    def empty():
        import cupy

        kernel = cupy.RawKernel(EMPTY, "empty")
        kernel((1,), (32,), ())

        def issue():
            for _ in range(REPEATS):
                kernel((1,), (32,), ())

        return time_graph(first.stream, capture(first.stream, issue), REPEATS)

    runner.start_epoch(order, 1e-6)
    rows = first.submit(kernels).result()
    runner.start_epoch(order, 1e-6)
    whole = first.submit(step).result()
    nothing = first.submit(empty).result()
    return {"kernels": rows, "empty_kernel": nothing, "step": whole, "epoch": measure_epochs(runner, order)}


def measure_epochs(runner, order):
    """Microseconds of an epoch's parts, as the host program sees them."""
    parts = {"start": [], "launch": [], "wait": [], "whole": []}
    for _ in range(WARM_UP + ROUNDS):
        clock = [time.perf_counter()]
        runner.start_epoch(order, 1e-6)
        clock.append(time.perf_counter())
        left = runner.steps
        while left:
            left -= len(runner.launch(left))
        clock.append(time.perf_counter())
        runner.pause()
        clock.append(time.perf_counter())
        for name, seconds in zip(parts, [*np.diff(clock), clock[-1] - clock[0]], strict=True):
            parts[name].append(float(seconds))
    return {"steps": runner.steps} | {name: spread(seconds) for name, seconds in parts.items()}


def show(title, found):
    step = " and ".join(f"{value['median']:.1f} (graph of {name})" for name, value in found["step"].items())
    print(f"\n{title}: {step} us a step, measured; empty kernel {found['empty_kernel']['median']:.2f} us")
    epoch = found["epoch"]
    print(
        "epoch, us: " + ", ".join(f"{name} {value['median']:.0f}" for name, value in epoch.items() if name != "steps")
    )
    print(f"{'kernel':34}{'card':>5}{'blocks x threads':>18}{'measured us':>14}")
    for row in found["kernels"]:
        shape = f"{np.prod(row['grid'])} x {np.prod(row['block'])}"
        print(f"{row['name']:34}{row['card']:>5}{shape:>18}{row['microseconds']['median']:>14.2f}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="lenet", choices=sorted(NETWORKS))
    parser.add_argument("--precision", default="float32", help="float32, mixed; several with commas")
    parser.add_argument("--batch", default="256", help="images of a minibatch; several with commas")
    parser.add_argument("--cards", default="1", help="how many share a minibatch; several with commas")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    note_launches()
    steps, what = [], measured_on()
    several = [options.precision.split(","), map(int, options.batch.split(",")), map(int, options.cards.split(","))]
    for precision, batch, cards in itertools.product(*several):
        found = measure_step(NETWORKS[options.network], batch, precision, cards)
        settings = {"network": options.network, "precision": precision, "batch": batch, "cards": cards}
        show(", ".join(f"{name} {value}" for name, value in settings.items()), found)
        steps.append(settings | found)
        if options.json:  # after each: what there is stays, whatever comes
            write(options.json, what | {"steps": steps})
    return 0


def measured_on():
    """What belongs to measured figures of GPUs."""
    import cupy

    runtime = cupy.cuda.runtime
    versions = {"cupy": cupy.__version__, "cuda": runtime.runtimeGetVersion(), "numpy": np.__version__}
    versions["driver"] = runtime.driverGetVersion()
    device, commit = runtime.getDeviceProperties(0)["name"].decode(), git("rev-parse", "--short", "HEAD")
    date = time.strftime("%Y-%m-%d")
    return {"what": "measured", "device": device, "versions": versions, "date": date, "commit": commit}


if __name__ == "__main__":
    raise SystemExit(main())
