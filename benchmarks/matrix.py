"""Answers: which settings go with which splits, and do these learn what one device learns?

    python benchmarks/matrix.py --page docs/splits.md

A table of settings and splits: = where four devices learn what one learns, up to rounding, otherwise why not, in the
words of the error. A difference ends the program with 1. Each is trained in four `PLACES`: on virtual devices, on those
of three processes (which are threads here), on stand-ins for GPUs kernel by kernel, whose layers compute as they are
written, and on stand-ins in CUDA graphs, with the kernels. What cannot be `done_in` a place is left out there.
"""

import argparse
import re
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent.parent / "tests"))
import standin_cupy
from clusters_in_threads import dismiss, in_each
from conftest import forget_gpus

import d2lmgpu as d2l
from d2lmgpu.networks import BatchNorm, Conv2d, Dense, Dropout, Flatten, MaxPool2d, ReLU, channels, sequential
from d2lmgpu.training import Settings
from d2lmgpu.training.splits import PIPELINES, SPLITS, plan_of

K, TOLERANCE, TOLERANCE_OF_HALF = 4, 1e-3, 3e-2
LEAST = 1e-3
"""Of a parameter's numbers, to which differences are relative: a bias before batch norm stays 0, but for rounding."""
WAYS = {split: {"split": split} for split in SPLITS}
WAYS |= {name: {"split": "layers", "pipeline": name, "micro_batches": 3} for name in PIPELINES}
WAYS |= {"data=2,layers=2": {"split": "data=2,layers=2", "micro_batches": 2}}


def network(*more):
    """Four layers with parameters, and sizes that no number of devices divides; ``more`` after the first."""
    layers = Conv2d(3, 3), *more, ReLU(), MaxPool2d(), Conv2d(5, 2), ReLU(), Flatten(), Dense(9), ReLU(), Dense(10)
    return sequential((1, 12, 11), *layers)


def absolute(outputs, y):
    """A loss of one's own: the absolute differences."""
    return np.abs(outputs - y).sum(dtype=np.float64), (outputs, y)


def absolute_grad(cache):
    """Its gradient."""
    return np.sign(np.subtract(*cache))


def noisy(X, y, rng):
    """A preprocess function that draws."""
    return X + np.float32(0.1) * rng.random(X.shape, dtype=np.float32), y


SETTINGS = {
    "momentum": {"optimizer": "momentum"},
    "adam": {"optimizer": "adam", "lr": 0.002},
    "schedule, by step": {"schedule": "cosine"},
    "preprocess": {"preprocess": noisy},
    "dropout": {"network": network(Dropout(0.3))},
    "squared error": {"loss": "squared_error", "targets": True},
    "a loss of one's own": {"loss": (absolute, absolute_grad), "targets": True},
    "soft labels": {"targets": True},
    "loads": {"loads": [1, 0.5, 0.25, 0]},
    "drop_last": {"drop_last": True},
    "an allreduce by tree": {"algorithm": "tree"},
    "precision mixed": {"precision": "mixed"},
    "overlap": {"overlap": True},
    "batch norm": {"network": network(BatchNorm())},
}


def on_virtual_devices(train):
    """What ``train(devices)`` learns, parameters."""
    return train([d2l.cpu(i) for i in range(K)]).params


def in_processes(train):
    """Likewise, by a cluster of three processes, of which all learn the same."""
    try:
        results = in_each((2, 1, 1), train)
    finally:
        dismiss()
    assert len({result.history.final_parameters_sha256 for result in results}) == 1
    return results[-1].params


def on_stand_ins(train, graphs=False):
    """Likewise, by stand-ins for GPUs, as strict as CUDA."""
    forget_gpus()
    with pytest.MonkeyPatch.context() as patch:
        standin_cupy.install(patch, cards=K)
        patch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", graphs)  # they take a minute for each step
        result = train([d2l.gpu(i) for i in range(K)])
        assert graphs == (result.history.phases["step"] > 0)
        forget_gpus()
    return result.params


