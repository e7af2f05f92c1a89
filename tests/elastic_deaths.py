"""Ranks that die while they do a certain thing: `mpiexec --with-ft ulfm -n 4 python tests/elastic_deaths.py …`.

`elastic_deaths.py FILE DEATHS SETTINGS` trains, and rank 0 writes what was learned to the file; of the ranks in DEATHS,
{rank: [moment, how often it has come before]}, each dies at that `MOMENTS`.
"""

import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

import d2lmgpu as d2l
from d2lmgpu.cluster import Cluster
from d2lmgpu.cluster.elastic import Elastic
from d2lmgpu.networks import Conv2d, Dense, Flatten, MaxPool2d, ReLU, sequential
from d2lmgpu.plans.store import Store
from d2lmgpu.training import saving
from d2lmgpu.training.loop import Loop

MOMENTS = {
    "computation": (Store, "_B"),
    "exchange": (Elastic, "all_reduce"),  # the step's first sum: the others wait in it
    "vote": (Elastic, "vote"),
    "update": (Store, "_update"),  # all know by then that all will
    "evaluation": (Loop, "_evaluate"),
    "checkpoint": (saving, "save_checkpoint"),
    "going on": (Loop, "_go_on"),  # another has just died
    "shrink": (Elastic, "shrink"),
    "joined": (Cluster, "become_elastic"),
    "error": (Store, "_update"),  # no death
}


def die_in(moment, after):
    """This process is killed when the moment comes, after so many times."""
    where, name = MOMENTS[moment]
    function, left = getattr(where, name), [after]

    def die(*args, **named):
        left[0] -= 1
        if left[0] < 0:
            if moment == "error":
                raise KeyError("bad luck")
            if moment == "checkpoint":
                Path(f"{args[0]}.part").write_bytes(b"half of it")
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **named)

    setattr(where, name, die)


def on_stand_ins():
    """With GPUs that are as strict as CUDA, with the kernels, and granules of two examples; what is trained then."""
    import pytest
    import standin_cupy
    from conftest import use_tiny_granules

    patch = pytest.MonkeyPatch()
    use_tiny_granules(patch)
    standin_cupy.install(patch, cards=1)
    patch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", True)
    layers = Conv2d(3, 3), ReLU(), MaxPool2d(), Flatten(), Dense(9), ReLU(), Dense(10)
    return {"network": sequential((1, 12, 12), *layers), "batch_size": 11, "data": data((24, 9), 12)}


def data(sizes=(330, 130), width=28):
    """Some pictures of noise; so many of the usual ones that the last granules are smaller."""
    rng = np.random.default_rng(0)
    parts = [(rng.integers(0, 256, (n, 1, width, width), np.uint8), rng.integers(0, 10, n)) for n in sizes]
    return [array for part in parts for array in part]


def main():
    file, deaths, settings = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    usual = {"batch_size": 130, "num_epochs": 3, "init": "he", "lr": 0.05, "progress": False, "data": data()}
    on_gpus = settings.get("devices") == ["gpu:0"]
    if on_gpus:
        usual |= on_stand_ins()
    everybody = d2l.cluster(settings.pop("devices", 1), patience=20)
    moment, after = deaths.get(str(everybody.rank), (None, 0))
    if moment:
        die_in(moment, after)
    history, _ = d2l.train(everybody, elastic=True, **usual | settings)
    told = history.as_dict()
    if everybody.rank == 0:
        if on_gpus:
            told["alone"] = d2l.train(everybody.mine, sums="exact", graphs=False, **usual | settings).history.as_dict()
        Path(file).write_text(json.dumps(told))


if __name__ == "__main__":
    main()
