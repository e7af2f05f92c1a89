"""A cluster: the devices of all processes in order, of which this process has some."""

import contextlib
import functools
import socket
from collections.abc import Sequence
from typing import NamedTuple

from ..arguments import check_number, check_whole, is_number
from ..collectives import check_algorithm, hierarchical, schedules_of
from ..devices import MOST_DEVICES, DeviceError, check_devices, choose_devices
from ..devices.choose import given_devices
from ..words import listed, name_of
from . import ending
from .communicator import Communicator
from .exchange import Exchange
from .launch import NoDeviceError, begin_together, find_world, own_devices
from .library import add_nccl, all_reduce, check_nccl
from .part import part_of_algorithm
from .progress import ProgressThread
from .rendezvous import PATIENCE, agree, checksum_of_code, rendezvous
from .staging import add_down, add_up, endpoint
from .watch import Watch


class Place(NamedTuple):
    """A device of a process, as all processes know it."""

    device: str
    rank: int
    host: str

    def __str__(self):
        return f"{self.device} of rank {self.rank} ({self.host})"

    __repr__ = __str__


class Cluster(Sequence):
    """The devices of all processes in order: a `Device` for each of this process, a `Place` for each other.

    ``rank`` is the number of this process, from 0, ``size`` the number of processes, ``hosts[rank]`` where each runs.
    ``mine`` are this process's devices, ``first`` is the number of the first of them among all, and ``places`` has the
    `Place` of every device. ``names`` are for people: without rank and host if there is only one process.
    """

    def __init__(self, mine, world, patience):
        self.mine, self.patience, self.world = mine, patience, world
        self.rank, self.size = (world.rank, world.size) if world else (0, 1)
        here = [str(device) for device in mine], socket.gethostname()
        present = rendezvous(world, here, patience) if world else [here]
        self.hosts = [host for _, host in present]
        self.places = [Place(device, rank, host) for rank, (devices, host) in enumerate(present) for device in devices]
        self.owners = tuple(place.rank for place in self.places)
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
            ending.end_together(world, self.watch, self.hosts[self.rank])
            agree(world, {"the code of d2lmgpu": checksum_of_code()}, patience, "d2l.cluster()")

    def __len__(self):
        return len(self._devices)

    def __getitem__(self, index):
        return self._devices[index]

    def __repr__(self):
        return f"<cluster of {self.size}: {listed(self.places)}; this is rank {self.rank}>"

    def part(self, items):
        """The items of this process's devices, of a list with an item for each device of the cluster."""
        return items[self.first : self.first + len(self.mine)]

    def across(self, algorithm):
        """An allreduce over all devices of the cluster, for ``d2l.allreduce(arrays, cluster.across("ring"))``.

        Each process passes the arrays of its own devices, in their order; all processes call their allreduces in the
        same order. ``algorithm`` is a name or a function, as `allreduce` takes it, or "mpi": MPI_Allreduce, which
        chooses for itself. The groups of "hierarchical" are the processes. GPUs' arrays travel through the hosts'
        memory (staging.py), with "nccl" directly.

        Raises ValueError for unknown algorithms, DeviceError for "mpi" if there is only one process, and for "nccl"
        unless every device of the cluster is a GPU, each on a card of its own.
        """
        if algorithm == "mpi" and self.size == 1:
            raise DeviceError("allreduce 'mpi' is between processes; start several, with mpiexec -n 2")
        if algorithm != "mpi":
            check_algorithm(algorithm)
            if algorithm == "nccl" and self.size > 1:
                check_nccl(self)
        return algorithm if self.size == 1 else Across(self, algorithm)

    def schedules(self, algorithm):
        """The function of k and n that makes an algorithm's schedules; ``algorithm`` may be such a function."""
        return self._by_process if algorithm == "hierarchical" and self.size > 1 else schedules_of(algorithm)

    @functools.cached_property
    def _by_process(self):
        numbers = range(len(self))
        groups = [[i for i in numbers if self.owners[i] == rank] for rank in range(self.size)]
        return functools.partial(hierarchical, groups=groups)

    def failed(self, error):
        """Called with the error that ends this process's work: ends all processes, unless all of them call this."""
        if self.world:
            ending.unless_all_failed(self.world, self.hosts[self.rank], error)

    @contextlib.contextmanager
    def when_it_hangs(self, save):
        """Within the ``with`` block the process that reports a hang calls ``save()``, and adds what that returns."""
        if self.world:
            self.watch.save = save
        try:
            yield
        finally:
            if self.world:
                self.watch.save = None

    def communicator(self, devices):
        """The `Communicator` for work of these devices, or of their comm streams."""
        return self._communicators["device" if devices[0].main is devices[0] else "comm stream"]


