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


def data():
    """Some pictures of noise: 330 and 130, so that the last granules are smaller."""
    rng = np.random.default_rng(0)
    sizes = 330, 130
    parts = [(rng.integers(0, 256, (n, 1, 28, 28), np.uint8), rng.integers(0, 10, n)) for n in sizes]
    return [array for part in parts for array in part]


def main():
    file, deaths, settings = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
    everybody = d2l.cluster(settings.pop("devices", 1), patience=20)
    moment, after = deaths.get(str(everybody.rank), (None, 0))
    if moment:
        die_in(moment, after)
    usual = {"batch_size": 130, "num_epochs": 3, "init": "he", "lr": 0.05, "progress": False, "elastic": True}
    history, model = d2l.train(everybody, data=data(), **usual | settings)
    if everybody.rank == 0:
        Path(file).write_text(json.dumps(history.as_dict()))


if __name__ == "__main__":
    main()
