"""Elastic clusters: when some processes die, the others agree on this and go on without them.

Everything that all processes do together is a *round*: sums, followed by a vote. A process uses its sums only if all
processes have theirs; otherwise all repeat the round without the dead processes:

    rank 0    sum ✓ │ vote: not all ►│ shrink │ sum ✓ │ vote: all ► update
    rank 1    sum ✗ │ revoke, vote ► │ shrink │ sum ✓ │ vote: all ► update
    rank 2    dies

A sum may have arrived in one process and not in another, but the vote has the same result in all living processes. So
they know that they are all at the same step. A process that waits for a dead one learns of the death from MPI. A
process that waits for one that already knows learns of it because that one revokes the communicator.

Source: Bland et al. 2013, "Post-failure recovery of MPI communication capability" (ULFM), whose functions Revoke, Agree
and Shrink are in Open MPI 5.
"""

import contextlib
import os
import threading
import time

from ..devices import DeviceError
from .communicator import Communicator
from .ending import end
from .supervisor import FROZEN, is_tolerant, tell

BEAT = 0.5
"""Seconds between two signs of life that a process sends to its supervisor."""

APART = 0.3
"""Seconds between the times when ranks end the job: Open MPI 5.0.11's mpiexec may hang if several end it at once."""

START = "mpiexec --with-ft ulfm -n 4 d2lmgpu train --environment parallel --elastic"


class DeathError(DeviceError):
    """A process of an elastic cluster has died, so the round failed in all other processes."""


def check_survival():
    """Raise DeviceError unless processes can outlive each other here."""
    from mpi4py import MPI

    name, version = MPI.get_vendor()
    if name != "Open MPI" or not is_tolerant():
        here = f"{name} {'.'.join(map(str, version))}" + (", without --with-ft ulfm" if name == "Open MPI" else "")
        raise DeviceError(f"elastic: processes can outlive each other with Open MPI 5, as in {START}; this is {here}")


class Elastic(Communicator):
    """The communicator for all exchanges of an elastic cluster; ``numbers``: the original ranks.

    It also replaces the cluster's watch: if a round takes longer than ``patience``, this process ends the job.
    """

    def __init__(self, world, patience):
        super().__init__(world.Dup(), [time.monotonic()] * world.size)
        self.patience, self.numbers, self.began = patience, list(range(world.size)), None
        self.save, self.hung, self.anyone_died = lambda: None, False, False
        tell(elastic=True, over=False)
        threading.Thread(target=self._live, name="d2lmgpu signs of life", daemon=True).start()

    def __getattr__(self, name):
        return getattr(self.comm, name)  # rank and size, and what the job's end needs

    def all_reduce(self, array):
        """As in `Communicator`, but only the next `vote` makes the sum valid; DeathError after a death known here."""
        self._do(super().all_reduce, array)

    def exchange(self, here):
        """Do a whole round: return the ``here`` of all processes, by rank."""
        found = self._do(self.comm.allgather, here)
        self.vote()
        return found

    def vote(self, mine=True):
        """End a round; raise DeathError in all processes unless everything went well in all of them."""
        from mpi4py import MPI

        self.look()
        all_well = False
        with self._waiting(), contextlib.suppress(MPI.Exception):
            all_well = self.comm.Agree(mine)
        if not all_well:
            self.anyone_died = True
            self.give_up(DeathError("a process died during work that cannot be repeated; start the program again"))
            raise self.error

    def shrink(self):
        """Go on without the dead processes; return their original ranks. All others call this after a `DeathError`."""
        with self._waiting():
            self.comm.Revoke()
            everybody, self.comm = self.comm.Get_group(), self.comm.Shrink()
        left = self.comm.Get_group().Translate_ranks(list(range(self.comm.size)), everybody)
        before, self.numbers = self.numbers, [self.numbers[rank] for rank in left]
        dead = [number for number in before if number not in self.numbers]
        if not dead:
            raise RuntimeError("an exchange of MPI failed, though no process has died")
        self.error = None
        return dead

    def tell_over(self, how):
        """As in `Watch`, but MPI ends the others. If none is left, mpiexec heeds only this process's exit code."""
        tell(over=True)
        if self.comm.size > 1:
            time.sleep(APART * min(self.comm.rank, 4))
            self.comm.Abort(how[0])

    def leave(self, code=None):
        """Leave at the end of the program; after a death, skip MPI's own end, which might wait for the dead for ever.

        In that case, or if a ``code`` is given, this does not return, and the exit code is ``code``, or 0 by default.
        """
        tell(over=True)
        if code is None and not self.anyone_died:
            return
        with contextlib.suppress(OSError, ValueError):
            print(end="", flush=True)
        os._exit(code or 0)

    def _do(self, function, *args):
        from mpi4py import MPI

        self.look()
        try:
            with self._waiting():
                return function(*args)
        except MPI.Exception:
            self.comm.Revoke()  # wakes processes that wait for others that will not come
        self.vote(False)

    @contextlib.contextmanager
    def _waiting(self):
        self.began = time.monotonic()
        try:
            yield
        finally:
            self.began = None

    def _live(self):
        while True:
            tell(alive=True)
            began, rank = self.began, self.comm.rank
            # Frozen processes have been killed by then. The lowest rank ends the job.
            if began is not None and time.monotonic() - began > self.patience + FROZEN + rank:
                text = f"rank {self.numbers[rank]} waits for MPI for {time.monotonic() - began:.0f} s; the job ends"
                end(self.comm, list(filter(None, [text, self.save()])))
            time.sleep(BEAT)
