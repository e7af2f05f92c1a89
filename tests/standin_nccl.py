"""A stand-in for CuPy's NCCL that holds NCCL's rules, and is stricter than they are.

NCCL demands, and does not check, so that who breaks it waits for ever or gets other sums (its user guide: "Thread
Safety", "Group Calls", "Using Multiple NCCL Communicators Concurrently"):

- all ranks of a communicator make the same calls, with as many elements of one type, in the same order;
- cards that have several communicators together get the calls of all of them in the same order;
- a communicator is used by one thread at a time;
- the calls of all communicators of a card follow one another there, too: not only does the program make them in one
  order, but each stream waits for the call before its own. (From 2.26 on NCCL sees to that, if a variable asks for it.)
- one process's calls for several cards are a group. Stricter: also if each card has a thread of its own, since between
  their launches a thread that takes memory may wait for a card whose kernel waits for one that is not launched yet.

A call returns at once, as the real one does: what comes after it on its stream, or waits for it, waits for all ranks.
"""

import contextlib
import ctypes
import functools
import sys
import threading
import types
from typing import NamedTuple

import numpy as np
import standin_driver
import standin_memory
from standin_driver import call, current_card, thread
from standin_streams import Later, RaceError, on_stream, stream_of

import d2lmgpu.collectives.nccl as library_module

PATIENCE = 10
"""Seconds after which a rank that waits for others gives up."""


class NcclError(RuntimeError):
    """As CuPy's, which has a ``status``."""

    def __init__(self, name):
        super().__init__(name)
        self.status = name


def _call(name):
    """As `standin_driver.call`; what fails is NCCL's error."""
    try:
        call(name)
    except standin_driver.CUDARuntimeError as error:
        raise NcclError("NCCL_ERROR_UNHANDLED_CUDA_ERROR: unhandled cuda error") from error


class Call(NamedTuple):
    """What a program asked for. ``group``: the number of the group in which it did."""

    card: int
    count: int
    kind: str
    op: str
    group: int


class Clique:
    """The communicators that sum together; ``calls[n]``: of each rank its numbers in their nth call, "total" their sum.

    ``is_here``: all in one process.
    """

    def __init__(self, size, is_here=False):
        self.size, self.is_here, self.cards, self.calls, self.error = size, is_here, {}, [], None
        self.meeting = threading.Barrier(size, timeout=PATIENCE)
        self.changed = threading.Condition(standin_driver.lock)

    def add(self, number, rank, values, op):
        """A rank's numbers for a call; when all are there, the sum is."""
        if number == len(self.calls):
            self.calls.append({})
        entry = self.calls[number]
        for other, _ in entry.values():
            if (other.dtype, other.size) != (values.dtype, values.size):
                self.fail(f"call {number} of rank {rank} is of {values.size} {values.dtype}, another's of {other.size}")
        entry[rank] = values, op
        if len(entry) == self.size:
            entry["total"] = sum(values for _, (values, _) in sorted(entry.items())), op
            self.changed.notify_all()

    def total(self, number):
        """The sum of a call, when all ranks have made it."""
        with self.changed:
            come = self.changed.wait_for(lambda: self.error or "total" in self.calls[number], PATIENCE)
            if self.error or not come:
                raise self.error or TimeoutError(f"NCCL's call {number}: not all of {self.size} ranks have made it")
            return self.calls[number]["total"][0]

    def fail(self, what):
        self.error = RaceError(f"NCCL: {what}")
        self.changed.notify_all()
        raise self.error


class Nccl:
    """The library on a machine. ``calls``: all that were made."""

    def __init__(self):
        self.calls, self.cliques, self.groups = [], {}, 0
        self.order = {}  # by card: the calls that it got, as (clique, number)
        self.last = {}  # by card: the stream that got its last call, and how much work that had then

    def unique_id(self):
        _call("ncclGetUniqueId")
        return np.random.default_rng().bytes(128)

    def group_start(self):
        _call("ncclGroupStart")
        thread.__dict__.setdefault("nccl", []).append([])

    def group_end(self):
        _call("ncclGroupEnd")
        added = thread.nccl.pop()
        if thread.nccl:
            thread.nccl[-1] += added
        elif None in added:
            raise NcclError("NCCL_ERROR_INVALID_USAGE: a call of this group has failed")
        else:
            self.launch(added)

    def launch(self, added):
        """Give the calls of a group to their cards."""
        begun = []
        for *_, stream in added:
            stream.catch_up()
        with standin_driver.lock:
            self.groups += 1
            for communicator, *_ in added:
                clique = communicator.clique
                if clique.is_here and sum(other.clique is clique for other, *_ in added) < clique.size:
                    clique.fail("a process's calls for its cards are no group")
            for communicator, source, count, kind, op, stream in added:
                self.calls.append(Call(communicator.card, count, kind, op, self.groups))
                self._compare_orders(communicator)
                begun.append((stream, communicator.begin(source, count, kind, op, stream)))
            for stream, later in begun:
                stream.pending.append(later)

    def _compare_orders(self, communicator):
        """Note a card's call. Each other card that has the same communicators must have had it in the same place."""
        card, clique = communicator.card, communicator.clique
        mine = self.order.setdefault(card, [])
        mine.append((clique, communicator.made))
        for other, theirs in self.order.items():
            both = {id(each) for each, _ in theirs if {card, other} <= {*each.cards.values()}} | {id(clique)}
            if other != card and other in clique.cards.values():
                ours, others = ([entry for entry in each if id(entry[0]) in both] for each in (mine, theirs))
                if any(one != two for one, two in zip(ours, others, strict=False)):
                    clique.fail(f"cards {card} and {other} get the calls of two communicators in different orders")