class Across:
    """An allreduce by messages between the processes of a cluster. Made by `Cluster.across`."""

    def __init__(self, cluster, algorithm):
        self.cluster, self.algorithm = cluster, algorithm
        self.name = name_of(algorithm) if callable(algorithm) else algorithm

    def __repr__(self):
        return f"<{self.name} across {self.cluster!r}>"

    def add_to(self, batch, data):
        """Add to a batch: sum over the cluster, in place, the arrays of this process's devices.

        Raises ValueError unless there is one for each of them, in their order.
        """
        devices, cluster = [array.device for array in data], self.cluster
        mains = [device.main for device in devices]
        if mains != cluster.mine and mains != [endpoint(device) for device in cluster.mine]:
            raise ValueError(
                f"allreduce across a cluster: arrays on [{listed(devices)}]; needed are those of all of this process's "
                f"devices, in their order: [{listed(cluster.mine)}]"
            )
        if self.algorithm == "nccl":
            add_nccl(batch, cluster, data)
            return
        communicator = cluster.communicator(devices)
        flat, ends = [add_down(batch, array) for array in data], [endpoint(device) for device in devices]
        if self.algorithm == "mpi":
            exchanged = batch.submit_to_all(ends, all_reduce, flat, communicator)
        else:
            part = part_of_algorithm(cluster.schedules(self.algorithm), flat[0].size, cluster.owners, cluster.rank)
            places = cluster.places.copy()
            places[cluster.first : cluster.first + len(devices)] = devices  # perhaps comm streams
            records = part.note(places, flat[0].itemsize)
            arguments = self.name, part, cluster.places, ends, flat, records, communicator
            exchanged = batch.submit_to_all(ends, _carry_out, *arguments)
        for array, host in zip(data, flat, strict=True):
            add_up(batch, exchanged, array, host)


def _carry_out(name, part, places, devices, flat, records, communicator):
    """Runs on one of the process's devices, when it is the turn of this work on all of them."""
    first = part.owners.index(part.rank)
    devices = {first + i: device for i, device in enumerate(devices)}
    arrays = {first + i: array for i, array in enumerate(flat)}
    Exchange(name, part, places, devices, arrays, records, communicator).run()


def as_cluster(devices):
    """``devices`` if that is a `Cluster`, otherwise a cluster of this process alone; for None see `given_devices`."""
    return devices if isinstance(devices, Cluster) else Cluster(given_devices(devices), None, PATIENCE)


_clusters = {}
"""By what all processes asked for, and by the number of clusters that each of them knew to have ended by a hang."""

_computing = None
"""The communicator of the processes that have devices; in a process without any, its NoDeviceError."""


def cluster(devices=1, patience=PATIENCE):
    """The devices of all processes that mpiexec or srun started together; of a process started alone, its own devices.

    ``devices``: the largest number for each process: of GPUs that no other process on its machine has, or of virtual
    devices if no process has a GPU. Or this process's own devices as a list, or a list of their names, such as
    ["cpu:0"]. All processes call this, and wait for each other here. A process that waits longer than ``patience``
    seconds for another, here or in an exchange, names it and ends all processes with a nonzero exit code; so does an
    uncaught error.

    Raises ValueError for devices that make no sense, and in all processes if they run different versions of this
    package; DeviceError if the processes cannot find each other, and in a process without a GPU of its own while others
    have one: it does not compute, and is not needed. In interactive processes, notebooks' kernels and engines, waiting
    too long raises a HangError instead.
    """
    global _computing
    check_number("patience", patience, above=0)
    begin_together()
    if is_number(devices):
        check_whole("devices: the number of them", devices, most=MOST_DEVICES)
    elif isinstance(devices, list) and any(isinstance(device, str) for device in devices):
        devices = choose_devices(devices=devices)[1]
    patience, by_number = float(patience), is_number(devices)
    key = (devices if by_number else tuple(check_devices(devices))), patience
    world = find_world(patience)
    if world:
        if by_number and isinstance(_computing, NoDeviceError):
            raise _computing
        world = _computing if by_number and _computing else world
        hangs = sum(each.watch.hung for each in _clusters.values())
        key = tuple(rendezvous(world, (repr(key), hangs), patience))  # the same in all processes
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
