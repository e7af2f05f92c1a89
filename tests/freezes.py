"""A rank that stops before one of its instructions: `mpiexec -n 4 python tests/freezes.py ring 1 3` stops rank 1.

`CASES` are all there are, for each algorithm and each rank, with what is missing then.
"""

import os
import signal
import sys
import time
from typing import NamedTuple

import numpy as np

import d2lmgpu as d2l
from d2lmgpu.cluster.exchange import PIECE, Exchange
from d2lmgpu.cluster.instructions import instructions_of
from d2lmgpu.cluster.part import ProcessPart
from d2lmgpu.cluster.supervisor import RANKS
from d2lmgpu.collectives import ALGORITHMS
from d2lmgpu.collectives.program import compile_schedule

K, N = 4, 103


class Case(NamedTuple):
    """Rank ``frozen`` stands still before its instruction; others lack first what they know by ``missing``."""

    algorithm: str
    frozen: int
    instruction: int
    missing: str

    def __str__(self):
        return f"{self.algorithm}-{self.frozen}-{self.instruction}"


def cases_of(algorithm):
    """All with which somebody lacks something; a device each."""
    schedule = ALGORITHMS[algorithm](K, N)
    program = compile_schedule(schedule, K)
    transfers = [(step, t) for step, transfers in enumerate(schedule, 1) for t in transfers if t.size]
    for frozen in range(K):
        instructions = instructions_of(ProcessPart(program, tuple(range(K)), frozen), 4, PIECE)
        for instruction in instructions:
            unsent = [other.action.number for other in instructions[instruction.number :] if other.kind == "send"]
            if unsent:
                step, t = transfers[min(unsent)]
                where = rf"cpu\(0\) of rank {t.destination} \(\S+\) waits in allreduce {algorithm}, step {step} of "
                what = (
                    rf"{len(schedule)}, for elements {t.start} to {t.stop} of cpu\(0\) of rank {frozen} \(\S+\), last "
                )
                yield Case(algorithm, frozen, instruction.number, where + what)


CASES = [case for algorithm in sorted(set(ALGORITHMS) - {"none"}) for case in cases_of(algorithm)]


def main(algorithm, frozen, instruction):
    cluster = d2l.cluster(1, patience=2.0)
    data = d2l.put(np.arange(N, dtype=np.float32), cluster.mine[0])
    across = cluster.across(ALGORITHMS[algorithm])  # by its name "hierarchical" would have the processes as its groups
    d2l.allreduce([data], across)
    d2l.synchronize(cluster.mine)
    do = Exchange.do

    def stop(self, next_instruction):
        if next_instruction.number == instruction:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.5)  # it may take the system a moment to stop this thread, too
        do(self, next_instruction)

    if int(next(os.environ[name] for name in RANKS if name in os.environ)) == frozen:
        Exchange.do = stop
    d2l.allreduce([data], across)
    d2l.synchronize(cluster.mine)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
