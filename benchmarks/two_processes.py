"""What of two devices' loss is the machine's? Two devices of one process beside two processes that share nothing.

    python benchmarks/two_processes.py --json benchmarks/results/cpu_two_processes.json

In each round one device trains alone, then two devices train together, then two processes with one device each train
at the same time, each on all of the data. Quoted is the work done in a second, of what one device alone does: medians,
with the quartiles. What two processes gain, the machine has to give.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from compare_splits import circumstances

from d2lmgpu.base.files import write_json

EPOCHS = 3
"""Of which the fastest counts, but not the first."""


def start(devices, limit, folder):
    """A process that trains, and its result's file."""
    file = Path(tempfile.mktemp(suffix=".json", dir=folder))
    words = ["train", "--devices", devices, "--epochs", EPOCHS, "--limit", limit, "--init", "he", "--json", file]
    command = [sys.executable, "-m", "d2lmgpu", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), file


def seconds_of(process, file):
    """Seconds of an epoch."""
    if process.wait():
        raise SystemExit(f"{' '.join(map(str, process.args))} ended with {process.returncode}")
    return min(json.loads(file.read_text())["seconds_per_epoch"][1:])


def quoted(factors):
    low, median, high = statistics.quantiles(factors, n=4)
    return {"median": median, "quartiles": [low, high], "all": factors}


def main():
    parser = argparse.ArgumentParser(description="Two devices beside two processes.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit", type=int, default=12288, help="training examples")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = {"two devices of one process": [], "two processes": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            alone = seconds_of(*start(1, options.limit, folder))
            together = seconds_of(*start(2, options.limit, folder))
            each = [seconds_of(*one) for one in [start(1, options.limit, folder) for _ in range(2)]]
            found["two devices of one process"].append(alone / together)
            found["two processes"].append(sum(alone / seconds for seconds in each))
    result = {"circumstances": circumstances("")} | {name: quoted(factors) for name, factors in found.items()}
    for name in found:
        low, high = result[name]["quartiles"]
        print(f"{name}: {result[name]['median']:.2f} times one device's work (quartiles {low:.2f} to {high:.2f})")
    if options.json:
        write_json(options.json, result)


if __name__ == "__main__":
    main()
