"""The rules of devices: arrays of two places do not mix, queues run at the same time, transfers are recorded."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.devices import DeviceArray, current_device, find_gpus

MIXED = {
    "arithmetic": lambda a, b: a + b,
    "reflected arithmetic": lambda a, b: b * a,
    "comparison": lambda a, b: a == b,
    "in-place arithmetic": lambda a, b: a.__iadd__(b),
    "matmul": lambda a, b: a @ b,
    "assignment": lambda a, b: a.__setitem__(slice(None), b),
    "out": lambda a, b: np.add(a, a, out=b),
    "out, the other way": lambda a, b: np.add(b, b, out=a),
    "where": lambda a, b: np.add(a, a, where=b > 0),
    "concatenation": lambda a, b: np.concatenate([a, b]),
    "indexing": lambda a, b: a[b > 0],
    "assignment by index": lambda a, b: a.__setitem__(b > 0, 1),
    "np.where": lambda a, b: np.where(a > 0, a, b),
    "copyto": lambda a, b: np.copyto(a, b),
    "dot": lambda a, b: a.dot(b),
    "dense": lambda a, b: d2l.dense(a, b, b[0]),
}
HOST_ONLY = {
    "assignment into a host array": lambda a, h: h.__setitem__(slice(None), a),
    "in-place arithmetic on the host": lambda a, h: h.__iadd__(a),
    "indexing a host array": lambda a, h: h[a > 0],
    "reading as a NumPy array": lambda a, h: np.asarray(a),
    "reading a list": lambda a, h: np.array([a, a]),
    "adding a list": lambda a, h: a + [[1.0, 2.0], [3.0, 4.0]],
    "assigning a list": lambda a, h: a.__setitem__(0, [1.0, 2.0]),
    "running with a host array": lambda a, h: a.device.run(np.add, a, h),
    "running with a host array in a list": lambda a, h: a.device.run(np.concatenate, [a, h]),
    "a method's out": lambda a, h: a.sum(axis=0, out=h[0]),
}


VALUES = [[1.0, -2.0], [3.0, 4.0]]


@pytest.fixture
def device(make_devices):
    return make_devices(1)[0]


def square(device):
    return d2l.put(VALUES, device)


def accepted(operations, a, b, *words):
    """The names of those that do not end in the error that they should, with all these words in it."""
    found = []
    for name, operation in operations.items():
        try:
            operation(a, b)
        except d2l.DeviceMismatchError as error:
            if all(word in str(error) for word in words):
                continue
        found.append(name)
    return found


def test_arrays_of_two_devices_do_not_mix(make_devices):
    one, other = make_devices(2)
    a, b = square(one), square(other)
    assert accepted(MIXED, a, b, str(one), str(other), "d2l.put(x, d2l.") == []
    assert d2l.to_host(a).tolist() == d2l.to_host(b).tolist() == VALUES


def test_device_and_host_do_not_mix(device):
    host = np.array(VALUES)
    words = str(device), "the host", f"d2l.put(x, d2l.{device})", "d2l.to_host(x)"
    assert accepted(MIXED | HOST_ONLY, square(device), host, *words) == []
    assert host.tolist() == VALUES


def test_operations_within_a_device(device):
    host, a = np.array(VALUES), square(device)
    cases = [
        (a + a, host + host),
        (2 - a @ a.T, 2 - host @ host.T),
        (-a[0], -host[0]),
        (a[:, 1], host[:, 1]),
        (a[[1, 0]], host[[1, 0]]),
        (a[a > 0], host[host > 0]),
        (np.concatenate([a, a]), np.concatenate([host, host])),
        (np.maximum(a, 0), np.maximum(host, 0)),
        (np.add.reduce(a), np.add.reduce(host)),
        (a.sum(axis=0), host.sum(axis=0)),
        (a.reshape(4), host.reshape(4)),
        (a.mean(), host.mean()),
        (a == a, host == host),
    ]
    for actual, expected in cases:
        assert isinstance(actual, DeviceArray) and actual.device is device
        np.testing.assert_array_equal(d2l.to_host(actual), expected)
    assert float(a.max()) == 4 and int(a[1, 0]) == 3 and bool(a[0, 0] == 1)
    assert [len(row) for row in a] == [2, 2] and a.shape == (2, 2) and a.dtype == float
    assert f"@{device}" in repr(a) and "-2." in repr(a)
    for name in ("tofile", "get", "numpy"):  # as other libraries copy to the host
        with pytest.raises(AttributeError, match=rf"no '{name}'.*to_host"):
            getattr(a, name)


def test_changes_in_place(device):
    a = square(device)
    same = a
    a += 1
    a[0] = 0
    a[:, 1] = a[:, 0]
    np.add(a, 10, out=a)
    assert a is same
    np.testing.assert_array_equal(d2l.to_host(a), [[10, 10], [14, 14]])
    view = a[1]
    view[:] = 7
    np.testing.assert_array_equal(d2l.to_host(a), [[10, 10], [7, 7]])


def test_functions_of_two_results():
    a, device = np.array([7.0, 9.5]), d2l.cpu(0)
    x, first, second = d2l.put(a, device), *(d2l.put(np.zeros(2), device) for _ in range(2))
    for results in (divmod(x, 2), np.divmod(x, 2, out=(first, second)), (first, second)):
        for result, expected in zip(results, np.divmod(a, 2), strict=True):
            assert result.device is device
            np.testing.assert_array_equal(d2l.to_host(result), expected)


def test_each_device_has_its_own_memory(make_devices):
    """Copies are copies, of views and of any dtype."""
    one, other = make_devices(2)
    host = np.arange(3.0)
    a, b = d2l.put(host, one), d2l.put(host, other)
    c, same = d2l.put(a, other), d2l.put(a, one)
    host[:] = -1
    a[:] = 5
    d2l.to_host(b)[:] = 9
    assert c.device is other
    for untouched in (b, c, same):
        np.testing.assert_array_equal(d2l.to_host(untouched), [0, 1, 2])
    x = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    on_one = d2l.put(x[:, ::2, 1:], one)
    np.testing.assert_array_equal(d2l.to_host(on_one), x[:, ::2, 1:])
    moved = d2l.put(on_one.T, other)
    np.testing.assert_array_equal(d2l.to_host(moved), x[:, ::2, 1:].T)
    assert moved.dtype == np.uint8 and d2l.put(3.5, one).shape == ()


@pytest.mark.threads
def test_devices_work_at_the_same_time(make_devices):
    """Each task waits for the other one to have started: in turn, they would wait for ever."""
    devices = make_devices(3)
    meeting = threading.Barrier(3, timeout=30)
    for task in [device.run(meeting.wait) for device in devices]:
        task.result(timeout=60)


@pytest.mark.threads
def test_a_queue_keeps_its_order(device):
    """Also operations of the host program, and reading an element, wait for their turn."""
    a = d2l.put(np.zeros(3), device)
    seen, gate = [], threading.Event()

    def fill(array, value):
        array[:] = value

    device.run(gate.wait, 30)
    for i in range(5):
        device.run(seen.append, i)
    device.run(fill, a, 8)
    assert seen == []  # the host program was not kept waiting
    element, number = a[1], a[None, ..., 2]
    threading.Timer(0.1, gate.set).start()
    assert float(element + 5) == 13 and number.shape == (1,) and element.shape == ()
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.threads
def test_a_transfer_is_ordered_with_both_queues(make_devices):
    """It must see earlier work of the source, and later work must not overwrite it while it travels."""
    one, other = make_devices(2)
    a = d2l.put(np.zeros(100_000), one)
    started, go_on = threading.Event(), threading.Event()

    def fill(array, value, wait_for=None):
        started.set()
        if wait_for:
            wait_for.wait(30)
        array[:] = value

    one.run(fill, a, 1, go_on)
    received = [d2l.put(a, other)] if one.kind == "cpu" else []  # putting on a GPU waits until it is launched
    later = one.run(fill, a, 2)
    started.wait(30)
    assert not later.done()
    go_on.set()
    for array in received:
        np.testing.assert_array_equal(d2l.to_host(array), 1)
    np.testing.assert_array_equal(d2l.to_host(d2l.put(a, other)), 2)


def test_transfers_are_recorded(make_devices):
    one, other = make_devices(2)
    with d2l.record_transfers() as transfers:
        a = d2l.put(np.zeros((10, 3), np.float32), one)
        b = d2l.put(a, other)
        d2l.to_host(b[2:4])
        float(b[0, 0])
        a + a  # moves nothing
    d2l.put(a, other)  # after the record was closed
    one, other = str(one), str(other)
    expected = [("host", one, 120), (one, other, 120), (other, "host", 24), (other, "host", 4)]
    assert [(t.source, t.destination, t.nbytes) for t in transfers] == expected


def test_an_error_is_raised_where_what_it_spoilt_is_read():
    """At the end of a record of transfers, and for a view made after the work that failed on its array."""
    x = d2l.put(np.zeros(3), d2l.cpu(0))
    with pytest.raises(ZeroDivisionError), d2l.record_transfers():
        d2l.put(x, d2l.cpu(1))
        d2l.cpu(1).run(lambda: 1 / 0)
    with pytest.raises(KeyError), d2l.record_transfers():  # an error of the block itself comes first
        raise KeyError
    d2l.cpu(0).run(lambda: 1 / 0)
    d2l.to_host(d2l.put(np.zeros(3), d2l.cpu(0)))  # made later
    with pytest.raises(ZeroDivisionError):
        d2l.to_host(x[1:])


def test_functions_on_a_device_get_plain_arrays_and_know_where_they_are(device):
    """What holds no arrays is passed as it is."""
    a, network = square(device), d2l.networks.LENET  # a tuple that cannot be made of its items alone

    def look(arrays, value, pair):
        assert type(arrays["a"]) is type(a.raw)
        assert current_device() is device and value is network and pair[0] is network
        return {"sum": arrays["a"].sum(), "text": "as it is", "pair": (arrays["a"], 3)}

    result = device.run(look, {"a": a}, network, (network, 1)).result()
    assert float(result["sum"]) == 6 and result["text"] == "as it is"
    assert result["pair"][0].device is device and result["pair"][1] == 3
    assert current_device() is None


@pytest.mark.threads
@pytest.mark.packages
def test_choosing_devices(device_kind):
    """`try_gpu` never mixes kinds; three devices on fewer cards share them in turn."""
    gpus, devices = find_gpus()[0], [d2l.try_gpu(i) for i in range(3)]
    kind = "gpu" if gpus else "cpu"
    assert [str(device) for device in devices] == [f"{kind}({i})" for i in range(3)]
    assert d2l.try_all_gpus() == [d2l.try_gpu(i) for i in range(max(1, gpus))]
    assert d2l.choose_devices() == (kind, devices[:1])
    assert d2l.choose_devices("cpu", [0, 2]) == ("cpu", [d2l.cpu(0), d2l.cpu(2)])
    if gpus:
        assert [device.card for device in devices] == [i % gpus for i in range(3)]
        assert d2l.choose_devices("multi-gpu")[1] == d2l.try_all_gpus()
        assert d2l.choose_devices("gpu", 9)[1] == [d2l.gpu(i) for i in range(9)]
        return
    for name in ("gpu", "multi-gpu"):
        with pytest.raises(d2l.DeviceError, match="needs a GPU: CuPy"):
            d2l.choose_devices(name, 9)
    with pytest.raises(d2l.DeviceError, match=r"gpu\(1\): CuPy .* Use cpu\(1\)"):
        d2l.gpu(1)


def test_device_table(device_kind, monkeypatch, capsys):
    rows = d2l.device_table()
    assert sum(row.kind == "gpu" for row in rows) == find_gpus()[0]
    known = [row for row in rows if row.kind == "cpu" or row.memory_free is not None]  # of GPUs nvidia-smi tells it
    assert rows[-1].kind == "cpu" and all(0 < row.memory_free <= row.memory_total for row in known)
    for row in rows:
        assert (row.compute_capability is None) == (row.kind == "cpu") and row.description and row.memory_total > 0
    monkeypatch.setitem(sys.modules, "psutil", None)  # as in a browser: what nobody can tell is a question mark
    row = d2l.device_table()[-1]
    assert (row.memory_free, row.memory_total) == (None, None)
    assert cli.main(["devices"]) == 0
    assert capsys.readouterr().out.splitlines()[len(rows)].split()[1:4] == ["?", "?", "?"]


def test_a_number_as_text_is_a_transfer(device):
    x, n = d2l.put(np.float32([[2.345]]), device), d2l.put(-7, device)
    with d2l.record_transfers() as transfers:
        texts = f"{x[0, 0]:.2f}", f"{x:8.1e}", f"{n:+05d}", format(n, "_>4"), f"{x:.1%}"
        assert round(x, 2) == 2.35 and round(n, -1) == -10 and round(x[0]) == 2 and type(round(x)) is int
    assert texts == ("2.35", " 2.3e+00", "-0007", "__-7", "234.5%")
    assert [(t.source, t.destination) for t in transfers] == [(str(device), "host")] * 9
    assert f"{x}" == format(x) == str(x) and f"@{device}" in f"{n}"


FORK = """
import os, d2lmgpu as d2l
x, gate = d2l.put([1.0], d2l.cpu(0)), d2l.devices.Task()
d2l.cpu(0).wait(gate)
task = d2l.cpu(0).run(lambda: 1)
if os.fork() == 0:
    for work in (lambda: x + 1, task.result, lambda: d2l.cpu(1), d2l.synchronize, d2l.num_gpus):
        try:
            work()
        except d2l.DeviceError as error:
            print(error)
else:
    os.wait()
    gate.finish(None)
    print(task.result())
"""


@pytest.mark.threads
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_fork_of_a_process_with_devices_is_refused_them():
    """It has none of their threads, and nothing in it hangs; the parent goes on."""
    program = [sys.executable, "-W", "ignore", "-c", FORK]
    *refused, result = subprocess.check_output(program, text=True, timeout=60).splitlines()
    assert len(refused) == 5 and result == "1" and all("use 'spawn'" in line for line in refused)


def test_blas_keeps_to_one_thread():
    from threadpoolctl import threadpool_info

    d2l.cpu(0)
    assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}