def as_graphs(train):
    """Likewise, in CUDA graphs."""
    return on_stand_ins(train, graphs=True)


PLACES = {
    "virtual devices": on_virtual_devices,
    "processes": in_processes,
    "stand-ins": on_stand_ins,
    "graphs": as_graphs,
}

NOT_IN_GRAPHS = {"preprocess", "dropout", "squared error", "a loss of one's own", "soft labels"}
NOT_IN_GRAPHS |= {"batch norm, synchronised", *WAYS} - {"data"}
"""Settings and ways to split with which steps are launched kernel by kernel."""


def done_in(place, setting, way):
    """Whether the steps can be CUDA graphs."""
    return place != "graphs" or not {setting, way} & NOT_IN_GRAPHS


def outcome(setting, way, place="virtual devices"):
    """ "=", or why the setting does not go with this way to split, or by how much parameters differ."""
    settings = {"network": network(), "batch_size": 11, "lr": 0.05, "num_epochs": 1, "init": "he", "progress": False}
    settings |= SETTINGS[setting]
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 256, (24, *settings["network"].input_shape), dtype=np.uint8), rng.integers(0, 10, 24)
    if settings.pop("targets", False):
        y = rng.dirichlet(np.ones(10), 24)
    data = X, y, X[:9], y[:9]
    try:
        found = PLACES[place](lambda devices: d2l.train(devices, data=data, **settings | WAYS[way]))
    except (ValueError, d2l.devices.DeviceError) as error:
        return re.sub(r"split '[^']*'", "this split", str(error))
    for name in ("loads", "overlap"):  # these are of several devices
        settings.pop(name, None)
    alone = 1
    if channels(settings["network"]):
        given = {name: value for name, value in (settings | WAYS[way]).items() if name != "progress"}
        alone = plan_of(Settings(**given), K, settings["network"]).micro_batches  # each has statistics of its own
    _, expected = d2l.train([d2l.cpu(i) for i in range(alone)], data=data, **settings)
    pairs = zip(found, expected, strict=True)
    difference = max(float(np.abs(one - other).max() / max(LEAST, np.abs(other).max())) for one, other in pairs)
    tolerance = TOLERANCE_OF_HALF if (setting, place) == ("precision mixed", "graphs") else TOLERANCE  # kernels round
    return "=" if difference <= tolerance else f"differs by {difference:.2g}"


def table(places):
    """Rows of the table, and each reason once. Where a place differs from the others, the cell says both."""
    rows, reasons = [], {}

    def cell(found):
        return found if found == "=" else str(reasons.setdefault(found, len(reasons) + 1))

    for setting in SETTINGS:
        row = []
        for way in WAYS:
            own = [place for place in places if done_in(place, setting, way)]
            cells = {place: cell(outcome(setting, way, place)) for place in own}
            same = len({*cells.values()}) == 1
            row.append(next(iter(cells.values())) if same else ", ".join(f"{p}: {c}" for p, c in cells.items()))
        rows.append((setting, row))
        print(setting, *row, flush=True)
    return rows, reasons


def page(rows, reasons):
    """The table in Markdown."""
    lines = [f"| | {' | '.join(f'`{way}`' for way in WAYS)} |", f"|---|{'---|' * len(WAYS)}"]
    lines += [f"| {setting} | {' | '.join(row)} |" for setting, row in rows]
    return "\n".join([*lines, "", *(f"{number}. {reason}" for reason, number in reasons.items())])


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--page", type=Path, help="a page with <!-- matrix --> and <!-- end of matrix -->")
    arguments = parser.parse_args()
    rows, reasons = table(PLACES)
    text = page(rows, reasons)
    print(text)
    if arguments.page:
        before = arguments.page.read_text(encoding="utf-8")
        within = r"(?s)(<!-- matrix -->\n).*(\n<!-- end of matrix -->)"
        arguments.page.write_text(re.sub(within, lambda m: m[1] + text + m[2], before), encoding="utf-8")
    return int(any(reason.startswith("differs") for reason in reasons))


if __name__ == "__main__":
    sys.exit(main())
