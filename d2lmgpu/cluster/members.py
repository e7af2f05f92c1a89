"""A cluster: the devices of all processes, in order."""

import functools
import socket
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..base.arguments import MAX_DEVICES, check_number, check_whole, is_number
from ..base.text import listed, name_of
from ..collectives import Collective, check_algorithm, find_algorithm, hierarchical
from ..collectives.phases import compile_algorithm
from ..devices import DeviceError, Group, check_devices, try_gpu
from .communicator import Communicator, ProgressThread
from .exchange import Exchange, part_of
from .gather import add_gather, gather, rows_gathered
from .launch import NoDeviceError, begin_together, find_world, own_devices
from .nccl import add_nccl, all_reduce, check_nccl
from .rendezvous import PATIENCE, check_same_on_all_ranks, checksum_of_code, rendezvous
from .staging import add_staged, endpoint
from .watchdog import Watch, abort_unless_all_failed, end_together


class Place(NamedTuple):
    """A device as any process can name it: by its name, and by the rank and the host of its process."""

    device: str
    rank: int
    host: str

    def __str__(self):
        return f"{self.device} of rank {self.rank} ({self.host})"

    __repr__ = __str__


class Cluster(Group):
    """The devices of all processes in order: a `Device` for each of this process's own, a `Place` for every other.

    ``rank`` is the number of this process, counted from 0, ``size`` is the number of processes, and ``hosts`` lists the
    host of each process, by rank. ``mine`` are this process's devices, ``first`` is the number of the first of them
    among all, and ``places`` has the `Place` of every device. ``names`` are for display: without rank and host in a
    process that was started alone.
    """

    def __init__(self, mine, world, patience):
        self.mine, self.patience, self.world = mine, patience, world
        self.rank, self.size = (world.rank, world.size) if world else (0, 1)
        here = [str(device) for device in mine], socket.gethostname()
        present = rendezvous(world, here, patience) if world else [here]
        self.hosts = [host for _, host in present]
        each = [(rank, device) for rank, (devices, _) in enumerate(present) for device in devices]
        self.places = [Place(device, rank, self.hosts[rank]) for rank, device in each]
        self.owners = tuple(rank for rank, _ in each)
        self.first = self.owners.index(self.rank)
        self.names = [str(device) for device in (self.places if world else mine)]
        self._devices = [*self.places]
        self._devices[self.first : self.first + len(mine)] = mine
        if world:
            self.watch = Watch(world.Dup(), self.hosts, patience)
            heard = self.watch.heard
            self._communicators = {queue: Communicator(world.Dup(), heard) for queue in ("device", "comm stream")}
            self.progress = ProgressThread(world.Dup(), heard)
            self.watch.begin([*self._communicators.values(), self.progress])
            end_together(world, self.watch.leave, self.hosts[self.rank])
            check_same_on_all_ranks(world, {"the code of d2lmgpu": checksum_of_code()}, patience, "d2l.cluster()")

    def __repr__(self):
        return f"<cluster of {self.size}: {listed(self.places)}; this is rank {self.rank}>"

    def across(self, algorithm):
        """An allreduce over all devices of the cluster, for ``d2l.allreduce(arrays, cluster.across("ring"))``.

        Each process passes the arrays of its own devices, in their order; all processes call their allreduces in the
        same order. ``algorithm`` is a name or a function, as `allreduce` takes it, or "mpi": MPI_Allreduce, where MPI
        chooses the algorithm. With "hierarchical", the devices of each process are a group. The arrays of GPUs travel
        through the hosts' memory (staging.py), except with "nccl", which moves them from card to card.

        Raises ValueError for unknown algorithms, DeviceError for "mpi" if there is only one process, and for "nccl"
        with several processes unless every device of the cluster is a GPU on a card of its own.
        """
        if algorithm == "mpi" and self.size == 1:
            raise DeviceError("allreduce 'mpi' needs several processes with devices: use mpiexec -n 2, or 'ring'")
        if algorithm != "mpi":
            check_algorithm(algorithm)
        if self.size == 1 or isinstance(algorithm, Collective):  # an object that this method made earlier
            return algorithm
        if algorithm == "nccl":
            check_nccl(self)
        schedules = None if algorithm in ("mpi", "nccl") else self.schedules(algorithm)
        return Across(self, name_of(algorithm) if callable(algorithm) else algorithm, schedules)

    def mean(self, numbers):
        """The mean of the numbers over all devices; a process's numbers count for each of its devices."""
        return gather(self, [numbers] * len(self.mine)).mean(axis=0).tolist()

    def rows_later(self, batch, tasks, tell):
        """Gather a row from each device of all processes; return a function to call when the batch is done."""
        if self.size == 1:
            return super().rows_later(batch, tasks, tell)
        rows = add_gather(batch, self, 3, [functools.partial(_row, task, tell) for task in tasks])
        return lambda: rows_gathered(rows, self).tolist()

    def schedules(self, algorithm):
        """The function of k and n that makes an algorithm's schedules; ``algorithm`` is a name or such a function."""
        if algorithm != "hierarchical" or self.size == 1:
            return find_algorithm(algorithm)
        numbers = range(len(self))
        groups = [[i for i in numbers if self.owners[i] == rank] for rank in range(self.size)]
        return functools.partial(hierarchical, groups=groups)

    def failed(self, error):
        """Call this if an ``error`` has ended this process's work: it ends all processes, unless all of them call it.

        They have a few seconds to do so (`watchdog.FAIRNESS`).
        """
        if self.world:
            abort_unless_all_failed(self.world, self.hosts[self.rank], error)

    def communicator(self, devices):
        """The `Communicator` of ``devices``, which are this process's devices or their comm streams."""
        return self._communicators["device" if devices[0].main is devices[0] else "comm stream"]


