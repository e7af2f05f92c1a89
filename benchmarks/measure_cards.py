"""Measures on real GPUs what lies between two cards: how fast bytes get across, and what an edge of a graph costs.

    python benchmarks/measure_cards.py [--cards K] --json FILE

Between two cards, in each direction, bytes get across in three ways: by a copy with peer access, by a kernel that adds
what it reads on the other card, as collectives do, and by a copy without peer access, which goes through the host. A
"copy on a card" is beside them. Several in a row are timed by events; where possible as a CUDA graph, so that
launching costs nothing.

An *edge* of a graph is the way from a kernel to the one that waits for it: a graph of empty kernels has them in a row
on one card, another in turn on both. gpu_model takes an edge between cards for one on a card and the way across NVLink.

Quoted are medians of `measure_gpu.ROUNDS` rounds with least and largest. What is measured is told and written at once.
"""

import argparse
import contextlib
import itertools
from pathlib import Path

import cupy
import numpy as np
from measure_gpu import EMPTY, REPEATS, measured_on, time_graph, time_row

import d2lmgpu as d2l
from d2lmgpu.devices.peers import connect, copy_async
from d2lmgpu.kernels.cuda import capture
from d2lmgpu.kernels.cuda.add import add, adds_across
from d2lmgpu.output import write_json

SIZES = [4, 2**12, 2**16, 2**20, 2**24, 2**28]
"""Bytes of a message; LeNet's gradients are 516,272."""

ENOUGH = 2**28
"""Bytes in a round, after which a message is not repeated again."""


def arrays_on(gpu, size):
    """Two float32 arrays of so many bytes."""
    with gpu.as_current():
        made = cupy.zeros(size // 4, np.float32), cupy.zeros(size // 4, np.float32)
        gpu.finish()
    return made


def repeats_of(size):
    """How many messages of a size are in a row."""
    return max(1, min(REPEATS, ENOUGH // size))


def in_graph(gpu, work, times):
    """Microseconds of ``work()``, recorded in the device's stream so many times in a row."""
    with gpu.as_current():
        work()  # what it takes is compiled and there
        gpu.finish()
        return time_graph(gpu.stream, capture(gpu.stream, lambda: repeat(work, times)), times)


def one_by_one(gpu, work, times):
    """Microseconds of ``work()``, given to the device's stream so many times in a row."""
    with gpu.as_current():
        return time_row(gpu.stream, lambda: repeat(work, times), times)


def repeat(work, times):
    for _ in range(times):
        work()


@contextlib.contextmanager
def without_access(gpu, other):
    """Within the block neither card has access to the other's memory."""

    def let_both(change):
        for here, there in ((gpu, other), (other, gpu)):
            with here.as_current():
                change(there.card)

    let_both(cupy.cuda.runtime.deviceDisablePeerAccess)
    try:
        yield
    finally:
        let_both(cupy.cuda.runtime.deviceEnablePeerAccess)


def ways_to(gpu, other, size):
    """Of each way in which bytes get from the ``other`` card to ``gpu``'s: its microseconds."""
    (target, own), (source, _) = arrays_on(gpu, size), arrays_on(other, size)
    times, copy = repeats_of(size), lambda: copy_async(target, source, gpu.stream)
    found = {"copy on a card": in_graph(gpu, lambda: copy_async(target, own, gpu.stream), times)}
    if not connect(gpu.card, other.card):
        return found | {"copy through the host": one_by_one(gpu, copy, times)}
    found["copy"] = in_graph(gpu, copy, times)
    if adds_across(gpu.card, other.card):
        found["add"] = in_graph(gpu, lambda: add(target, source), times)
    with without_access(gpu, other):
        found["copy through the host"] = one_by_one(gpu, copy, times)
    return found


def edges(gpu, other):
    """Microseconds from an empty kernel to the next that waits for it, on one card, and in turn on both."""
    kernels = {}
    for device in (gpu, other):
        with device.as_current():
            kernels[device] = cupy.RawKernel(EMPTY, "empty")
            kernels[device]((1,), (32,), ())
            device.finish()

    def graph(devices):
        here = devices[0]

        def issue():
            for _ in range(REPEATS):
                for one, following in itertools.pairwise([*devices, here]):
                    with one.as_current():
                        kernels[one]((1,), (32,), ())
                        event = one.mark()
                    with following.as_current():
                        following.stream.wait_event(event)

        with here.as_current():
            return time_graph(here.stream, capture(here.stream, issue), 2 * REPEATS)

    return {"on a card": graph([gpu, gpu]), "between cards": graph([gpu, other])}


def show(row):
    for way, found in row["ways"].items():
        speed = row["bytes"] / found["median"] / 1e3
        print(
            f"{row['from']:>6}{row['to']:>6}{row['bytes']:>12}  {way:24}{found['median']:>10.2f}{speed:>9.1f}",
            flush=True,
        )


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cards", type=int, default=2, metavar="K", help="each two of the first K (default: 2)")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    gpus = [d2l.gpu(i) for i in range(min(options.cards, d2l.num_gpus()))]
    result = measured_on() | {"messages": [], "edges": []}

    def keep(kind, row):
        result[kind].append(row)
        if options.json:
            write_json(options.json, result)

    print(f"{'from':>6}{'to':>6}{'bytes':>12}  {'way':24}{'us':>10}{'GB/s':>9}")
    for gpu, other in itertools.permutations(gpus, 2):
        for size in SIZES:
            row = {"from": other.card, "to": gpu.card, "bytes": size, "ways": ways_to(gpu, other, size)}
            show(row)
            keep("messages", row)
    for gpu, other in itertools.combinations(gpus, 2):
        if connect(gpu.card, other.card):
            found = edges(gpu, other)
            told = ", ".join(f"{where} {times['median']:.2f} us" for where, times in found.items())
            print(f"{gpu} and {other}: an edge of a graph {told}", flush=True)
            keep("edges", {"cards": [gpu.card, other.card], "edge": found})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
