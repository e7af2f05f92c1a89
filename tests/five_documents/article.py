"""An article on training with TensorFlow on several GPUs, in its own order."""

import configparser
import math
from pathlib import Path

import numpy as np

import d2lmgpu as d2l
from d2lmgpu.data import fashion_mnist
from d2lmgpu.networks import CNN, Conv2d, Dense, Flatten, MaxPool2d, ReLU, described, sequential
from d2lmgpu.plans import PLANS, prove

from .guide import (
    a_minibatch_is_distributed,
    loads,
    no_screen_is_needed,
    several_devices,
    the_minibatch_scales,
    the_rate_scales,
)
from .items import NOT_HERE, OPTIONS, TINY, close, command, items_of, on_one, refused, trained
from .loops import Told, a_queue, callbacks, partial_minibatches, remainders, shuffles, updates

article = items_of("article")

article(
    "data parallelism: each GPU has different examples, and the results are combined",
    "`d2l.train(2)`, `d2lmgpu train --split data --devices 2`",
    several_devices,
)


@article(
    "train networks that no single GPU can hold, by distributing the parameters",
    "`d2lmgpu train --split zero3 --devices 4`, `d2lmgpu train --split layers --devices 4`",
)
def larger_networks():
    """In the order of the words: what a device needs between steps, and that training does not go beyond it."""
    whole, parts = (max(prove(PLANS[name](4), optimizer="momentum").between) for name in ("data", "zero3"))
    assert 4 * parts < 1.1 * whole
    result = trained(2, split="zero3", network=TINY)
    close(result.params, on_one(network=TINY).params)
    assert result.history.split == "zero3" and len(result.history.peak_memory) == 2


@article(
    "install it, with a driver, CUDA and cuDNN",
    "`pip install -e '.[gpu]'` brings CuPy and the parts of CUDA that it needs; cuDNN is not needed, and the machine "
    "must have the driver: [GPUs](gpu.md#installing)",
)
def installing():
    """Nothing but CuPy is imported for GPUs."""
    package = Path(d2l.__file__).parent
    setup = configparser.ConfigParser()
    setup.read(package.parent / "setup.cfg")
    assert "[ctk]" in setup["options.extras_require"]["gpu"]
    assert not [path for path in package.rglob("*.py") if "cudnn" in path.read_text("utf-8").lower()]


article(
    "install it with pip, including everything it needs",
    "the wheel also contains Fashion-MNIST and the course",
    "test_packages.py::test_an_installed_wheel_works_without_network",
)


@article(
    "list the GPUs (`list_physical_devices`)",
    "`d2l.device_table()`, `d2lmgpu devices`; how many there are: `d2l.num_gpus()`",
)
def list_of_devices(cards):
    rows = [row for row in d2l.device_table() if row.kind == "gpu"]
    assert [row.name for row in rows] == ["gpu(0)", "gpu(1)"] and len(rows) == d2l.num_gpus()


@article(
    "take memory as it is needed, not all at once (`set_memory_growth`)",
    "memory is always taken as needed; you can set a limit at any time: "
    "`device.limit_memory(2**30)`, `d2lmgpu train --memory-limit 1G`",
)
def memory_on_demand():
    device = d2l.cpu(4)
    device.limit_memory(10_000)
    try:
        x = d2l.put(np.zeros(1000), device)
        refused(MemoryError, lambda: d2l.put(np.zeros(1000), device), "cpu(4)")
        del x
        d2l.put(np.zeros(1000), device)
    finally:
        device.limit_memory(None)
    assert "on [cpu(0)]" in command(f"train --memory-limit 1G {OPTIONS}")
    d2l.cpu(0).limit_memory(None)


@article(
    "a strategy that mirrors the variables on all GPUs (`MirroredStrategy`)",
    "`d2l.train(devices)`; by hand `d2l.get_params(params, device)` for each device",
)
def mirrored():
    params, devices = d2l.init_params(), [d2l.cpu(0), d2l.cpu(1)]
    copies = [d2l.get_params(params, device) for device in devices]
    copies[0][0][...] = 7.0
    np.testing.assert_array_equal(d2l.to_host(copies[1][0]), params[0])
    assert [copy[0].device for copy in copies] == devices


