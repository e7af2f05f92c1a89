"""Tasks: futures without a lock, and whose errors are told once."""

import gc
import sys
import threading
import time
import weakref

import pytest
from runs import DATA, PLAIN, brief

import d2lmgpu as d2l
from d2lmgpu.devices import current_device

pytestmark = pytest.mark.threads

PATIENCE = 60


@pytest.fixture
def held():
    """A device at work until the event is set, and the task that it does."""
    device, gate, started = d2l.cpu(0), threading.Event(), threading.Event()
    d2l.synchronize([device])
    task = device.run(lambda: started.set() or gate.wait(PATIENCE) and 5)
    started.wait(PATIENCE)
    yield device, gate, task
    gate.set()
    d2l.synchronize([device])


def test_waiting_may_end_early(held):
    device, gate, running = held
    later = device.run(lambda: 7)
    for task in (running, later):
        with pytest.raises(TimeoutError, match=r"Task of cpu\(0\): not done> after 0.01 seconds"):
            task.result(timeout=0.01)
        assert not task.wait(0.01) and not task.done()
    gate.set()
    assert (running.result(PATIENCE), later.result(PATIENCE)) == (5, 7)
    assert later.wait(0.01) and later.done() and "cpu(0): done" in repr(later)


class Odd(BaseException):
    """No error that anybody expects."""


def _raise(error):
    raise error


def test_no_error_ends_a_worker():
    devices = [d2l.cpu(i) for i in range(3)]
    for task in [device.run(time.sleep, 0.01) for device in devices]:  # by all threads that there will be
        task.result()
    before = threading.active_count()
    for error in (SystemExit(0), KeyboardInterrupt(), GeneratorExit(), StopIteration(), Odd(), MemoryError()):
        for device in devices:
            with pytest.raises(type(error)):
                device.run(_raise, error).result(PATIENCE)
            device.run(_raise, error).add_done_callback(lambda task: _raise(task.error))
            assert isinstance(device.run(_raise, error).exception(PATIENCE), type(error))
            assert device.run(lambda: 3).result(PATIENCE) == 3
            device.failures.take()
    assert threading.active_count() == before


def test_no_task_can_end_a_worker_otherwise(make_devices):
    """One that waits for what comes after it, and one that leaves a trace function behind."""
    (device,), tasks, gate = make_devices(1), [], threading.Event()

    def odd():
        gate.wait(PATIENCE)
        with pytest.raises(d2l.DeviceError, match="waits for work that comes after it"):
            tasks[1].result()
        return "its own"

    tasks += [device.submit(odd), device.submit(lambda: "after")]
    gate.set()
    assert [task.result(PATIENCE) for task in tasks] == ["its own", "after"]
    for _ in range(30):  # more than there are workers
        device.submit(sys.settrace, lambda *_: 1 / 0)
    assert device.run(lambda: 7).result(PATIENCE) == 7
    device.failures.take()


def test_callbacks_are_called_once_each(held):
    device, gate, running = held
    seen = []
    running.add_done_callback(lambda task: seen.append((1, current_device())))
    running.add_done_callback(lambda task: seen.append((2, task.result())))
    gate.set()
    d2l.synchronize([device])
    d2l.synchronize([])  # nor is there anything to wait for
    running.add_done_callback(lambda task: seen.append((3, current_device())))
    assert seen == [(1, device), (2, 5), (3, None)]


class Large:
    """Something that a task comes up with; `left` counts those that are still there."""

    alive = weakref.WeakSet()

    def __init__(self):
        self.alive.add(self)


def left():
    gc.collect()
    return len(Large.alive)


def fail_with_large(message):
    large = Large()
    raise ZeroDivisionError(f"{message} {large is None}")


def test_errors_that_were_asked_for_are_let_go(make_devices):
    """Also those that are asked for late, when they were remembered already."""
    (device,) = make_devices(1)
    for i in range(20):
        with pytest.raises(ZeroDivisionError):
            device.run(fail_with_large, i).result(PATIENCE)
        assert device.run(fail_with_large, i).exception(PATIENCE)
        device.run(fail_with_large, i).wait(PATIENCE)
        device.failures.take()
    assert left() == 0
    device.synchronize()
    task = device.run(fail_with_large, "late")
    device.record().wait(PATIENCE)
    assert left() == 1
    assert isinstance(task.exception(), ZeroDivisionError)
    del task
    assert left() == 0


def test_errors_that_nobody_asks_for_hold_no_memory(make_devices):
    """The first is told; of the others only a few are kept."""
    (device,) = make_devices(1)
    for i in range(300):
        device.run(fail_with_large, i)
    device.record().wait(PATIENCE)
    assert left() <= 10
    with pytest.raises(ZeroDivisionError, match="0 False"):
        device.synchronize()
    device.synchronize()
    assert left() == 0


def test_what_a_task_was_given_is_let_go(held):
    device, gate, running = held
    large = Large()
    tasks = device.run(id, large), device.submit(id, large)
    gate.set()
    for task in tasks:
        task.result(PATIENCE)
    del large
    assert left() == 0


def test_an_old_error_does_not_hit_the_next_call(make_devices, capsys):
    """It is told, in a line, and the call does what it should. So also if it comes up only when the call has begun."""
    devices = make_devices(2)
    for waits in (False, True):
        for device in devices:
            device.run(fail_with_large, "of an earlier call")
            if waits:
                device.record().wait(PATIENCE)
        history, params = brief(devices, network=PLAIN, num_epochs=1)
        assert len(history.train_loss) == 1
        told = capsys.readouterr().err.splitlines()
        assert len(told) == 2 and all("ZeroDivisionError: of an earlier call" in line for line in told)
    brief(devices, network=PLAIN, num_epochs=1)
    assert capsys.readouterr().err == ""
    copies = [d2l.get_params(params, device) for device in devices]
    for call in (
        lambda: d2l.evaluate(params, *DATA[2:], devices, PLAIN),
        lambda: d2l.predict(params, DATA[2], devices, PLAIN),
        lambda: d2l.train_batch(d2l.to_float(DATA[0]), DATA[1], copies, devices, 0.1, network=PLAIN),
        lambda: list(d2l.collectives.measure_allreduce(devices, ["ring"], [64])),
    ):
        devices[1].run(fail_with_large, "of an earlier call")
        call()
        for device in devices:
            device.failures.take()
