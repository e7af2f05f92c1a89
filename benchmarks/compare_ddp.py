"""Answers: how fast are several processes beside several devices of one process, and beside PyTorch's DDP?

    pip install -e '.[cluster]' torch==2.13.0
    python benchmarks/compare_ddp.py --json FILE --plot FILE

Two devices compute the same LeNet in each case: of two processes of ours under mpiexec, of one process of ours, of two
processes of PyTorch's DistributedDataParallel over gloo. They take turns, as compare_pytorch.py says; meanwhile MPI's
processes of others sleep, but for a look around twenty times a second.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import threading
from multiprocessing.connection import Client, Listener
from pathlib import Path

import compare_pytorch
import numpy as np
from contenders import BATCH, DDP, LR, Ours, Worker
from quoted import as_table, save_picture, write

import d2lmgpu as d2l

ADDRESS = "D2LMGPU_BENCHMARK"
"""The environment variable by which the processes know where they get their work from."""


class Together:
    """d2lmgpu on ``processes`` of a device each, under mpiexec."""

    def __init__(self, data, processes=2, algorithm="ring"):
        mpiexec = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        if mpiexec is None:
            raise RuntimeError("there is no mpiexec; install mpi4py and mpich")
        with Listener(family="AF_UNIX") as listener:
            words = [mpiexec, "-n", str(processes), sys.executable, __file__, "--rank", algorithm]
            job = subprocess.Popen(words, stdin=subprocess.DEVNULL, env=os.environ | {ADDRESS: listener.address})
            threading.Thread(target=_hang_up, args=(job, listener.address, processes), daemon=True).start()
            pipes = [listener.accept() for _ in range(processes)]
        try:
            self.pipes = sorted(pipes, key=lambda pipe: pipe.recv())
        except EOFError:
            raise RuntimeError(f"mpiexec ended with exit code {job.wait()}") from None

    def steps(self, indices):
        for pipe in self.pipes:
            pipe.send(indices)
        return [pipe.recv() for pipe in self.pipes][0]


def _hang_up(job, address, processes):
    """If the job ends before its processes have called, do so in their place, and hang up: nobody waits for ever."""
    job.wait()
    for _ in range(processes):
        with contextlib.suppress(OSError):
            Client(address).close()


def rank(algorithm):
    """One of the processes of `Together`: trains the minibatches that it is sent, until there are no more."""
    from d2lmgpu.training.textbook_steps import TextbookSteps

    everybody = d2l.cluster(1)
    X, y, _, _ = d2l.load_fashion_mnist()
    params = d2l.init_params(0, init="he")
    runner = TextbookSteps.of(X, y, params, everybody, algorithm=algorithm, batch_size=BATCH)
    pipe = Client(os.environ[ADDRESS])
    pipe.send(everybody.rank)
    while True:
        try:
            indices = pipe.recv()
        except EOFError:
            return
        runner.start_epoch(np.concatenate(indices), LR)
        examples = sum(sum(runner.launch(1)) for _ in indices)
        pipe.send(sum(runner.pause()[0]) / examples)


CONTENDERS = {
    "ours, 2 processes": (Together, {}),
    "ours, 2 processes, MPI_Allreduce": (Together, {"algorithm": "mpi"}),
    "ours, 2 devices": (Ours, {"devices": 2}),
    "PyTorch DDP, 2 processes": (DDP, {}),
}
RATIOS = [  # theirs, ours
    ("ours, 2 devices", "ours, 2 processes"),
    ("PyTorch DDP, 2 processes", "ours, 2 processes"),
    ("ours, 2 processes, MPI_Allreduce", "ours, 2 processes"),
    ("PyTorch DDP, 2 processes", "ours, 2 devices"),
]


def main():
    parser = argparse.ArgumentParser(description="Our processes beside our devices, and beside PyTorch's DDP.")
    parser.add_argument("--rounds", type=int, default=20, help="counted rounds")
    parser.add_argument("--part", type=int, default=10, help="a round is an epoch over this")
    parser.add_argument("--json", metavar="FILE", help="write the result here")
    parser.add_argument("--plot", metavar="FILE", help="plot the result here")
    options = parser.parse_args()
    options.environment, options.batch, options.precision = "cpu", BATCH, "float32"
    X, y, _, _ = d2l.load_fashion_mnist()
    workers = {name: Worker(kind, (X, y), **settings) for name, (kind, settings) in CONTENDERS.items()}
    workers, failed = compare_pytorch.same_course(workers, options)
    steps = compare_pytorch.EXAMPLES // BATCH // options.part
    seconds, rates = compare_pytorch.race(workers, steps, options)
    result = compare_pytorch.report(options, steps, seconds, rates, RATIOS, failed)
    print(as_table(result))
    if options.json:
        write(options.json, result)
    if options.plot:
        save_picture(compare_pytorch.plot(result), options.plot)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(sys.argv[2])
    else:
        main()
