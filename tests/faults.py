"""What may go wrong with a process of a cluster: `mpiexec -n 4 python tests/faults.py kill 1` kills rank 1.

test_cluster_faults.py looks what the others say of it.
"""

import ctypes
import os
import signal
import sys
import time

import numpy as np

import d2lmgpu as d2l
from d2lmgpu.cluster import members
from d2lmgpu.cluster.watchdog import LAUNCHERS
from d2lmgpu.plans.execution.compute import FUNCTIONS

ROUNDS, PATIENCE = 3, 3.0


def go_wrong(how):
    """The fault itself, in the process that has it."""
    signals = {"kill": signal.SIGKILL, "crash": signal.SIGSEGV, "stop": signal.SIGSTOP}
    if how in signals:
        os.kill(os.getpid(), signals[how])
    if how == "raise":
        raise KeyError("bad luck")
    if how == "exit":
        sys.exit(0)
    if how == "leave":
        os._exit(0)
    if how == "sleep":
        time.sleep(600)
    if how == "hold":  # Python's lock, so that no thread of this process can do anything
        ctypes.PyDLL(None).sleep(600)


def in_a_plan(cluster, how):
    """Steps of a pipeline; in the last of them the device of this process goes wrong, if ``how`` is a fault."""
    plan = d2l.plans.PLANS["1f1b"](len(cluster), 4)
    execution = d2l.plans.Execution(plan, d2l.init_params(init="he"), cluster)
    rng = np.random.default_rng(0)
    X, y = rng.random((9, 1, 28, 28), np.float32), rng.integers(0, 10, 9)
    functions, left = dict(FUNCTIONS), [3]

    def go_wrong_at_last(store, action, *numbers):
        left[0] -= 1
        if store.steps == ROUNDS - 1 and left[0] < 0:
            go_wrong(how)
        functions[action.what, store.mode_of(action)](store, action, *numbers)

    if how is not None:
        FUNCTIONS.update(dict.fromkeys(functions, go_wrong_at_last))
    for _ in range(ROUNDS):
        left[0] = 3
        assert execution.step(X, y, 0.1) > 0


def in_exact_sums(cluster, where):
    """A step with exact sums, in which the examples of one process are too large."""
    X = np.zeros((64 * len(cluster), 1, 28, 28), np.float32)
    X[64 * where : 64 * (where + 1)] = 1e30
    params = [d2l.get_params(d2l.init_params(), device) for device in cluster.mine]
    d2l.train_batch(X, np.zeros(len(X), int), params, cluster, 0.1, sums="exact")


def main(how, where):
    """``how``: a fault of `go_wrong`'s; with "plan-" it comes in the midst of a step of a plan, on the device.

    With "sums" a number is too large for exact sums. Or "other-code"; "no-mpi" and "absent", if the process does not
    come to where the others are.
    """
    rank = int(next(os.environ[name] for name in LAUNCHERS.values() if name in os.environ))
    if how == "other-code" and rank == where:
        members.checksum_of_code = lambda: "another version"
    if how == "no-mpi" and rank == where:
        time.sleep(600)
    if how == "absent":
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank == where:
            time.sleep(600)
    cluster = d2l.cluster(1, patience=PATIENCE)
    if how.startswith("plan-"):
        in_a_plan(cluster, how.removeprefix("plan-") if rank == where else None)
        return
    if how == "sums":
        in_exact_sums(cluster, where)
    data = d2l.put(np.arange(103.0), cluster.mine[0])
    for i in range(ROUNDS):
        if i == ROUNDS - 1 and rank == where:
            go_wrong(how)
        data.fill(i + 1)
        d2l.allreduce([data], cluster.across("ring"))
        assert d2l.to_host(data)[0] == 4 * (i + 1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
