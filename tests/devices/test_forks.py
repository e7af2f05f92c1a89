"""Devices in a forked process: a copy of this one with its memory, but only one of its threads."""

import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import d2lmgpu as d2l

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork"),
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


def in_child(function, timeout=60):
    """What ``function()`` returns in a forked process, or the kind and message of what it raises."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)

    def send():
        try:
            there.send(function())
        except Exception as error:
            there.send(f"{type(error).__name__}: {error}")

    child = context.Process(target=send)
    child.start()
    try:
        assert here.poll(timeout), "the child hangs"
        return here.recv()
    finally:
        child.kill()
        child.join()


@pytest.fixture
def used():
    """Three devices that this process has used, all their kinds of work included, and arrays there."""
    devices = [d2l.cpu(i) for i in range(3)]
    data = [d2l.put(np.arange(5.0) + i, device) for i, device in enumerate(devices)]
    d2l.allreduce(data, "ring")
    for device in devices:
        device.comm_stream.submit(lambda: None).result()
    d2l.synchronize(devices)
    return devices, data


def test_devices_work_in_a_forked_process(used):
    devices, data = used

    def work():
        d2l.allreduce(data, "ring")
        more = d2l.put(data[0], d2l.cpu(5))  # a device that the parent has not used
        stream = devices[1].comm_stream.submit(lambda: "stream").result()
        return d2l.to_host(more + 1).tolist(), d2l.cpu(0) is devices[0], stream

    before = 3 * np.arange(5.0) + 3
    assert in_child(work) == ((3 * before + 1).tolist(), True, "stream")
    assert d2l.to_host(data[0]).tolist() == before.tolist()  # the parent's is as it was


@pytest.mark.threads
def test_what_was_under_way_is_the_parents(used):
    (device, other, _), (x, *_) = used
    gate = threading.Event()
    task = device.run(lambda: gate.wait(60) and "done")
    behind = device.run(np.add, x, 1)
    copy = d2l.put(x, other)  # waits for both

    def look():
        device.run(lambda: None).result(timeout=30)  # works all the same
        for lost in (task, behind):
            with pytest.raises(d2l.DeviceError, match="forked while that work was under way"):
                lost.result(timeout=30)
        return d2l.to_host(copy).shape

    assert in_child(look) == (5,)
    gate.set()
    assert task.result(timeout=60) == "done" and d2l.to_host(behind.result())[0] == d2l.to_host(x)[0] + 1


@pytest.mark.long
def test_cuda_does_not_survive_a_fork(standin):
    gpu = d2l.gpu(0)
    x = d2l.put(np.zeros(3, np.float32), gpu)
    for work in [
        lambda: gpu.run(lambda: 1),
        lambda: d2l.to_host(x),
        lambda: d2l.gpu(1),
        lambda: d2l.choose_devices("auto"),
        lambda: d2l.allreduce([x, d2l.put(np.zeros(3, np.float32), d2l.cpu(0))]),
    ]:
        said = in_child(work)
        assert said.startswith("DeviceError: ") and "'spawn'" in said
    assert in_child(lambda: str(d2l.choose_devices("cpu", 2)[1])) == "[cpu(0), cpu(1)]"
    assert d2l.to_host(x).tolist() == [0, 0, 0]


def test_a_process_that_forks_ends():
    """Neither the child nor the parent waits for threads of the other."""
    code = "import os, d2lmgpu as d2l; d2l.cpu(0).run(int).result(); pid = os.fork(); d2l.cpu(0).run(int).result()"
    done = subprocess.run([sys.executable, "-c", f"{code}; pid and os.waitpid(pid, 0)"], timeout=60)
    assert done.returncode == 0
