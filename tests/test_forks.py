"""Devices in a forked process: a copy of this one with its memory, but only one of its threads."""

import multiprocessing
import os
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor

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

    expected = (3 * (3 * np.arange(5.0) + 3) + 1).tolist()
    assert in_child(work) == (expected, True, "stream")
    assert d2l.to_host(data[0]).tolist() == (3 * np.arange(5.0) + 3).tolist()  # the parent's is as it was


@pytest.mark.threads
def test_what_was_under_way_is_the_parents(used):
    (device, other, _), (x, *_) = used
    gate = threading.Event()
    task = device.run(lambda: gate.wait(60) and "done")
    behind = device.run(np.add, x, 1)
    copy = d2l.put(x, other)  # waits for both

    def look():
        device.run(lambda: None).result(timeout=30)  # works all the same
        messages = []
        for lost in (task, behind):
            with pytest.raises(d2l.DeviceError) as error:
                lost.result(timeout=30)
            messages.append(str(error.value))
        return messages, d2l.to_host(copy).shape

    messages, shape = in_child(look)
    assert shape == (5,) and all("forked while that work was under way" in message for message in messages)
    gate.set()
    assert task.result(timeout=60) == "done" and d2l.to_host(behind.result())[0] == d2l.to_host(x)[0] + 1


def test_a_sweep_through_forked_processes(small, used):
    """Any executor does the trials, though this process has used devices, and has threads that a fork leaves behind."""
    trials = d2l.grid(lr=[0.05, 0.1], limit=256, num_epochs=1, devices=2, environment="cpu", init="he")
    alone = d2l.sweep(trials, mode="sequential", data=small, progress=False)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as executor:
        rows = d2l.sweep(trials, executor, data=small, progress=False)
    assert [row["status"] for row in rows] == ["done", "done"], rows
    for row, expected in zip(rows, alone, strict=True):
        assert row["history"]["final_parameters_sha256"] == expected["history"]["final_parameters_sha256"]


@pytest.mark.long
def test_cuda_does_not_survive_a_fork(standin):
    gpu = d2l.gpu(0)
    x = d2l.put(np.zeros(3, np.float32), gpu)
    works = [
        lambda: gpu.run(lambda: 1),
        lambda: d2l.to_host(x),
        lambda: d2l.put(x, d2l.cpu(0)),
        lambda: d2l.gpu(1),
        lambda: d2l.try_gpu(),
        lambda: d2l.choose_devices("auto"),
        lambda: d2l.allreduce([x, d2l.put(np.zeros(3, np.float32), d2l.cpu(0))]),
    ]
    for work in works:
        assert in_child(work).startswith("DeviceError: ") and "'spawn'" in in_child(work)
    assert in_child(lambda: str(d2l.choose_devices("cpu", 2)[1])) == "[cpu(0), cpu(1)]"
    assert d2l.to_host(x).tolist() == [0, 0, 0]


def test_a_process_that_forks_ends(tmp_path):
    """Neither the child nor the parent waits for threads of the other."""
    code = "import os, d2lmgpu as d2l; d2l.cpu(0).run(int).result(); pid = os.fork(); d2l.cpu(0).run(int).result()"
    done = subprocess.run([sys.executable, "-c", f"{code}; pid and os.waitpid(pid, 0)"], timeout=60)
    assert done.returncode == 0
