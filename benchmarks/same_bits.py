"""Answers: do exact sums give one result, whatever number of devices there is, and whatever they do?

    python benchmarks/same_bits.py --json benchmarks/results/cpu_same_bits.json

Each run of `RUNS` is trained for ten steps, the last of them ragged, in all `ways`, by one process and, started by
mpiexec, by two and three. For comparison one process does the same with float sums. Checksums tell results apart.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from quoted import circumstances, write

import d2lmgpu as d2l
from d2lmgpu.base.files import write_json
from d2lmgpu.collectives import ALGORITHMS, chunk_bounds
from d2lmgpu.networks import Conv2d, Dense, Dropout, Flatten, MaxPool2d, ReLU, sequential

DROPPING = sequential(
    (1, 28, 28), Conv2d(6, 5), ReLU(), MaxPool2d(), Dropout(0.2), Flatten(), Dense(40), ReLU(), Dropout(0.5), Dense(10)
)

RUNS = {
    "SGD": {"lr": 0.1},
    "Adam": {"optimizer": "adam", "lr": 0.002},
    "dropout": {"network": DROPPING, "lr": 0.1},
}
"""What is learned, by a name: settings that decide it."""

K = 1, 2, 3, 5, 8
UNEVEN = [1.0, 0.5, 2.0, 0.0, 1.0, 3.0, 1.0, 0.25]
EXAMPLES, TESTED = 9 * 256 + 97, 300


def ways():
    """Pairs of a number of devices, and settings that only say who does what."""
    for k, algorithm in itertools.product(K, [name for name in ALGORITHMS if name != "none"]):
        yield k, {"algorithm": algorithm}
        if k > 1:
            yield k, {"algorithm": algorithm, "loads": UNEVEN[:k]}


def train(run, devices, way, sums="exact", examples=EXAMPLES):
    """The checksum of the parameters after an epoch, and the loss per example, train and test accuracy."""
    X, y, X_test, y_test = d2l.load_fashion_mnist()
    data = X[:examples], y[:examples], X_test[:TESTED], y_test[:TESTED]
    how = {"num_epochs": 1, "init": "he", "seed": 1, "sums": sums, "progress": False, "data": data}
    history = d2l.train(devices, **how, **RUNS[run], **way).history
    reached = history.train_loss + history.train_accuracy + history.test_accuracy
    return history.final_parameters_sha256, *reached


def table(processes, rank, most):
    """Rows (run, sums, devices, way, checksum, loss, accuracies) for devices of so many processes; this one has a rank.

    ``most``: ways of each run, evenly chosen.
    """
    rows, devices_of = [], {}
    for run in RUNS:
        chosen = [(k, way) for k, way in ways() if k >= processes]
        for k, way in chosen[:: max(1, len(chosen) // most)]:
            for sums in ("exact", "float") if processes == 1 else ("exact",):
                if k not in devices_of:
                    count = [stop - start for start, stop in chunk_bounds(k, processes)][rank]
                    names = [f"cpu:{i}" for i in range(count)]
                    devices_of[k] = d2l.cluster(names) if processes > 1 else names
                rows.append((run, sums, k, name_of(way), *train(run, devices_of[k], way, sums)))
    return rows


def name_of(way):
    return ", ".join(f"{name} {value}" for name, value in way.items())


def main():
    parser = argparse.ArgumentParser(description="Is it one result, whoever computes it?")
    parser.add_argument("--most", type=int, default=10**6, help="ways of each run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--of", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.of:  # one of several processes
        from mpi4py import MPI

        rows = table(int(options.of[0]), MPI.COMM_WORLD.rank, options.most)
        if MPI.COMM_WORLD.rank == 0:
            write_json(options.of[1], rows)
        return
    rows = [(1, *row) for row in table(1, 0, options.most)]
    for processes in 2, 3:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "rows.json"
            words = [__file__, "--most", options.most, "--of", processes, file]
            subprocess.run(["mpiexec", "-n", str(processes), sys.executable, *map(str, words)], check=True)
            rows += [(processes, *row) for row in json.loads(file.read_text())]
    columns = {}
    for run in RUNS:
        of = {sums: [row for row in rows if row[1:3] == (run, sums)] for sums in ("exact", "float")}
        found = {sums: Counter(tuple(row[5:]) for row in of[sums]) for sums in of}
        losses = {sums: [row[6] for row in of[sums]] for sums in of}
        columns[run] = {
            "ways": len(of["exact"]),
            "different results": {sums: len(found[sums]) for sums in found},
            "different parameters": {sums: len({row[5] for row in of[sums]}) for sums in of},
            "checksum": sorted({row[5] for row in of["exact"]}),
            "loss": {sums: [min(losses[sums]), max(losses[sums])] for sums in losses},
        }
        usual = found["exact"].most_common(1)[0][0]
        for processes, _, _, k, way, *result in of["exact"]:
            if tuple(result) != usual:
                print(f"another result: {k} devices of {processes} processes, {way}")
        counts = columns[run]["different results"]
        print(
            f"{run:10} {len(of['exact'])} ways: exact {counts['exact']}, float {counts['float']} different results; "
            f"loss {losses['exact'][0]:.6f}, float {min(losses['float']):.6f} to {max(losses['float']):.6f}"
        )
    if options.json:
        write(options.json, {"circumstances": circumstances(), "columns": columns})
    sys.exit(any(column["different results"]["exact"] != 1 for column in columns.values()))


if __name__ == "__main__":
    main()
