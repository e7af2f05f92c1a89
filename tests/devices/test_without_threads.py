"""Devices without threads, as in a browser: whoever submits work does it, and waits that never end say so.

Such devices are made here beside usual ones. That all else works with them, too, is seen by running the tests with
D2LMGPU_THREADS=0, and some of them under WebAssembly.
"""

import os
import subprocess
import sys
import threading

import pytest
from runs import brief, cpus

from d2lmgpu.devices import DeviceError, Task, current_device, workers
from d2lmgpu.devices.cpu import CPU


@pytest.fixture
def alone(monkeypatch):
    """A function that makes devices without threads."""
    monkeypatch.setattr("d2lmgpu.devices.task.THREADS", False)
    monkeypatch.setattr(sys.modules[CPU.__module__], "_comm_workers", workers.no_threads)
    return lambda k: [CPU(i, workers.no_threads) for i in range(k)]


def test_work_is_done_when_it_is_submitted_by_who_submits_it(alone):
    (device,) = alone(1)
    task = device.run(lambda: (threading.get_ident(), current_device()))
    assert task.done() and task.value == (threading.get_ident(), device)
    bad, good = device.run(lambda: 1 / 0), device.run(lambda: 1)
    assert good.result() == 1  # errors are kept, and later work goes on
    with pytest.raises(ZeroDivisionError):
        bad.result()
    assert current_device() is None


def test_work_that_waits_is_done_when_what_it_waits_for_has_happened(alone):
    one, other = alone(2)
    gate, done = Task(), []
    one.wait(gate)
    first = one.run(done.append, "one")
    other.wait(first)
    second = other.run(done.append, "other")
    assert not done and not second.done()
    gate.finish(None)
    second.result()
    assert done == ["one", "other"]


@pytest.mark.parametrize("wait", [Task.result, Task.wait, Task.exception])
def test_a_wait_that_never_ends_says_so(alone, wait):
    (device,) = alone(1)
    gate = Task()
    device.wait(gate)
    task = device.run(lambda: 7)
    with pytest.raises(DeviceError, match=r"Task of cpu\(0\): not done> is waited for, but will never be done"):
        wait(task)
    assert not task.wait(0)
    with pytest.raises(TimeoutError):
        task.result(60)  # at once
    gate.finish(None)
    assert task.result() == 7


def test_work_within_work_may_wait_for_another_device(alone):
    """The other's work is in line until then."""
    one, other = alone(2)
    gate = Task()
    other.wait(gate)
    event = other.run(current_device)

    def inside():
        gate.finish(None)  # which only puts the other device in line
        assert not event.done()
        one.wait(event)
        assert event.done()
        return one.run(current_device).result(), current_device()

    assert one.run(inside).result() == (one, one) and event.result() is other


PROGRAM = """
import threading
import d2lmgpu as d2l
from runs import brief, cpus
started, start = [], threading.Thread.start
threading.Thread.start = lambda self: (started.append(self.name), start(self))
history = brief(cpus(3), algorithm="ring", seed=3).history
print(history.final_parameters_sha256, len([name for name in started if "d2lmgpu" in name]))
print(d2l.devices.find_gpus()[1])
"""


@pytest.mark.threads
def test_a_run_without_threads_has_the_bits_of_one_with_them():
    environment = {**os.environ, "D2LMGPU_THREADS": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment)
    bits, started, *why = done.stdout.split()
    assert bits == brief(cpus(3), algorithm="ring", seed=3).history.final_parameters_sha256
    assert started == "0" and why[:4] == ["a", "GPU", "needs", "a"]
