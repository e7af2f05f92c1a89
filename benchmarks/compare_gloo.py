"""Our allreduce beside PyTorch's gloo, and beside the machine's copy bandwidth; then predictions beside measurements.

    pip install torch==2.13.0
    python benchmarks/compare_gloo.py --json FILE

1. LeNet's gradients (129,068 float32, 516 kB): ours on two virtual devices of one
   process, gloo's between two processes, in turn, 15 times each.
2. 64 MB: ours beside NumPy's copy of 64 MB on one thread and on two at once.
3. The simulator: constants fitted on sizes of 2¹³, 2¹⁵, … bytes, judged on 2¹², 2¹⁴, … 2²⁶, k = 2, 4, 8.
"""

import argparse
import multiprocessing
import os
import statistics
import sys
import threading
import time
from datetime import date

import numpy as np

import d2lmgpu as d2l
from d2lmgpu import collectives
from d2lmgpu.base.files import as_json, write_json
from d2lmgpu.collectives.benchmark import predict
from d2lmgpu.devices import count_cores
from d2lmgpu.devices.discovery import processor_name

N = 129_068
SHORT = sys.modules["d2lmgpu.collectives.execute"].SHORT
ALGORITHMS = {name: f for name, f in collectives.ALGORITHMS.items() if name != "none"}


def gloo_process(rank, port, pipe):
    """Answer each request for a number of allreduces with their times; None ends."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    data = torch.ones(N)
    while (repeats := pipe.recv()) is not None:
        seconds = []
        for _ in range(repeats):
            data.fill_(rank + 1)
            dist.barrier()
            begin = time.perf_counter()
            dist.all_reduce(data)
            seconds.append(time.perf_counter() - begin)
        assert data[0] == data[-1] == 3
        pipe.send(seconds)
    dist.destroy_process_group()


def beside_gloo():
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(2)]
    port = 29_500 + os.getpid() % 1000
    workers = [context.Process(target=gloo_process, args=(rank, port, pipes[rank][1])) for rank in range(2)]
    for worker in workers:
        worker.start()
    devices = [d2l.cpu(0), d2l.cpu(1)]
    ours = {name: [] for name in ("ring", "naive")}
    theirs = []
    for turn in range(16):
        for pipe, _ in pipes:
            pipe.send(50)
        gloo = [pipe.recv() for pipe, _ in pipes]
        for name, times in ours.items():
            row = next(iter(collectives.measure_allreduce(devices, [name], [4 * N])))
            if turn:  # the first is a warm-up
                times.append(row.seconds)
        if turn:
            theirs.append(statistics.median(map(max, zip(*gloo, strict=True))))
    for pipe, _ in pipes:
        pipe.send(None)
    for worker in workers:
        worker.join()
    result = {"bytes": 4 * N, "gloo_seconds": spread(theirs)}
    for name, times in ours.items():
        result[f"{name}_seconds"] = spread(times)
        result[f"gloo_over_{name}"] = spread([g / t for g, t in zip(theirs, times, strict=True)])
    return result


def beside_copies():
    n = 2**24
    buffers = [(np.ones(n, np.float32), np.empty(n, np.float32)) for _ in range(2)]
    devices = [d2l.cpu(0), d2l.cpu(1)]
    seconds = {"copy_one_thread": [], "copy_two_threads": [], "ring": []}
    for turn in range(11):
        begin = time.perf_counter()
        np.copyto(buffers[0][1], buffers[0][0])
        middle = time.perf_counter()
        threads = [threading.Thread(target=np.copyto, args=(to, source)) for source, to in buffers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        end = time.perf_counter()
        row = next(iter(collectives.measure_allreduce(devices, ["ring"], [4 * n])))
        if turn:
            seconds["copy_one_thread"].append(middle - begin)
            seconds["copy_two_threads"].append((end - middle) / 2)  # two copies in that time
            seconds["ring"].append(row.seconds)
    gigabytes = {name: spread([4 * n / t / 1e9 for t in times]) for name, times in seconds.items()}
    ratios = [c / r for c, r in zip(seconds["copy_two_threads"], seconds["ring"], strict=True)]
    return {"bytes": 4 * n, "gigabytes_per_second": gigabytes, "ring_over_copy_two_threads": spread(ratios)}


def simulated():
    rows = []
    for k in (2, 4, 8):
        devices = [d2l.cpu(i) for i in range(k)]
        rows += collectives.measure_allreduce(devices, list(ALGORITHMS), [2**i for i in range(12, 27)])
    # Short ones run on one thread, longer ones on the devices' threads: two kinds of constants.
    constants, judged, predicted = {}, [], []
    for name, some, cores in (
        ("short", [row for row in rows if row.bytes <= SHORT], 1),
        ("long", [row for row in rows if row.bytes > SHORT], count_cores()),
    ):
        fitted = [row for row in some if row.bytes.bit_length() % 2 == 0]
        others = [row for row in some if row.bytes.bit_length() % 2 == 1]
        constants[name] = collectives.fit_virtual_devices(fitted, ALGORITHMS, cores)
        network = collectives.virtual_devices(constants[name], cores)
        predicted += predict(others, ALGORITHMS, network).tolist()
        judged += others
    errors = np.abs(np.array(predicted) / [row.seconds for row in judged] - 1)
    summary = {"constants": constants, "median_error": float(np.median(errors)), "judged": len(judged)}
    for k in (2, 4, 8):
        mine = [error for error, row in zip(errors, judged, strict=True) if row.devices == k]
        summary[f"median_error_{k}_devices"] = float(np.median(mine))
    return summary


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "n": len(values)}


def main():
    parser = argparse.ArgumentParser(description="Our allreduce beside gloo's, beside copies, and as predicted.")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    result = {
        "machine": f"{processor_name()}, {count_cores()} cores",
        "date": date.today().isoformat(),
        "lenet_gradients_two_devices": beside_gloo(),
        "64_MB_two_devices": beside_copies(),
        "simulator": simulated(),
    }
    print(as_json(result, indent=2))
    if options.json:
        write_json(options.json, result)


if __name__ == "__main__":
    main()
