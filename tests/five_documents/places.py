"""Devices: which there are, what is on them, and how much."""

import configparser
from pathlib import Path

import numpy as np

import d2lmgpu as d2l

from .common import OPTIONS, TINY, close, command, cpus, once, refused, trained
from .rows import article, guide, japanese, loops, others, textbook


@guide(
    "let the program find GPUs",
    "a pool with one worker",
    "leave out a GPU",
    "a table of the GPUs",
    "how many GPUs",
    "how many can",
    "a single GPU is the first",
)
@article("list the GPUs")
@textbook("list the GPUs")
def gpus_are_found(cards):
    assert d2l.num_gpus() == 3 and d2l.can_use_gpu() is True
    assert d2l.try_all_gpus() == [d2l.gpu(i) for i in range(3)]
    assert d2l.choose_devices("gpu") == ("gpu", [d2l.gpu(0)]) == d2l.choose_devices()
    rows = [row for row in d2l.device_table() if row.kind == "gpu"]
    assert [row.name for row in rows] == ["gpu(0)", "gpu(1)", "gpu(2)"]
    assert all(row.memory_total > 0 and row.compute_capability and row.description for row in rows)
    assert "gpu(1)" in command("devices")


@guide("use all GPUs", "choose the GPUs to use", "choose another GPU", "use two of three GPUs")
def gpus_train(cards):
    history = trained(environment="multi-gpu", network=TINY).history
    assert history.devices == ["gpu(0)", "gpu(1)", "gpu(2)"] and history.environment == "multi-gpu"
    assert d2l.choose_devices("multi-gpu", "0,2") == ("multi-gpu", [d2l.gpu(0), d2l.gpu(2)])
    assert d2l.choose_devices("gpu", [1])[1] == [d2l.gpu(1)]
    history, params = trained("gpu:1", network=TINY)
    with d2l.record_transfers() as transfers:
        d2l.predict(params, d2l.load_fashion_mnist()[2][:2], [d2l.gpu(1)], TINY)
    assert {transfer.destination for transfer in transfers} == {"host", "gpu(1)"} == {"host", *history.devices}


@article("send little data")
def little_is_sent(cards):
    X, y, _, _ = d2l.load_fashion_mnist()
    queue = d2l.MinibatchQueue(X, y, [d2l.gpu(0), d2l.gpu(1)], 24)
    with d2l.record_transfers() as transfers:
        X_shards, _ = queue.next()
    assert X_shards[0].dtype == np.float32
    assert sorted(transfer.nbytes for transfer in transfers) == [12, 12, 12 * 28 * 28, 12 * 28 * 28]


@loops("choose with a variable", "ask whether a GPU", "a worker for each GPU if there are any")
@textbook("devices by their number")
def without_a_gpu(monkeypatch):
    assert d2l.choose_devices("auto") == ("cpu", [d2l.cpu(0)]) == d2l.choose_devices("cpu")
    refused(d2l.DeviceError, lambda: d2l.choose_devices("gpu"), "needs a GPU")
    assert d2l.can_use_gpu() is False and d2l.num_gpus() == 0
    assert d2l.put(np.zeros(2), d2l.try_gpu(1)).device == d2l.cpu(1)
    assert d2l.try_all_gpus() == [d2l.cpu(0)]
    monkeypatch.setattr("d2lmgpu.cli.train.count_cores", lambda: 6)
    assert "no GPU here: cpu(0) takes one of 6 cores; --devices 6 takes all" in command(f"train {OPTIONS}")


@japanese("choose how many local workers")
@article("how many replicas")
@textbook("machines with 2, 4, 8 or 16")
def sixteen_devices():
    """More than there are cores."""
    result = once(16, network=TINY)
    assert result.history.devices == [f"cpu({i})" for i in range(16)]
    close(result.params, once(1, network=TINY).params)


@article("install it, with a driver")
def installing():
    """Nothing but CuPy is imported for GPUs."""
    package = Path(d2l.__file__).parent
    setup = configparser.ConfigParser()
    setup.read(package.parent / "setup.cfg")
    assert "[ctk]" in setup["options.extras_require"]["gpu"]
    assert not [path for path in package.rglob("*.py") if "cudnn" in path.read_text("utf-8").lower()]


@article("take memory as it is needed", "a minibatch that is too large")
@others("a limit on a device's memory")
def memory_on_demand():
    device = d2l.cpu(4)
    try:
        device.limit_memory(10_000)
        for _ in range(2):
            x = d2l.put(np.zeros(1000), device)
            refused(MemoryError, lambda: d2l.put(np.zeros(1000), device), "cpu(4)", "limit")
            del x
        assert "on [cpu(0)]" in command(f"train --memory-limit 1G {OPTIONS}")
    finally:
        device.limit_memory(None)
        d2l.cpu(0).limit_memory(None)


@guide("train by minibatches", "use larger minibatches, since several GPUs")
def memory_for_minibatches():
    """Of the data only minibatches are on a device, whose memory would not take it all; two devices take more."""
    X, y, _, _ = d2l.load_fashion_mnist()
    devices = [d2l.cpu(5), d2l.cpu(6)]
    images, labels = np.zeros((10, 1, 28, 28), np.float32), np.zeros(10, int)
    try:
        for device in devices:
            device.limit_memory(X.nbytes // 2)
        assert sum(len(shards[0]) for shards, _ in d2l.MinibatchQueue(X, y, devices[:1], 2)) == len(X)
        refused(d2l.DeviceError, lambda: d2l.split_batch(images, labels, devices[:1]), "cpu(5)")
        assert [len(shard) for shard in d2l.split_batch(images, labels, devices)[0]] == [5, 5]
    finally:
        for device in devices:
            device.limit_memory(None)


@loops("copy data to a GPU")
def there_and_back():
    x = np.arange(6.0).reshape(2, 3)
    on_device = d2l.put(x, d2l.cpu(1))
    assert on_device.device == d2l.cpu(1)
    np.testing.assert_array_equal(d2l.to_host(on_device * 2), 2 * x)
    refused(d2l.DeviceMismatchError, lambda: on_device + d2l.put(x, d2l.cpu(0)), "cpu(0)", "cpu(1)")


@article("a strategy that mirrors", "build the model where it is mirrored")
@textbook("each GPU has a complete set of parameters", "copy parameters to a device")
def mirrored():
    params = d2l.init_params()
    copies = [d2l.get_params(params, device) for device in cpus(2)]
    copies[0][0][...] = 7.0
    np.testing.assert_array_equal(d2l.to_host(copies[1][0]), params[0])
    assert [copy[0].device for copy in copies] == cpus(2)
    assert f"b1 weight: {copies[0][1]}" == f"b1 weight: [{'0. ' * 19}0.] @cpu(0)"


@loops("code that every worker runs")
@article("preprocess on the GPU")
@textbook("wait for all devices")
def work_for_each_device():
    x = [d2l.put(np.full(2, i), d2l.cpu(i)) for i in range(3)]
    with d2l.record_transfers() as transfers:
        results = [array.device.run(lambda values: values[::-1] + 1, array).result() for array in x]
    assert [(result.device, float(result[0])) for result in results] == [(d2l.cpu(i), i + 1) for i in range(3)]
    done = []
    for device in cpus(3):
        device.run(done.append, str(device))
    d2l.synchronize(cpus(3))
    assert sorted(done) == ["cpu(0)", "cpu(1)", "cpu(2)"] and not transfers