class Communicator:
    """A rank of a `Clique`."""

    def __init__(self, nccl, clique, rank, card):
        self.nccl, self.clique, self.rank, self.card, self.made = nccl, clique, rank, card, 0
        clique.cards[rank] = card

    def allReduce(self, source, target, count, kind, op, stream):
        """Returns at once."""
        group = thread.__dict__.setdefault("nccl", [])
        try:
            _call("ncclAllReduce")
        except NcclError:
            for added in group[-1:]:
                added.append(None)
            raise
        assert source == target, "the stand-in sums in place"
        added = self, source, count, kind, op, stream_of(stream, self.card)
        if group:
            group[-1].append(added)
        else:
            self.nccl.launch([added])

    def begin(self, source, count, kind, op, stream):
        last = self.nccl.last.get(self.card)
        if stream.card != self.card or (last and not standin_memory.has_waited(stream, *last)):
            self.clique.fail(f"a stream of card {self.card} has not waited for the card's last call, of another stream")
        number, self.made = self.made, self.made + 1
        mine = np.frombuffer((ctypes.c_char * (np.dtype(kind).itemsize * count)).from_address(source), kind)
        before, thread.card = current_card(), self.card  # NCCL sees to that
        try:
            on_stream("launchKernel", None, [mine], [mine], stream)
        finally:
            thread.card = before
        self.nccl.last[self.card] = stream, stream.count
        self.clique.add(number, self.rank, mine.copy(), op)
        bounds = standin_memory.bounds(mine)
        block = standin_memory.block_at(*bounds)  # given back when all is done, as in the order of the stream

        def end():
            assert block is not None
            np.copyto(mine, self.clique.total(number))

        return Later(end)


def install_nccl(monkeypatch):
    """Let ``from cupy.cuda import nccl`` give a stand-in; returns the list of the `Call` that it gets."""
    nccl = Nccl()

    class NcclCommunicator(Communicator):
        def __init__(self, size, unique_id, rank):
            """All ranks wait for each other here, each on a card of its own."""
            _call("ncclCommInitRank")
            assert isinstance(unique_id, bytes) and len(unique_id) == 128
            with standin_driver.lock:
                clique = nccl.cliques.setdefault(unique_id, Clique(size))
                assert size == clique.size
                Communicator.__init__(self, nccl, clique, rank, current_card())
            clique.meeting.wait()

        @classmethod
        def initAll(cls, cards):
            _call("ncclCommInitAll")
            clique, made = Clique(len(cards), True), [cls.__new__(cls) for _ in cards]
            for rank, (communicator, card) in enumerate(zip(made, cards, strict=True)):
                Communicator.__init__(communicator, nccl, clique, rank, card)
            return made

    library = types.ModuleType("cupy.cuda.nccl")
    library.NcclCommunicator, library.NcclError, library.NCCL_SUM = NcclCommunicator, NcclError, "sum"
    library.groupStart, library.groupEnd = nccl.group_start, nccl.group_end
    library.get_unique_id = nccl.unique_id
    library.NCCL_FLOAT16, library.NCCL_FLOAT32, library.NCCL_FLOAT64 = "float16", "float32", "float64"
    library.NCCL_INT64 = "int64"
    cuda = types.ModuleType("cupy.cuda")
    cuda.nccl = library
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    monkeypatch.setitem(sys.modules, "cupy.cuda.nccl", library)
    with contextlib.suppress(AttributeError):
        thread.nccl = []
    for name in ("_communicators", "_stream_of"):  # not the remembered ones, which may be real
        made = functools.lru_cache(getattr(library_module, name).__wrapped__)
        monkeypatch.setattr(library_module, name, made)
    return nccl.calls