def _row(task, tell):
    """The numbers of a device's row, on the host; runs on the device."""
    raw = task.value.raw
    return [*(raw if isinstance(raw, np.ndarray) else raw.get()).tolist(), tell]


class Across:
    """A collective over the devices of a cluster of several processes, which `Cluster.across` makes for allreduces.

    ``schedules``: the function of k and n that makes its schedules; None for the library ``name``, "mpi" or "nccl".
    """

    def __init__(self, cluster, name, schedules):
        self.cluster, self.name, self.schedules = cluster, name, schedules

    def add_to(self, batch, data):
        """Add to a batch: sum the arrays of this process's devices, in place, over all devices of the cluster.

        Raises ValueError unless there is one array for each of this process's devices, in their order.
        """
        devices, cluster = [array.device for array in data], self.cluster
        mains = [device.main for device in devices]
        # The arrays may also be in the host's memory, on the devices that stand for GPUs there, as in `gather`.
        if mains != cluster.mine and mains != [endpoint(device) for device in cluster.mine]:
            raise ValueError(
                f"allreduce across a cluster: the arrays are on [{listed(devices)}], but there must be one on each of "
                f"this process's devices, in their order: [{listed(cluster.mine)}]"
            )
        if self.schedules is None and self.name == "nccl":
            add_nccl(batch, cluster, data)
            return
        flat, communicator = [array.raw.reshape(-1) for array in data], cluster.communicator(devices)
        size, dtype = flat[0].size, flat[0].dtype
        if self.schedules is None:
            work = functools.partial(all_reduce, communicator)
        else:
            compiled = compile_algorithm, self.schedules, len(cluster), size, False
            part = part_of(cluster.owners, cluster.rank, *compiled)
            work = Exchange(lambda _: f"allreduce {self.name}", part, cluster.places, devices, dtype, communicator).run
        add_staged(batch, devices, flat, size, dtype, work)


def as_cluster(devices):
    """``devices`` if it is a `Cluster`, otherwise a cluster of these devices of this process (None: `try_gpu()`)."""
    mine = [try_gpu()] if devices is None else devices
    return devices if isinstance(devices, Cluster) else Cluster(check_devices(mine), None, PATIENCE)


_clusters = {}
"""The clusters made so far, by the requests of all processes."""

_computing = None
"""What `own_devices` found: the communicator of the processes that have devices, or the NoDeviceError that it raised in
this process; None before it is called."""


def cluster(devices: int | Sequence = 1, patience=PATIENCE) -> Cluster:
    """The devices of all processes that mpiexec or srun started together, or of a process that was started alone.

    ``devices``: how many devices each process takes at most: GPUs that no other process on its machine has taken, or
    virtual devices if no process has a GPU. It may also be a list of this process's own devices, or of their names,
    such as ["cpu:0"]. All processes call this, and wait for each other here. A process that waits longer than
    ``patience`` seconds for another, here or in an exchange, names it and ends all processes with a nonzero exit code.
    An uncaught error in a process ends all of them, too.

    Raises ValueError for invalid ``devices``, and in all processes if they run different versions of this package.
    Raises DeviceError if the processes cannot find each other, and NoDeviceError in a process that gets no GPU while
    others have one; the others compute without it.
    """
    global _computing
    patience = float(check_number("patience", patience, above=0))
    begin_together()
    by_number = is_number(devices)
    if by_number:
        devices = check_whole("devices: the number of them", devices, most=MAX_DEVICES)
    else:
        devices = check_devices(devices)
    key = (devices if by_number else tuple(devices)), patience
    world = find_world(patience)
    if world:
        if by_number and isinstance(_computing, NoDeviceError):
            raise _computing
        world = _computing if by_number and _computing else world
        key = tuple(rendezvous(world, repr(key), patience))  # the same in all processes
    if key not in _clusters:
        mine = devices
        if by_number:
            try:
                mine, world = own_devices(world, devices, patience)
            except NoDeviceError as error:
                _computing = error
                raise
            _computing = world
        _clusters[key] = Cluster(mine, world, patience)
    return _clusters[key]
