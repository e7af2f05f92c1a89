"""More devices than threads: who does their work, and that nobody waits for ever."""

import threading
import time

import pytest

import d2lmgpu as d2l
from d2lmgpu.devices import Batch, Task, current_device
from d2lmgpu.devices.device import Device
from d2lmgpu.devices.workers import Workers

pytestmark = pytest.mark.threads


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

    for number in range(15):
        for i in rng.permutation(7):
            devices[i].submit(work, number)
    d2l.synchronize(devices)
    assert max(most) <= threads and len({thread for *_, thread in seen}) <= threads
    for device in devices:  # each device's work in the order of submission
        assert [number for where, number, _ in seen if where is device] == list(range(15))


def test_work_that_waits_for_an_event_keeps_no_thread():
    """And an event that is recorded after the wait comes after what is waited for."""
    one, other = places(2, 1)
    event = Task()
    one.wait(event)
    late, recorded = one.submit(lambda: "late"), one.record()
    assert other.submit(lambda: "early").result(timeout=30) == "early"
    other.wait(recorded)
    later = other.submit(lambda: None)
    time.sleep(0.01)
    assert not late.done() and not recorded.done() and not later.done()
    event.finish(None)
    assert late.result(timeout=30) == "late"
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


def test_a_device_in_line_is_not_forgotten_after_progress():
    """The watching thread is woken by what is submitted. Work that goes on for a while, and blocks then, does not."""
    first, second, third = places(3, 2)
    begun, gate = threading.Event(), threading.Event()
    first.submit(gate.wait, 30)
    for _ in range(8):
        second.submit(time.sleep, 0.05)
    blocked = second.submit(gate.wait, 30)
    third.submit(begun.set)
    try:
        assert begun.wait(10)
    finally:
        gate.set()
    assert blocked.result(timeout=30)


def test_work_of_several_devices_begins_when_all_have_got_there_and_holds_all_of_them():
    devices = places(3, 2)
    gate, go_on, seen, event = threading.Event(), threading.Event(), [], Task()
    devices[1].submit(gate.wait, 30)
    batch = Batch()
    batch.wait(devices[1], event)
    both = batch.submit_to_all(devices[:2], lambda: (seen.append("both"), go_on.wait(30)))
    batch.commit()
    after = [device.submit(seen.append, device.name) for device in devices[:2]]
    assert devices[2].submit(lambda: "free").result(timeout=30) == "free"
    assert seen == [] and not both.done()
    gate.set()
    time.sleep(0.01)
    assert seen == [] and not both.done()
    event.finish(None)
    while not seen:
        time.sleep(0.001)
    time.sleep(0.01)
    assert seen == ["both"] and not any(task.done() for task in after)
    go_on.set()
    d2l.synchronize(devices)
    assert seen[0] == "both" and sorted(seen[1:]) == ["place 0", "place 1"]


def test_a_batch_comes_as_a_whole_and_in_order():
    """Several host threads: whatever belongs together, nothing of the others comes in between, on any device."""
    devices, seen, rounds = places(4, 2), {i: [] for i in range(4)}, 40

    def submit(name):
        for number in range(rounds):
            batch = Batch()
            for i, device in enumerate(devices):
                batch.submit(device, seen[i].append, (name, number, "before"))
            together = batch.submit_to_all(devices[1:3], seen[1].append, (name, number, "both"))
            batch.wait(devices[0], together)
            batch.submit(devices[0], seen[0].append, (name, number, "after"))
            batch.commit()

    threads = [threading.Thread(target=submit, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    d2l.synchronize(devices)
    for i, parts in {0: ["before", "after"], 1: ["before", "both"], 2: ["before"], 3: ["before"]}.items():
        groups = list(zip(*[iter(seen[i])] * len(parts), strict=True))
        assert len(groups) == 3 * rounds
        for group in groups:
            name, number, _ = group[0]
            assert group == tuple((name, number, part) for part in parts)
