"""Training in which something goes wrong: `mpiexec -n 4 python tests/faults_in_training.py flip 1 7 --epochs 2`.

flips a bit of a parameter of rank 1 after its 7th step, "stop" stops it there. Options of `d2lmgpu train` follow.
"other" gives these options to rank 1 only.
"""

import os
import signal
import sys

from d2lmgpu.cli import main
from d2lmgpu.cluster.supervisor import RANKS
from d2lmgpu.plans.store import Store

USUAL = "train --environment parallel --limit 400 --batch-size 40 --epochs 2 --init he --lr 0.05 --patience 3".split()


def go_wrong(how, store):
    """Runs on the device, after a step of it."""
    if how == "flip":
        bits = store.flat.view("u4")
        bits[5] = bits[5] ^ 1
    if how == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)


def is_rank(where):
    """Whether this process has that rank."""
    return int(next(os.environ[name] for name in RANKS if name in os.environ)) == where


def install(how, where, step):
    """Let it happen to rank ``where`` after so many steps."""
    if not is_rank(where):
        return
    clear = Store.clear

    def clear_and_more(self):
        clear(self)
        if self.steps == step:
            go_wrong(how, self)

    Store.clear = clear_and_more


if __name__ == "__main__":
    how, where, step, *words = sys.argv[1:]
    if how == "other":  # options, for this rank only
        words = words if is_rank(int(where)) else []
    else:
        install(how, int(where), int(step))
    sys.exit(main([*USUAL, *words]))
