"""Collectives across processes that are threads of this one."""

import threading

from mpi_in_threads import comms

import d2lmgpu as d2l
from d2lmgpu.cluster import Place
from d2lmgpu.cluster.communicator import Communicator
from d2lmgpu.cluster.exchange import Exchange, ProcessPart
from d2lmgpu.cluster.watchdog import Watch
from d2lmgpu.collectives.phases import compile_schedule


class Processes:
    """Threads, each of which does a process's part of a schedule on its own arrays."""

    def __init__(self, schedule, split, values, name="test", eager=True):
        owners = tuple(rank for rank, count in enumerate(split) for _ in range(count))
        program = compile_schedule(schedule, len(owners))
        self.places = [Place(f"cpu({i})", rank, f"host{rank}") for i, rank in enumerate(owners)]
        self.comms, self.exchanges, self.communicators, self.watches = comms(len(split), eager), [], [], []
        self.arrays = [value.copy() for value in values]
        for rank, comm in enumerate(self.comms):
            watch = Watch(comm, [f"host{rank}" for rank in range(len(split))], 1.0)
            communicator = Communicator(comm, watch.heard)
            watch.communicators = [communicator]
            mine = [i for i, owner in enumerate(owners) if owner == rank]
            exchange = Exchange(
                lambda _: f"allreduce {name}",
                ProcessPart(program, owners, rank),
                self.places,
                [d2l.cpu(i) for i in mine],
                values[0].dtype,
                communicator,
            )
            self.exchanges.append(exchange)
            self.communicators.append(communicator)
            self.watches.append(watch)
        self.errors = []

    def start(self):
        self.threads = [threading.Thread(target=self._run, args=(e,), daemon=True) for e in self.exchanges]
        for thread in self.threads:
            thread.start()
        return self

    def join(self):
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), [communicator.waits for communicator in self.communicators]
        assert not self.errors, self.errors
        return self.arrays

    def _run(self, exchange):
        try:
            exchange.run([self.arrays[i] for i in exchange.part.mine])
        except BaseException as error:
            self.errors.append(error)
