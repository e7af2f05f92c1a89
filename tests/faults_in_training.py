"""Training in which something goes wrong: `mpiexec -n 4 python tests/faults_in_training.py flip 1 7 --epochs 2`.

flips a bit of a parameter of rank 1 after its 7th step. "other" gives the options only to rank 1. Options are those of
`d2lmgpu train`.
"""

import os
import sys

from d2lmgpu.cli import main
from d2lmgpu.cluster.watchdog import RANKS
from d2lmgpu.parallel.step import Replica

USUAL = "train --environment parallel --limit 400 --batch-size 40 --epochs 2 --init he --lr 0.05 --patience 3".split()


def flip_after(step):
    """Let the last bit of a parameter flip after so many steps."""
    update = Replica.update

    def update_and_flip(self, *args):
        update(self, *args)
        if self.optimizer.steps == step:
            bits = self.params[-2].raw.reshape(-1).view("u4")
            bits[5] = bits[5] ^ 1

    Replica.update = update_and_flip


if __name__ == "__main__":
    how, where, step, *words = sys.argv[1:]
    is_meant = where == next(os.environ[name] for name in RANKS if name in os.environ)
    if how == "flip" and is_meant:
        flip_after(int(step))
    if how == "other" and not is_meant:
        words = []
    sys.exit(main([*USUAL, *words]))
