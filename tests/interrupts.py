"""Interrupts at random moments of loops such as people write, by all ways in which Python brings them about.

    python tests/interrupts.py --count 2000

After each interrupt every device must work, every sum be right, all copies of the parameters be the same, and nothing
hang: after `PATIENCE` seconds without progress all threads' stacks are printed, and the exit code is 1. The suite runs
a few of these (test_interrupts.py).
"""

import argparse
import ctypes
import faulthandler
import itertools
import os
import signal
import sys
import threading
import time
from _thread import interrupt_main, start_new_thread

import numpy as np
from runs import DATA, PLAIN, brief, cpus

import d2lmgpu as d2l
from d2lmgpu.collectives import ALGORITHMS

PATIENCE = 60
NUMBERS_OF_DEVICES = (2, 3, 8)
SUMMING = sorted(set(ALGORITHMS) - {"none"})
EXECUTE = sys.modules["d2lmgpu.collectives.execute"]


def soon(seconds, function, *args):
    start_new_thread(lambda: (time.sleep(seconds), function(*args)), ())  # a Thread that is started can be broken


def raise_in_main():
    main = ctypes.c_ulong(threading.main_thread().ident)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(main, ctypes.py_object(KeyboardInterrupt))


WAYS = {
    "alarm": lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds),
    "signal": lambda seconds: soon(seconds, os.kill, os.getpid(), signal.SIGINT),
    "interrupt_main": lambda seconds: soon(seconds, interrupt_main),
    "exception": lambda seconds: soon(seconds, raise_in_main),
}


class Loops:
    """A person's loops on ``k`` devices: each method is what is done again and again until the interrupt comes."""

    def __init__(self, k, rng):
        self.k, self.rng, self.devices = k, rng, cpus(k)
        self.x = [d2l.put(np.zeros(1000), device) for device in self.devices]
        self.X, self.y = d2l.to_float(DATA[0][:24]), DATA[1][:24]
        params = d2l.init_params(init="he", network=PLAIN)
        self.params = [d2l.get_params(params, device) for device in self.devices]
        self.expected = self.trained()

    def run(self):
        tasks = [device.run(np.add, x, 1) for device, x in zip(self.devices, self.x, strict=True)]
        tasks[self.rng.integers(self.k)].result()

    def put(self):
        i, j = self.rng.integers(self.k, size=2)
        y = d2l.put(self.x[i], self.devices[j])
        if self.rng.random() < 0.5:
            d2l.to_host(y + 1)

    def allreduce(self):
        self.sum()
        if self.rng.random() < 0.5:
            d2l.synchronize(self.devices)

    def train_batch(self):
        flat = bool(self.rng.integers(2))
        d2l.train_batch(self.X, self.y, self.params, self.devices, 0.01, "ring", flat=flat, network=PLAIN)

    def train(self):
        self.trained(overlap=bool(self.rng.integers(2)))

    def trained(self, overlap=False):
        history, _ = brief(self.devices, network=PLAIN, num_epochs=1, overlap=overlap)
        if history.interrupted:
            raise KeyboardInterrupt
        return history.final_parameters_sha256

    def sum(self):
        """Of arrays, and what is right. Half of the collectives are done by one worker, half by all devices' queues."""
        EXECUTE.SHORT = (-1, 2**21)[self.rng.integers(2)]
        values = self.rng.integers(-60, 61, (self.k, (3, 500, 4099)[self.rng.integers(3)])).astype(np.float32)
        data = [d2l.put(value, device) for value, device in zip(values, self.devices, strict=True)]
        d2l.allreduce(data, SUMMING[self.rng.integers(len(SUMMING))])
        return data, values.sum(axis=0)

    def check(self):
        """Every device works, sums are right, and replicas are the same."""
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "the handler of SIGINT was left behind"
        for device, other in itertools.pairwise([*self.devices, self.devices[0]]):
            assert device.run(lambda: 7).result(timeout=PATIENCE) == 7
            assert d2l.to_host(d2l.put(d2l.put(np.arange(5.0), device), other)).tolist() == [0, 1, 2, 3, 4]
        for _ in range(3):
            data, expected = self.sum()
            assert all(np.array_equal(d2l.to_host(array), expected) for array in data), "a wrong sum"
        first, *others = [[d2l.to_host(param).tobytes() for param in params] for params in self.params]
        assert all(other == first for other in others), "the replicas differ"
        assert self.trained() == self.expected, "training learns something else"
        d2l.synchronize(self.devices)


LOOPS = "run", "put", "allreduce", "train_batch", "train"


def interrupt(loops, loop, way, seconds):
    """Let a loop be interrupted after some seconds; returns whether it was.

    Nothing can be done about interrupts that come while a destructor runs, or into code in C that ignores errors.
    """
    step, end = getattr(loops, loop), time.monotonic() + PATIENCE / 4
    try:
        WAYS[way](seconds)
        while time.monotonic() < end:
            step()
    except KeyboardInterrupt:
        return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    rng, arrived = np.random.default_rng(options.seed), 0
    cases = list(itertools.product(NUMBERS_OF_DEVICES, LOOPS, WAYS))
    loops = {k: Loops(k, rng) for k in NUMBERS_OF_DEVICES}
    for number in range(options.count):
        k, loop, way = cases[(number * 7) % len(cases)]  # 7 and the number of cases have no common divisor
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        try:
            arrived += interrupt(loops[k], loop, way, rng.exponential(0.03 if loop == "train" else 0.005))
            loops[k].check()
        except BaseException:
            print(f"interrupt {number}: {loop} on {k} devices, by {way}, seed {options.seed}", file=sys.stderr)
            raise
    faulthandler.cancel_dump_traceback_later()
    print(f"{arrived} of {options.count} interrupts arrived: all well")


if __name__ == "__main__":
    main()
