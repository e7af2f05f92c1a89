"""Clusters whose processes are threads of this one, each with devices of its own, for tests without MPI."""

import threading
from types import SimpleNamespace

from mpi_in_threads import comms

from d2lmgpu.cluster import Cluster, Place
from d2lmgpu.cluster.communicator import Communicator, ProgressThread
from d2lmgpu.devices import cpu, gpu
from d2lmgpu.devices.cpu import CPU
from d2lmgpu.devices.workers import Workers

hired, progressing = [], []
"""Workers of a process each, until `dismiss` ends their threads, which hold the devices and all their memory.

And what has a progress thread.
"""


class OwnCPU(CPU):
    """A virtual device whose workers are its process's: nobody else's waiting takes them."""

    def _make_comm_stream(self):
        return OwnCPU(self.index, hire(1))


def hire(count):
    hired.append(Workers(count))
    return hired[-1]


def dismiss():
    """To be called when nothing is asked of these devices any more. Who waits in an exchange for ever still does."""
    for workers in hired:
        workers._count = 0
        for _ in range(workers._threads):
            workers._in_line.put(SimpleNamespace(work=bool))  # nothing to do
    hired.clear()
    while progressing:
        progressing.pop().give_up(ConnectionError("dismissed"))


class ThreadsCluster(Cluster):
    """That of one rank; ``split`` is how many devices each has. ``kinds``: of each rank's devices, "cpu" or "gpu".

    GPUs are those of one machine, in order.
    """

    def __init__(self, rank, split, communicators, kinds=None):
        kinds = kinds or ["cpu"] * len(split)
        workers = hire(split[rank])
        self.mine = [OwnCPU(i, workers) for i in range(split[rank])]
        before = sum(n for n, kind in zip(split[:rank], kinds[:rank], strict=True) if kind == "gpu")
        if kinds[rank] == "gpu":
            self.mine = [gpu(before + i) for i in range(split[rank])]
        self.rank, self.size, self.patience, self.world = rank, len(split), 60.0, None
        self.hosts = [f"host{rank}" for rank in range(len(split))]
        self.places = [
            Place(f"{kinds[rank]}({i})", rank, self.hosts[rank]) for rank, n in enumerate(split) for i in range(n)
        ]
        self.owners = tuple(place.rank for place in self.places)
        self.first = self.owners.index(rank)
        self.names = list(map(str, self.places))
        self._devices = [*self.places]
        self._devices[self.first : self.first + len(self.mine)] = self.mine
        self.progress = ProgressThread(communicators["progress"], [0.0] * len(split))
        progressing.append(self.progress)
        self._communicators = {
            name: Communicator(comm, [0.0] * len(split)) for name, comm in communicators.items() if name != "progress"
        }


def in_each(split, function, eager=True, kinds=None):
    """What ``function(cluster)`` returns in each process of a cluster, in a list; raises the first error of one.

    ``eager``: as of `comms`. ``kinds``: as of `ThreadsCluster`; virtual devices unless given.
    """
    names = "device", "comm stream", "progress"
    communicators = [
        dict(zip(names, own, strict=True)) for own in zip(*(comms(len(split), eager) for _ in names), strict=True)
    ]
    results, errors = [None] * len(split), []

    def run(rank):
        try:
            results[rank] = function(ThreadsCluster(rank, split, communicators[rank], kinds))
        except BaseException as error:
            errors.append(error)

    cpu(0).synchronize()  # sets BLAS up, in this thread
    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(split))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        if errors:
            raise errors[0]
        assert not thread.is_alive()
    return results
