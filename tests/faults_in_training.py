"""Training in which something goes wrong: `mpiexec -n 4 python tests/faults_in_training.py flip 1 7 --epochs 2`.

flips a bit of a parameter of rank 1 after its 7th step. Options of `d2lmgpu train` follow.
"other" gives these options to rank 1 only.
"""

import os
import sys

from d2lmgpu.cli import main
from d2lmgpu.cluster.supervisor import RANKS
from d2lmgpu.parallel.step import Replica

USUAL = "train --environment parallel --limit 400 --batch-size 40 --epochs 2 --init he --lr 0.05 --patience 3".split()


def is_rank(where):
    """Whether this process has that rank."""
    return int(next(os.environ[name] for name in RANKS if name in os.environ)) == where


def flip(where, step):
    """Flip a bit of rank ``where`` after so many steps."""
    if not is_rank(where):
        return
    update = Replica.update

    def update_and_flip(self, *arguments):
        update(self, *arguments)
        if self.optimizer.steps == step:
            bits = self.raw[0][0].view("u4").reshape(-1)
            bits[5] = bits[5] ^ 1

    Replica.update = update_and_flip


if __name__ == "__main__":
    how, where, step, *words = sys.argv[1:]
    if how == "other":  # options, for this rank only
        words = words if is_rank(int(where)) else []
    else:
        flip(int(where), int(step))
    sys.exit(main([*USUAL, *words]))
