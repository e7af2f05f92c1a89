"""More devices than threads: who does their work, and that nobody waits for ever."""

import threading
import time

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu.devices import Task, current_device
from d2lmgpu.devices.device import Device, take_turns
from d2lmgpu.devices.workers import Workers


class Place(Device):
    """A device with nothing but a queue."""

    def __init__(self, name, workers):
        self.name = name
        super().__init__(0, workers)

    def __repr__(self):
        return self.name


def places(count, threads):
    workers = Workers(threads)
    return [Place(f"place {i}", workers) for i in range(count)]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_no_more_threads_than_asked_for(threads, rng):
    devices = places(7, threads)
    seen, at_work, most = [], [], []

    def work(number):
        at_work.append(None)
        most.append(len(at_work))
        seen.append((current_device(), number, threading.get_ident()))
        time.sleep(0.0005)
        at_work.pop()

    for number in range(20):
        for i in rng.permutation(7):
            devices[i].submit(work, number)
    d2l.synchronize(devices)
    assert max(most) <= threads and len({thread for *_, thread in seen}) <= threads
    for device in devices:  # each device's work in the order of submission
        assert [number for where, number, _ in seen if where is device] == list(range(20))


def test_work_that_waits_for_an_event_keeps_no_thread():
    one, other = places(2, 1)
    event = Task()
    one.wait(event)
    late = one.submit(lambda: "late")
    assert other.submit(lambda: "early").result(timeout=30) == "early"
    assert not late.done() and not one.is_idle()
    event.set_result(None)
    assert late.result(timeout=30) == "late"


def test_an_event_recorded_after_a_wait_comes_after_what_is_waited_for():
    one, other = places(2, 2)
    event = Task()
    one.wait(event)
    recorded = one.record()
    other.wait(recorded)
    later = other.submit(lambda: None)
    time.sleep(0.01)
    assert not recorded.done() and not later.done()
    event.set_result(None)
    later.result(timeout=30)
    assert recorded.done()


def test_work_that_blocks_gets_more_threads_which_then_go():
    """Nobody should let devices wait for each other inside of their work. Whoever does it is not left hanging."""
    before = threading.active_count()
    devices = places(5, 2)
    meeting = threading.Barrier(5, timeout=30)
    for _ in range(2):
        for task in [device.submit(meeting.wait) for device in devices]:
            task.result()
    deadline = time.monotonic() + 30
    while threading.active_count() > before + 3 and time.monotonic() < deadline:  # two workers, and who watches them
        for task in [device.submit(time.sleep, 0.001) for device in devices]:
            task.result()
    assert threading.active_count() <= before + 3


def test_what_is_submitted_while_the_host_program_does_the_work_comes_after_it():
    devices = [d2l.cpu(i) for i in range(3)]
    d2l.synchronize(devices)
    x = d2l.put(np.zeros(3), devices[1])
    with take_turns(devices) as allowed:
        assert allowed
        later = devices[1].run(np.add, x, 1)
        with take_turns(devices[:2]) as again:
            assert not again  # device 1 has work to do
        x.raw[:] = 5
        assert not later.done()
    assert d2l.to_host(later.result()).tolist() == [6, 6, 6]
    with take_turns(devices) as allowed:
        assert allowed
