"""How this process was started: alone, or as one of several by mpiexec, srun or another launcher."""

import os
import re
import sys

from ..arguments import in_a_clone
from ..devices import DeviceError
from .library import share_one_heap
from .rendezvous import rendezvous
from .supervisor import LAUNCHERS, supervise, tell


def started_together():
    """How many processes were started with this one, itself among them, and the variable that says so (None for 1)."""
    for name, rank in LAUNCHERS.items():
        if rank in os.environ and re.fullmatch("[0-9]{1,9}", os.environ.get(name, "")) and int(os.environ[name]) > 1:
            return int(os.environ[name]), name
    return 1, None


def begin_together():
    """What one of several processes does before its devices' threads begin; returns whether it is one of several."""
    several = started_together()[0] > 1
    if several:
        supervise()
        share_one_heap()
    return several


_world = None
"""What `find_world` has found."""


def find_world(patience):
    """A communicator of all processes, for this package's messages alone; None for a process that was started alone.

    The first time all call this. Its supervisor ends the job if MPI does not find all of them within ``patience``
    seconds, and so does this process if not all come here.

    Raises DeviceError where several were started, but have no mpi4py, or do not find each other.
    """
    global _world
    count, name = started_together()
    if count == 1 and "mpi4py.MPI" not in sys.modules:
        return None
    tell(f"patience {patience}")
    if _world is not None:
        return _world
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: there is no MPI library
        raise DeviceError(
            f"cluster: {count} processes were started together ({name}), but cannot talk to each other: {error}; "
            f"{in_a_clone('cluster')}"
        ) from error
    world = MPI.COMM_WORLD
    if world.size == 1 and count > 1:
        raise DeviceError(
            f"cluster: {count} processes were started together ({name}), but each finds itself alone; start them with "
            f"the mpiexec of the MPI that mpi4py uses here ({_library(MPI)}), or with srun --mpi=pmi2 or --mpi=pmix"
        )
    if world.size > 1 and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise DeviceError(
            f"cluster: this MPI ({_library(MPI)}) lets only one thread send and receive; devices have several"
        )
    tell("together")
    if world.size > 1:
        rendezvous(world, None, patience)  # who does not come is named, while Dup would wait for ever
        _world = world.Dup()
    return _world


def _library(MPI):
    return " ".join(MPI.Get_library_version().split("\n")[0].split())