@article("how many replicas there are (`num_replicas_in_sync`)", "`len(devices)`, `len(history.devices)`")
def how_many_replicas():
    assert len(trained(3, network=TINY).history.devices) == 3


@article(
    "other strategies",
    "`d2lmgpu train --split zero1`, `d2lmgpu train --split data=2,layers=2 --devices 4`: [Which split?](splits.md)",
)
def other_strategies():
    one = on_one(network=TINY)
    for split, devices in ({"zero1": 2, "channels": 2, "data=2,layers=2": 4}).items():
        close(trained(devices, network=TINY, split=split).params, one.params)


article(
    "build the model where it is mirrored (`strategy.scope`)",
    "a network is a value that belongs to no device: `networks.sequential((1, 28, 28), Flatten(), Dense(10))`",
    mirrored,
)


@article(
    "optimiser, loss and metrics of a model (`compile`)",
    '`d2l.train(devices, optimizer="adam", loss="cross_entropy", metrics={"top 3": function})`',
)
def compiled():
    def first_class(outputs, labels):
        return (labels == 0).sum()

    settings = {"optimizer": "adam", "lr": 0.001, "metrics": {"of class 0": first_class}}
    one, two = (trained(k, network=TINY, **settings) for k in (1, 2))
    close(one.params, two.params)
    assert two.history.metrics["of class 0"] == [(d2l.load_fashion_mnist()[3] == 0).mean()]


@article(
    "labels as whole numbers or as vectors (`sparse_categorical_crossentropy`, `categorical_crossentropy`)",
    '`loss="cross_entropy"` takes labels (N,) and floats (N, classes)',
)
def kinds_of_labels():
    X, y, X_test, y_test = d2l.load_fashion_mnist()
    vectors = [np.eye(10, dtype=np.float32)[labels] for labels in (y, y_test)]
    result = trained(2, network=TINY, data=(X, vectors[0], X_test, vectors[1]))
    plain = trained(2, network=TINY)
    close(result.params, plain.params)
    assert result.history.test_accuracy == plain.history.test_accuracy


article("train the model (`fit`): minibatches are distributed automatically", "`d2l.train(devices)`", several_devices)


article(
    "a data set that comes with the package (`mnist.load_data`)",
    "`d2l.load_fashion_mnist()`, without a network connection",
    "test_fashion_mnist.py::test_the_data_set",
)


article(
    "MNIST itself",
    '`d2l.load_image_data("mnist")`, `d2lmgpu train --data mnist` read its four files, which you download',
    "test_idx.py::test_a_data_set",
)


@article("pictures as floats from 0 to 1, in a shape with channels", "`d2l.to_float(X)`; `d2l.train()` takes bytes")
def scaled():
    X = d2l.load_fashion_mnist()[0]
    np.testing.assert_allclose(d2l.to_float(X), X.astype(np.float32) / 255, rtol=1e-6)
    floats = [d2l.to_float(part) if part.ndim == 4 else part for part in d2l.load_fashion_mnist()]
    close(trained(2, network=TINY, data=floats).params, trained(2, network=TINY).params)


@article(
    "a data set from your own arrays (`from_tensor_slices`)",
    "`d2l.train(devices, data=(X_train, y_train, X_test, y_test))`",
)
def own_arrays():
    rng = np.random.default_rng(0)
    data = [part for n in (30, 20) for part in (rng.random((n, 3, 9, 8), np.float32), rng.integers(0, 4, n))]
    network = sequential((3, 9, 8), Conv2d(4, 3), ReLU(), MaxPool2d(), Flatten(), Dense(4))
    result = trained(2, data=data, network=network)
    assert result.model.predict(data[2], 2).shape == (20, 4)


article(
    "shuffle with a buffer",
    "each epoch is shuffled as a whole: `d2l.minibatches(X, y, 256, seed=0, epoch=epoch)`",
    shuffles,
)


article(
    "a minibatch size for each replica, multiplied by the number of replicas",
    "`d2l.train(4, batch_size=64, scale_batch=True)`; `batch_size` is the total",
    the_minibatch_scales,
)


