"""What does the way through this package add to MPI's own call? Allreduces of LeNet's gradients between two processes.

    mpiexec -n 2 python benchmarks/compare_mpi.py --json benchmarks/results/cpu_mpi.json

Beside each other, in turns of ten calls after a barrier: MPI_Allreduce itself, called by mpi4py from the host program
(the raw call); the same from a device's queue; and `d2l.allreduce` with "mpi" and with "ring", where the host program
waits for each (as `d2lmgpu allreduce` does), or for the last only, as in training, where it is ahead of the devices.
Quoted are milliseconds of one call, medians with quartiles, and factors of the raw call's, round by round.
"""

import argparse
import functools
import time
from pathlib import Path

import numpy as np
from compare_splits import circumstances
from mpi4py import MPI

import d2lmgpu as d2l
from d2lmgpu.base.files import write_json

N = 129_068
"""Numbers, float32, of LeNet's gradients."""
CALLS = 10


def variants(cluster):
    """What is timed: functions of no arguments, by name."""
    plain, device = np.zeros(N, np.float32), cluster.mine[0]
    data = [d2l.put(plain, device) for device in cluster.mine]

    def raw():
        MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, plain, MPI.SUM)

    found = {"the raw call": raw, "the raw call, in a queue": lambda: device.submit(raw).result()}
    for name in ("mpi", "ring"):
        across = cluster.across(name)

        def alone(across=across):
            d2l.allreduce(data, across)
            d2l.synchronize(cluster.mine)

        found[f"{name}, one by one"] = alone
        found[f"{name}, in a row"] = functools.partial(d2l.allreduce, data, across)
    return found


def seconds_of(function, devices):
    """Of one call, of several after which the devices are waited for."""
    MPI.COMM_WORLD.Barrier()
    begin = time.perf_counter()
    for _ in range(CALLS):
        function()
    d2l.synchronize(devices)
    return (time.perf_counter() - begin) / CALLS


def main():
    parser = argparse.ArgumentParser(description="This package's allreduces beside MPI's own call.")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cluster = d2l.cluster()
    timed = variants(cluster)
    rounds = [
        {name: seconds_of(each, cluster.mine) for name, each in timed.items()} for _ in range(1 + options.rounds)
    ][1:]
    if cluster.rank:
        return
    result = circumstances("") | {"bytes": 4 * N, "processes": cluster.size, "milliseconds": {}, "factors": {}}
    for name in timed:
        seconds = np.array([each[name] for each in rounds])
        factors = seconds / [each["the raw call"] for each in rounds]
        for what, values in (("milliseconds", 1000 * seconds), ("factors", factors)):
            low, median, high = np.percentile(values, [25, 50, 75]).tolist()
            result[what][name] = {"median": median, "quartiles": [low, high]}
        low, high = result["factors"][name]["quartiles"]
        print(
            f"{name:26s} {result['milliseconds'][name]['median']:.3f} ms, "
            f"{result['factors'][name]['median']:.2f} times the raw call's (quartiles {low:.2f} to {high:.2f})"
        )
    if options.json:
        write_json(options.json, result)


if __name__ == "__main__":
    main()
