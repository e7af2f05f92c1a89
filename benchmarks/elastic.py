"""Processes of an elastic run die at random moments: do the others end with the bits of a run in which nobody died?

    python benchmarks/elastic.py --count 30 --json benchmarks/results/cpu_elastic.json

needs Open MPI 5 and its mpiexec, beside this Python or on the path. Each run is of four processes, of which one to
three die, at random moments while it trains; rank 0 is among them in every third run. In every sixth run the first
to die is stopped (SIGSTOP) instead of killed: its supervisor has to find that out.
"""

import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil

PROCESSES = 4
TRAIN = "train --environment parallel --elastic --limit 8192 --epochs 3 --init he --lr 0.05"
TIMEOUT = 120.0
"""Seconds after which a run is said to hang."""

DIED = re.compile(r"((?:rank \d+(?:, | and )?)+) died; training goes on")


class Job:
    """A job under way; its lines are read as they come: ``lines`` has pairs of a time and a text."""

    def __init__(self, folder, *words):
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        command = [shutil.which("mpiexec", path=path), "--with-ft", "ulfm", "-n", str(PROCESSES), sys.executable]
        command += ["-m", "d2lmgpu", *TRAIN.split(), "--log", folder / "log", "--json", folder / "run.json", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "start_new_session": True}
        self.folder, self.lines = folder, []
        self.process = subprocess.Popen(list(map(str, command)), **pipes)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip()))

    def begun(self):
        """Wait until training has begun; the processes by rank."""
        logs = [self.folder / "log" / f"rank{rank}.log" for rank in range(1, PROCESSES)]
        while not all(log.exists() and log.stat().st_size for log in logs):
            if self.process.poll() is not None:
                raise RuntimeError(self.said())
            time.sleep(0.02)
        self.began, ranks = time.monotonic(), {}
        for process in psutil.Process(self.process.pid).children(recursive=True):
            rank = process.environ().get("OMPI_COMM_WORLD_RANK")
            if rank is not None and process.parent().environ().get("OMPI_COMM_WORLD_RANK") == rank:
                ranks[int(rank)] = process  # and not its supervisor
        return ranks

    def end(self):
        """Wait for the end; whether it came in time."""
        try:
            self.process.wait(TIMEOUT)
        except subprocess.TimeoutExpired:
            for process in psutil.Process(self.process.pid).children(recursive=True):
                process.kill()
            self.process.kill()
            return False
        self.reader.join()
        return True

    def said(self):
        return "\n".join(line for _, line in self.lines)

    def checksum(self):
        """Of the parameters with which the run ended, and what it tells of its epochs; None without a result."""
        try:
            found = json.loads((self.folder / "run.json").read_text())
        except OSError:
            return None
        return {
            name: found[name] for name in ("final_parameters_sha256", "train_loss", "train_accuracy", "test_accuracy")
        }


def once(number, chance, expected, seconds):
    """One run in which some die; returns what came of it."""
    how_many = chance.choice([1, 2, 3])
    victims = chance.sample(range(PROCESSES), how_many)
    if number % 3 == 0 and 0 not in victims:
        victims[0] = 0
    moments = sorted(chance.uniform(0, 0.95 * seconds) for _ in victims)
    kinds = [signal.SIGSTOP if number % 6 == 5 and not n else signal.SIGKILL for n in range(how_many)]
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder))
        ranks, killed = job.begun(), {}
        for victim, moment, kind in zip(victims, moments, kinds, strict=True):
            time.sleep(max(0.0, job.began + moment - time.monotonic()))
            if job.process.poll() is None and ranks[victim].is_running():
                ranks[victim].send_signal(kind)
                killed[victim] = time.monotonic(), kind.name
        in_time, result = job.end(), job.checksum()
    told = {}  # when was said that training goes on without a rank
    for when, line in job.lines:
        found = DIED.search(line)
        told |= {int(rank): when for rank in re.findall(r"\d+", found[1])} if found else {}
    deaths = [
        {"rank": rank, "signal": kind, "seconds": round(told[rank] - when, 3) if rank in told else None}
        for rank, (when, kind) in killed.items()
    ]
    came = "same" if result == expected and job.process.returncode == 0 else "ended" if in_time else "hung"
    if in_time and result is not None and result != expected:
        came = "other bits"
    return {
        "deaths": deaths,
        "came": came,
        "code": job.process.returncode,
        "said": "" if came == "same" else job.said(),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder))
        job.begun()
        assert job.end() and job.process.returncode == 0, job.said()
        seconds, expected = job.lines[-1][0] - job.began, job.checksum()
    print(f"nobody dies: {seconds:.1f} s, {expected['final_parameters_sha256'][:16]}", flush=True)
    runs, chance = [], random.Random(options.seed)
    for number in range(options.count):
        runs.append(once(number, chance, expected, seconds))
        deaths = ", ".join(f"rank {d['rank']} {d['signal']} {d['seconds']} s" for d in runs[-1]["deaths"])
        print(
            f"{number + 1}: {runs[-1]['came']} ({runs[-1]['code']}); {deaths}\n{runs[-1]['said']}".rstrip(), flush=True
        )
    came = collections.Counter(run["came"] for run in runs)
    figures = {"runs": len(runs), "came": dict(came), "seconds_undisturbed": round(seconds, 2)}
    for kind in ("SIGKILL", "SIGSTOP"):
        found = [death["seconds"] for run in runs for death in run["deaths"] if death["signal"] == kind]
        known = sorted(second for second in found if second is not None)
        figures[kind] = {"deaths": len(found), "noticed": len(known), "median": known and known[len(known) // 2]}
        figures[kind]["most"] = known and known[-1]
    print(json.dumps(figures))
    if options.json:
        options.json.write_text(json.dumps(figures | {"each": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
