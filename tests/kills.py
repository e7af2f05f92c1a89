"""Ranks of a training run are killed or stopped at random moments: `python tests/kills.py --count 20 --seed 1`.

Each time the job must end in time and name the rank; and what goes on from its last checkpoint must learn, bit for bit,
what a run learns that nobody disturbs.
"""

import argparse
import contextlib
import json
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from mpiexec import command_of

PATIENCE, MORE = 3.0, 12.0
"""Seconds that ranks wait for each other, and that a job may need beyond them to end."""

TRAIN = (
    f"train --environment parallel --limit 1200 --batch-size 40 --epochs 8 --init he --lr 0.05 --patience {PATIENCE}"
)


class Killed:
    """Jobs of ``processes`` ranks with files in a ``folder``; ``words``: options of the command."""

    def __init__(self, folder, processes=4, words=()):
        self.folder, self.processes, self.words = Path(folder), processes, words
        begin = time.monotonic()
        self.expected = self.finish(self.start("whole"), "whole")
        self.seconds = time.monotonic() - begin

    def start(self, name, *words):
        """A job under way, whose files have this name."""
        files = "--checkpoint", self.folder / f"{name}.ckpt", "--json", self.folder / f"{name}.json"
        arguments = "-m", "d2lmgpu", *TRAIN.split(), *files, *self.words, *words
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command_of(self.processes, *arguments), **pipes)

    def finish(self, job, name):
        """What a job that nobody disturbs has learned."""
        said, _ = job.communicate(timeout=180)
        assert job.returncode == 0, said
        history = json.loads((self.folder / f"{name}.json").read_text())
        return history["final_parameters_sha256"], history["train_loss"]

    def once(self, chance):
        """Disturb one job, and let another go on; returns in words what was done."""
        rank, how = chance.randrange(self.processes), chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP])
        wait = chance.uniform(0, self.seconds)
        for file in self.folder.glob("run.*"):
            file.unlink()
        job = self.start("run")
        victim = self.process_of(job, rank)
        time.sleep(wait)
        with contextlib.suppress(psutil.NoSuchProcess):  # it was over before
            victim.send_signal(how)
        begin = time.monotonic()
        said, _ = job.communicate(timeout=180)
        took = time.monotonic() - begin
        words = f"rank {rank}, {how.name} after {wait:.2f} s: ended after {took:.1f} s"
        if job.returncode == 0:
            return f"{words}, and was done"
        named = re.search(rf"rank {rank} \(.*?\) (was killed by signal 9|is stopped, by signal 19)", said)
        assert named and took < PATIENCE + MORE, (words, said)
        checkpoint = self.folder / "run.ckpt"
        resume = ["--resume", checkpoint] if checkpoint.exists() else []
        assert self.finish(self.start("run", *resume), "run") == self.expected, words
        return f"{words}, and went on {'from its checkpoint' if resume else 'anew'}"

    def process_of(self, job, rank):
        """The process that is this rank, and not the one that waits for it."""
        while job.poll() is None:
            for process in psutil.Process(job.pid).children(recursive=True):
                try:
                    if is_rank(process, rank) and is_rank(process.parent(), rank):
                        return process
                except (psutil.Error, AttributeError):  # it has just ended, or begun
                    continue
            time.sleep(0.01)
        raise AssertionError(job.communicate()[0])


def is_rank(process, rank):
    """Whether a launcher has given the process this number."""
    found = process.environ()
    return str(rank) in (found.get("PMI_RANK"), found.get("OMPI_COMM_WORLD_RANK"))


def main():
    parser = argparse.ArgumentParser(description="Kill ranks at random moments.")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options, words = parser.parse_known_args()  # the rest is for `d2lmgpu train`
    chance = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        jobs = Killed(folder, words=words)
        for number in range(options.count):
            print(number + 1, jobs.once(chance), flush=True)


if __name__ == "__main__":
    sys.exit(main())