@article("the article's CNN", '`d2l.train(network="cnn")`, `d2lmgpu train --network cnn`, or layer by layer')
def the_cnn():
    """The same layers, and as many parameters as follow from their sizes."""
    by_hand = sequential((1, 28, 28), *(Conv2d(32, 3), ReLU(), MaxPool2d(), Flatten()), *(Dense(64), ReLU(), Dense(10)))
    assert described(by_hand) == described(CNN)
    params = d2l.init_params(network=CNN)
    assert sum(param.size for param in params) == (9 + 1) * 32 + (32 * 13 * 13 + 1) * 64 + (64 + 1) * 10
    assert trained(2, network="cnn").history.network == "cnn"


@article("probabilities as the network's outputs (softmax)", "`d2l.predict(params, X, devices)` gives probabilities")
def probabilities():
    params, X = d2l.init_params(init="he"), d2l.load_fashion_mnist()[2][:5]
    logits = d2l.lenet(d2l.to_float(X), params)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(d2l.predict(params, X, [d2l.cpu(0), d2l.cpu(1)]), expected, rtol=1e-5)


@article(
    "prefetch the next minibatch while GPUs compute (`prefetch(AUTOTUNE)`)",
    "this is the default; to switch it off: `d2lmgpu train --no-prefetch`, `prefetch=False`",
)
def prefetched():
    ahead, waiting = trained(2, network=TINY), trained(2, network=TINY, prefetch=False)
    assert ahead.history.final_parameters_sha256 == waiting.history.final_parameters_sha256


@article("train for a number of epochs", "`d2l.train(num_epochs=10)`, `d2lmgpu train --epochs 10`")
def epochs():
    assert len(trained(1, num_epochs=3, network=TINY).history.train_loss) == 3


article("each GPU works on other examples", "`d2l.split_batch(X, y, devices)`", a_minibatch_is_distributed)
article(
    "GPUs are synchronised before the next minibatch",
    "`d2l.allreduce(grads)` and the same update on each: `d2l.train_batch(X, y, device_params, devices, lr)`",
    updates,
)


article(
    "loss and accuracy in TensorBoard, in a folder for each run (`callbacks=[TensorBoard(log_dir)]`)",
    '`d2lmgpu train --tensorboard runs`, `d2l.train(devices, callbacks=[d2l.TensorBoard("runs")])`; '
    "TensorBoard itself shows the folder",
    "test_monitor.py::test_event_files_for_tensorboard",
)


article(
    "histograms of the weights in TensorBoard (`histogram_freq`)",
    '`d2l.train(devices, callbacks=[d2l.TensorBoard("runs", histograms=True)])`',
    "test_monitor.py::test_histograms_for_tensorboard",
)


article(
    "callbacks during training",
    "`d2l.train(devices, callbacks=[callback])`: methods of a `d2l.Callback`",
    callbacks,
)


@article(
    "see whether the work is balanced or some GPUs wait for others",
    "`history.utilisation`, `history.balance()`; `d2lmgpu train --trace trace.json` shows each device's work",
)
def how_even():
    history = trained(2, loads=[3, 1]).history
    assert {*history.utilisation} == {"cpu(0)", "cpu(1)"} and all(
        0 < part <= 1 for part in history.utilisation.values()
    )
    assert "devices worked" in history.balance()


article(
    "watch the GPUs' use and memory during training (`nvidia-smi`)",
    "`d2lmgpu devices`, in another window; `d2l.device_table()`",
    "test_cli.py::test_devices",
)


article("give each GPU work in proportion to its speed", "`d2lmgpu train --devices 3 --loads 1,1,0.5`", loads)
article(
    "find out how fast each GPU is",
    "`d2lmgpu train --devices 2 --loads auto` measures this, and uses uneven parts if they help",
    "test_loads.py::test_loads_by_measurement",
)
article("feed data from a queue without waiting for them", "`d2l.MinibatchQueue(X, y, devices, 256)`", a_queue)


