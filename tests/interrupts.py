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

import d2lmgpu as d2l
from d2lmgpu.collectives import ALGORITHMS

PATIENCE = 60
NUMBERS_OF_DEVICES = (2, 3, 8)
SUMMING = sorted(set(ALGORITHMS) - {"none"})
EXECUTE = sys.modules["d2lmgpu.collectives.execute"]


def by_alarm(seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds)


def by_signal(seconds):
    soon(seconds, os.kill, os.getpid(), signal.SIGINT)


def by_interrupt_main(seconds):
    soon(seconds, interrupt_main)


def by_async_exception(seconds):
    main = ctypes.c_ulong(threading.main_thread().ident)
    soon(seconds, ctypes.pythonapi.PyThreadState_SetAsyncExc, main, ctypes.py_object(KeyboardInterrupt))


def soon(seconds, function, *args):
    start_new_thread(lambda: (time.sleep(seconds), function(*args)), ())  # a Thread that is started can be broken


WAYS = {"alarm": by_alarm, "signal": by_signal, "interrupt_main": by_interrupt_main, "exception": by_async_exception}


class Loops:
    """A person's loops on ``k`` devices: each method is what is done again and again until the interrupt comes."""

    def __init__(self, k, rng):
        self.k, self.rng = k, rng
        self.devices = [d2l.cpu(i) for i in range(k)]
        self.x = [d2l.put(np.zeros(1000), device) for device in self.devices]
        X, y, *_ = d2l.load_fashion_mnist()
        self.data = X[:96], y[:96], X[96:120], y[96:120]
        self.X, self.y = X[:24].astype(np.float32) / 255, y[:24]
        self.params = [d2l.get_params(d2l.init_params(init="he"), device) for device in self.devices]
        self.expected = self.train_once()

    def run(self):
        tasks = [device.run(np.add, x, 1) for device, x in zip(self.devices, self.x, strict=True)]
        tasks[self.rng.integers(self.k)].result()

    def put(self):
        i, j = self.rng.integers(self.k, size=2)
        y = d2l.put(self.x[i], self.devices[j])
        if self.rng.random() < 0.5:
            d2l.to_host(y + 1)

    def allreduce(self):
        self.sum_once(check=False)

    def train_batch(self):
        d2l.train_batch(self.X, self.y, self.params, self.devices, 0.01, "ring", flat=bool(self.rng.integers(2)))

    def train(self):
        history, _ = d2l.train(
            self.devices, 32, 0.05, 2, data=self.data, init="he", progress=False, overlap=bool(self.rng.integers(2))
        )
        if history.interrupted:
            raise KeyboardInterrupt

    def train_once(self):
        history, _ = d2l.train(self.devices, 32, 0.05, 1, data=self.data, init="he", progress=False)
        assert not history.interrupted
        return history.final_parameters_sha256

    def sum_once(self, check):
        """Half of the collectives are done by one worker, half by all devices' queues."""
        EXECUTE.SHORT = (-1, 2**21)[self.rng.integers(2)]
        values = self.rng.integers(-60, 61, (self.k, (3, 500, 4099)[self.rng.integers(3)])).astype(np.float32)
        data = [d2l.put(value, device) for value, device in zip(values, self.devices, strict=True)]
        d2l.allreduce(data, SUMMING[self.rng.integers(len(SUMMING))])
        if check:
            for array in data:
                assert np.array_equal(d2l.to_host(array), values.sum(axis=0)), "a wrong sum"
        elif self.rng.random() < 0.5:
            d2l.synchronize(self.devices)

    def check(self, loop):
        """Every device works, sums are right, and replicas are the same."""
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "the handler of SIGINT was left behind"
        for device, other in itertools.pairwise([*self.devices, self.devices[0]]):
            assert device.run(lambda: 7).result(timeout=PATIENCE) == 7
            assert d2l.to_host(d2l.put(d2l.put(np.arange(5.0), device), other)).tolist() == [0, 1, 2, 3, 4]
        for _ in range(3):
            self.sum_once(check=True)
        if loop == "train_batch":
            first, *others = [[d2l.to_host(param).tobytes() for param in params] for params in self.params]
            assert all(other == first for other in others), "the replicas differ"
        if loop == "train":
            assert self.train_once() == self.expected, "training learns something else"
        d2l.synchronize(self.devices)


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
    rng = np.random.default_rng(options.seed)
    cases = list(itertools.product(NUMBERS_OF_DEVICES, ("run", "put", "allreduce", "train_batch", "train"), WAYS))
    loops = {k: Loops(k, rng) for k in NUMBERS_OF_DEVICES}
    counts, lost = dict.fromkeys(cases, 0), 0
    for number in range(options.count):
        k, loop, way = case = cases[(number * 7) % len(cases)]  # 7 and the number of cases have no common divisor
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        arrived = interrupt(loops[k], loop, way, rng.exponential(0.03 if loop == "train" else 0.005))
        counts[case] += arrived
        lost += not arrived
        try:
            loops[k].check(loop)
        except BaseException:
            print(f"interrupt {number}: {loop} on {k} devices, by {way}, seed {options.seed}", file=sys.stderr)
            raise
    faulthandler.cancel_dump_traceback_later()
    for loop in ("run", "put", "allreduce", "train_batch", "train"):
        each = {way: sum(n for (_, name, by), n in counts.items() if (name, by) == (loop, way)) for way in WAYS}
        print(f"{loop}: " + ", ".join(f"{n} by {way}" for way, n in each.items()))
    print(f"{sum(counts.values())} interrupts on {NUMBERS_OF_DEVICES} devices, {lost} that did not arrive: all well")


if __name__ == "__main__":
    main()