@article(
    "keep the data in memory (`cache`)",
    "arrays always are: `d2l.load_fashion_mnist()`. If steps are CUDA graphs, GPUs keep the data set in their own "
    "memory: [GPUs](gpu.md#how-a-step-runs-on-a-gpu)",
)
def kept_in_memory(monkeypatch):
    """However many epochs there are, each of the four files is read once."""
    read, names = fashion_mnist.read_idx, []
    monkeypatch.setattr(fashion_mnist, "read_idx", lambda path: names.append(path.name) or read(path))
    trained(2, network=TINY, num_epochs=3)
    assert sorted(names) == sorted(fashion_mnist.FILES)


@article(
    "a minibatch that is too large for the memory",
    "an error says how much memory is missing, and where; `d2lmgpu train --memory-limit 40M` tests this beforehand",
)
def too_large():
    """With a split, which is proved before training, also what would fit."""
    device = d2l.cpu(0)
    device.limit_memory(300_000)
    try:
        refused(MemoryError, lambda: trained([device]), "cpu(0)", "limit")
    finally:
        device.limit_memory(None)


article(
    "parts that are as equal as possible",
    "`d2l.split_batch(X, y, devices)`: sizes differ by one at most",
    remainders,
)


@article(
    "send little data between host and GPU",
    "pictures travel to a GPU as bytes, and become floats there; `d2l.record_transfers()` counts what is sent",
)
def little_is_sent(cards):
    X, y, _, _ = d2l.load_fashion_mnist()
    queue = d2l.MinibatchQueue(X, y, [d2l.gpu(0), d2l.gpu(1)], 24)
    with d2l.record_transfers() as transfers:
        X_shards, _ = queue.next()
    assert X_shards[0].dtype == np.float32
    assert sorted(transfer.nbytes for transfer in transfers) == [12, 12, 12 * 28 * 28, 12 * 28 * 28]


@article(
    "preprocess on the GPU",
    "`device.run(function, X)` in your own loop; `preprocess=function` runs on the host at the same time",
)
def on_the_device():
    device = d2l.cpu(1)
    X = d2l.put(np.arange(6.0).reshape(1, 1, 2, 3), device)
    with d2l.record_transfers() as transfers:
        mirrored = device.run(lambda images: images[..., ::-1].copy(), X).result()
    assert mirrored.device == device and not transfers
    np.testing.assert_array_equal(d2l.to_host(mirrored)[0, 0], [[2, 1, 0], [5, 4, 3]])


article("scale the learning rate with the minibatch", "`d2lmgpu train --devices 4 --scale-batch`", the_rate_scales)


@article(
    "raise the learning rate slowly if it is too large at first",
    "`d2lmgpu train --scale-batch --warmup 2 --schedule cosine`",
)
def warmed_up():
    told = Told()
    trained(2, scale_batch=True, batch_size=10, num_epochs=2, warmup=1, lr=0.01, network=TINY, callbacks=[told])
    rates = [rate for *_, rate in told.told]
    np.testing.assert_allclose(rates, [0.02 / 3, 0.04 / 3, 0.02, 0.02, 0.02, 0.02])


@article(
    "16 bits where they are enough (`mixed_float16`), with a scaled loss",
    '`d2lmgpu train --precision mixed`, `precision="mixed"`',
)
def mixed():
    ways = [trained(k, precision="mixed", network="lenet") for k in (1, 2)]
    assert ways[1].history.precision == "mixed" and math.isfinite(ways[1].history.train_loss[0])
    assert all(param.dtype == np.float32 for param in ways[1].params)
    np.testing.assert_allclose(ways[0].history.train_loss, ways[1].history.train_loss, rtol=1e-2)


article(
    "profile the run: where does the time go?",
    "`history.phases`, `d2lmgpu train --trace trace.json` for ui.perfetto.dev, `d2lmgpu train --trace trace.png`",
    "test_cli.py::test_a_trace_of_training",
)


article(
    "NVIDIA's profilers (`nvprof`, Nsight)",
    NOT_HERE + "NVIDIA's profilers work with any program, but were not tried with this one",
)
article(
    "leave out incomplete minibatches (`drop_remainder`)",
    "`d2lmgpu train --drop-last`, `drop_last=True`",
    partial_minibatches,
)
article("plots of a run as files", "`d2lmgpu train --plot run.png`", no_screen_is_needed)
