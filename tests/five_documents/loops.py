"""MATLAB's "Run Custom Training Loops on a GPU and in Parallel", in its own order."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from clusters_in_threads import in_each

import d2lmgpu as d2l
from d2lmgpu.layers.batch_norm import batch_moments, mean_and_variance
from d2lmgpu.networks import LENET_BN, BatchNorm, Conv2d, Dense, Flatten, ReLU, channels, init_statistics, sequential

from .guide import the_minibatch_scales
from .items import OPTIONS, TINY, close, command, is_picture, items_of, on_one, refused, trained

loops = items_of("loops")

NORMED = sequential((1, 28, 28), Conv2d(3, 5), BatchNorm(), ReLU(), Flatten(), Dense(10))


def epoch_by_hand(devices, batch_size=24, **queue):
    """A training loop of one's own for LeNet, on devices or a cluster: each device's parameters at the end."""
    X, y, _, _ = d2l.load_fashion_mnist()
    queue = d2l.MinibatchQueue(X, y, devices, batch_size, **queue)
    mine = getattr(devices, "mine", devices)
    across = devices.across("ring") if mine is not devices else "ring"
    device_params = [d2l.get_params(d2l.init_params(init="he"), device) for device in mine]
    while queue.hasdata:
        size, (X_shards, y_shards) = queue.size, queue.next()
        shards = zip(X_shards, y_shards, device_params, strict=True)
        device_grads = [d2l.loss_and_grads(X, y, params)[1] for X, y, params in shards]
        for grads in zip(*device_grads, strict=True):
            d2l.allreduce(list(grads), across)
        for params, grads in zip(device_params, device_grads, strict=True):
            d2l.sgd(params, grads, 0.05, size)
    return [[d2l.to_host(param) for param in params] for params in device_params]


@loops(
    "your own training loop, on a GPU",
    "`d2l.train_batch(X, y, device_params, devices, lr)`; its parts `d2l.loss_and_grads`, `d2l.allreduce`, `d2l.sgd`",
)
def a_loop_of_ones_own():
    device = d2l.try_gpu(0)
    params = d2l.get_params(d2l.init_params(init="he"), device)
    X, y, _, _ = d2l.load_fashion_mnist()
    for batch in d2l.minibatches(X, y, 24, seed=0, epoch=0):
        d2l.train_batch(*batch, [params], [device], lr=0.05)
    close(epoch_by_hand([device])[0], params)
    close(trained([device]).params, params)


@loops("on several GPUs", "`d2l.split_batch(X, y, devices)`, then the same steps on each device")
def on_several():
    one, two = epoch_by_hand([d2l.cpu(0)]), epoch_by_hand([d2l.cpu(0), d2l.cpu(1)])
    np.testing.assert_array_equal(two[0][0], two[1][0])
    close(two[0], one[0])


@loops("on a cluster", '`d2l.MinibatchQueue(X, y, cluster, 256)`, `d2l.allreduce(grads, cluster.across("ring"))`')
def on_a_cluster():
    for params in sum(in_each([1, 2], epoch_by_hand), []):
        close(params, epoch_by_hand([d2l.cpu(0)])[0])


def normed_by_hand(devices):
    """An epoch of `d2l.train_batch` with momentum and batch norm: parameters and statistics of each device."""
    X, y, _, _ = d2l.load_fashion_mnist()
    mine = getattr(devices, "mine", devices)
    params, running = d2l.init_params(init="he", network=NORMED), init_statistics(NORMED)
    device_params = [d2l.get_params(params, device) for device in mine]
    how = {"network": NORMED, "optimizer": d2l.init_optimizer("momentum", device_params)}
    how["statistics"] = [d2l.get_params(running, device) for device in mine]
    for batch in d2l.minibatches(X, y, 24, seed=0, epoch=0):
        d2l.train_batch(*batch, device_params, devices, 0.005, **how)
    return [[list(map(d2l.to_host, own)) for own in arrays] for arrays in (device_params, how["statistics"])]


@loops(
    "with any network, optimiser and state",
    "`d2l.train_batch(X, y, device_params, devices, lr, network=network, optimizer=optimizer, statistics=statistics)`; "
    '`d2l.init_optimizer("momentum", device_params)`; this also works on a cluster',
)
def any_network_by_hand():
    """As `train` does it, with the statistics of each device's own images."""
    result = trained(3, network=NORMED, optimizer="momentum", lr=0.005)
    for device_params, _ in in_each([1, 2], normed_by_hand):
        for params in device_params:
            close(params, result.params)
    device_params, device_statistics = normed_by_hand([d2l.cpu(i) for i in range(3)])
    close(device_params[2], result.params)
    close(device_statistics[0], result.statistics)


@loops(
    "on one or several CPUs if there is no GPU",
    '`d2l.train(4, environment="cpu")`, `d2lmgpu train --environment cpu --devices 4`',
)
def on_cpus():
    assert trained(3, environment="cpu", network=TINY).history.devices == ["cpu(0)", "cpu(1)", "cpu(2)"]
    assert "cpu(1)" in command(f"train --environment cpu --devices 2 {OPTIONS}")


@loops(
    "automatic gradients (`dlfeval`, `dlgradient`)",
    "each layer has a gradient function written by hand: `d2l.loss_and_grads(X, y, params)`",
)
def gradients():
    """Against a difference of losses along a random direction, in float64."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3, 1, 28, 28)), np.array([1, 5, 7])
    params = [rng.normal(0, 0.1, param.shape) for param in d2l.init_params(network=TINY)]
    step = [rng.normal(0, 1e-7, param.shape) for param in params]
    losses = []
    for sign in (1, -1):
        moved = [param + sign * change for param, change in zip(params, step, strict=True)]
        losses.append(d2l.loss_and_grads(X, y, moved, TINY)[0])
    _, grads = d2l.loss_and_grads(X, y, params, TINY)
    expected = sum((grad * change).sum() for grad, change in zip(grads, step, strict=True))
    np.testing.assert_allclose((losses[0] - losses[1]) / 2, expected, rtol=1e-5)


@loops("copy data to a GPU (`gpuArray`) and back (`gather`, `extractdata`)", "`d2l.put(x, device)`, `d2l.to_host(x)`")
def there_and_back():
    x = np.arange(6.0).reshape(2, 3)
    on_device = d2l.put(x, d2l.cpu(1))
    assert on_device.device == d2l.cpu(1)
    np.testing.assert_array_equal(d2l.to_host(on_device * 2), 2 * x)
    refused(d2l.DeviceMismatchError, lambda: on_device + d2l.put(x, d2l.cpu(0)), "cpu(0)", "cpu(1)")


@loops(
    "minibatches that are prepared automatically (`minibatchqueue`)",
    "`d2l.MinibatchQueue(X, y, devices, batch_size=256)`",
)
def a_queue():
    X, y, _, _ = d2l.load_fashion_mnist()
    queue = d2l.MinibatchQueue(X, y, [d2l.cpu(0), d2l.cpu(1)], 24)
    shards = list(queue)
    assert [[len(y) for y in y_shards] for _, y_shards in shards] == [[12, 12], [12, 12], [6, 6]]
    assert {(shard.device, shard.dtype.name) for shard in shards[0][0]} == {(d2l.cpu(i), "float32") for i in (0, 1)}
    assert sum(float(X.sum()) for X_shards, _ in shards for X in X_shards) > 0


@loops(
    "your own preprocessing for each minibatch (`MiniBatchFcn`)",
    "`d2l.MinibatchQueue(X, y, devices, 256, preprocess=function)`, `d2l.train(devices, preprocess=function)`; "
    '`preprocess="flip+shift"`',
)
def preprocessing():
    def darker(X, y, rng):
        return X * 0, y

    X, y, _, _ = d2l.load_fashion_mnist()
    X_shards, _ = d2l.MinibatchQueue(X, y, [d2l.cpu(0)], 24, preprocess=darker).next()
    assert not d2l.to_host(X_shards[0]).any()
    ways = [trained(k, preprocess="flip+shift") for k in (1, 3)]
    close(ways[0].params, ways[1].params)
    changed = [trained(1, preprocess=function) for function in (darker, None)]
    assert changed[0].history.train_loss != changed[1].history.train_loss


@loops(
    "put minibatches on the GPU, or leave them on the host (`OutputEnvironment`)",
    "`queue.next()` gives shards on the devices, `queue.next_whole()` the minibatch on the host",
)
def where_minibatches_are():
    X, y, _, _ = d2l.load_fashion_mnist()
    queue = d2l.MinibatchQueue(X, y, [d2l.cpu(0), d2l.cpu(1)], 24)
    whole = queue.next_whole()
    queue.shuffle(0)
    X_shards, y_shards = queue.next()
    for array, shards in zip(whole, (X_shards, y_shards), strict=True):
        assert isinstance(array, np.ndarray)
        np.testing.assert_array_equal(np.concatenate(list(map(d2l.to_host, shards))), array)


@loops(
    "choose with a variable where to compute: `auto`, `cpu` or `gpu`",
    '`d2l.choose_devices("auto")` gives the environment and the devices',
)
def environments():
    assert d2l.choose_devices("auto") == ("cpu", [d2l.cpu(0)]) == d2l.choose_devices("cpu")
    refused(d2l.DeviceError, lambda: d2l.choose_devices("gpu"), "needs a GPU")


@loops(
    "ask whether a GPU can be used, and convert data only then (`canUseGPU`)",
    "`d2l.can_use_gpu()`; `d2l.put(X, d2l.try_gpu(0))` works with or without a GPU",
)
def without_a_gpu():
    assert d2l.can_use_gpu() is False and d2l.num_gpus() == 0
    assert d2l.put(np.zeros(2), d2l.try_gpu(1)).device == d2l.cpu(1)


loops(
    "each worker trains with a part of every minibatch",
    "`d2l.split_batch(X, y, devices)`; `d2l.train` does this automatically",
    on_several,
)


@loops(
    "combine gradients and losses in proportion to the sizes of the parts",
    "losses and gradients are sums over examples: `d2l.allreduce(grads)` adds them, `d2l.sgd` divides once",
)
def in_proportion():
    """Parts of 16, 0 and 8 examples, on which means of means would be wrong."""
    uneven = epoch_by_hand([d2l.cpu(i) for i in range(3)], loads=[2, 0, 1])
    close(uneven[0], epoch_by_hand([d2l.cpu(0)])[0])
    close(uneven[2], uneven[0])


loops(
    "start a pool with a worker for each GPU, and partition the data between them",
    "`d2l.MinibatchQueue(X, y, d2l.try_all_gpus(), 256)`: there is no pool to start",
    a_queue,
)


@loops(
    "a worker for each GPU if there are any, otherwise one for each core",
    "`d2l.try_all_gpus()`; `d2l.train(2)`; if cores stay idle, `d2lmgpu train` says how to use them all",
)
def as_many_as_cores(monkeypatch):
    monkeypatch.setattr("d2lmgpu.cli.train.count_cores", lambda: 6)
    assert "no GPU here: cpu(0) takes one of 6 cores; --devices 6 takes all" in command(f"train {OPTIONS}")
    assert d2l.try_all_gpus() == [d2l.cpu(0)]


loops(
    "on a cluster, a worker for each GPU of each machine",
    "`mpiexec -n 2 d2lmgpu train --environment parallel --devices 4`: 2 processes with 4 GPUs each",
    "test_cluster_gpus.py::test_each_process_takes_cards_of_its_own",
)
loops(
    "choose particular GPUs",
    '`d2l.choose_devices("gpu", [0, 2])`, `CUDA_VISIBLE_DEVICES=0,2 d2lmgpu train`',
    "test_devices.py::test_choosing_devices",
)


loops(
    "scale the minibatch by the number of workers",
    "`d2l.MinibatchQueue(X, y, devices, 64 * len(devices))`, `d2l.train(4, batch_size=64, scale_batch=True)`",
    the_minibatch_scales,
)


@loops(
    "a minibatch that cannot be divided equally: the first workers get one more example",
    "`d2l.split_batch(X, y, devices)`",
)
def remainders():
    """The document's own formula."""
    for size, k in ((10, 4), (3, 5), (256, 3), (0, 2)):
        shards, _ = d2l.split_batch(np.zeros((size, 1)), np.zeros(size), [d2l.cpu(i) for i in range(k)])
        sizes = np.full(k, size // k) + (np.arange(k) < size % k)
        assert [len(shard) for shard in shards] == sizes.tolist()


@loops(
    "shuffle at the start, and again in every epoch",
    "`queue.shuffle(epoch)`, `d2l.minibatches(X, y, 256, seed=0, epoch=epoch)`",
)
def shuffles():
    X, y = np.zeros((60, 1, 28, 28), np.float32), np.arange(60)
    queue = d2l.MinibatchQueue(X, y, [d2l.cpu(0)], 24)
    epochs = []
    for epoch in (0, 1, 0):
        queue.shuffle(epoch)
        epochs.append(np.concatenate([d2l.to_host(y_shards[0]) for _, y_shards in queue]).tolist())
    assert epochs[0] == epochs[2] != epochs[1] and sorted(epochs[1]) == list(range(60)) != epochs[1]


loops(
    "partition a data set between the workers (`partition`)",
    "`d2l.MinibatchQueue(X, y, cluster, 256)`: on a cluster, each process reads its own part",
    "test_across.py::test_shards_of_a_process",
)


@loops(
    "a different minibatch size for each worker",
    "`d2l.MinibatchQueue(X, y, devices, 256, loads=[2, 1])`",
)
def sizes_of_each():
    X, y, _, _ = d2l.load_fashion_mnist()
    X_shards, _ = d2l.MinibatchQueue(X, y, [d2l.cpu(0), d2l.cpu(1)], 24, loads=[2, 1]).next()
    assert [len(shard) for shard in X_shards] == [16, 8]


@loops(
    "a single answer for all workers: are there more data? (`spmdReduce(@and, hasdata(mbq))`)",
    "`queue.hasdata`: the same for all devices, even if a part is empty",
)
def one_answer():
    X, y, _, _ = d2l.load_fashion_mnist()
    queue = d2l.MinibatchQueue(X[:13], y[:13], [d2l.cpu(i) for i in range(3)], 12)
    sizes = []
    while queue.hasdata:
        sizes.append([len(y) for y in queue.next()[1]])
    assert sizes == [[4, 4, 4], [1, 0, 0]]
    refused(ValueError, queue.next, "shuffle(epoch)")


@loops(
    "discard an incomplete last minibatch",
    "`d2l.MinibatchQueue(X, y, devices, 256, drop_last=True)`, `d2lmgpu train --drop-last`",
)
def partial_minibatches():
    X, y, _, _ = d2l.load_fashion_mnist()
    queue = d2l.MinibatchQueue(X, y, [d2l.cpu(0), d2l.cpu(1)], 24, drop_last=True)
    assert [sum(map(len, y_shards)) for _, y_shards in queue] == [24, 24]


@loops(
    "code that every worker runs (`spmd`)",
    "with `mpiexec` each process runs the program; within one process `device.run(function, x)` gives a device work",
)
def work_for_each_device():
    x = [d2l.put(np.full(2, i), d2l.cpu(i)) for i in range(3)]
    tasks = [array.device.run(lambda values: values + 1, array) for array in x]
    assert [task.result().device for task in tasks] == [d2l.cpu(i) for i in range(3)]
    assert [float(task.result()[0]) for task in tasks] == [1, 2, 3]


loops(
    "get the loss, gradients and state for each worker's part from one function",
    "`d2l.loss_and_grads(X, y, params, network=network, statistics=statistics)`",
    a_loop_of_ones_own,
)


@loops(
    "add up gradients over all workers (`spmdPlus`), for every parameter (`dlupdate`)",
    "`d2l.allreduce(grads)` for each parameter's list of gradients",
)
def sums_over_workers():
    for k in (1, 2, 3, 5):
        rows = np.random.default_rng(k).normal(size=(k, 7)).astype(np.float32)
        data = [d2l.put(row, d2l.cpu(i)) for i, row in enumerate(rows)]
        d2l.allreduce(data)
        for array in data:
            np.testing.assert_allclose(d2l.to_host(array), rows.sum(axis=0), rtol=1e-5, atol=1e-6)


@loops(
    "one update with the same gradients on each worker",
    "`d2l.sgd(params, grads, lr, batch_size)` on each device's own copy",
)
def updates():
    after = epoch_by_hand([d2l.cpu(i) for i in range(3)])
    for params in after[1:]:
        for one, other in zip(params, after[0], strict=True):
            np.testing.assert_array_equal(one, other)


@loops(
    "the loss of the whole minibatch",
    "`d2l.train_batch(X, y, device_params, devices, lr)` returns it, summed over the examples; `history.train_loss`",
)
def the_loss_of_all():
    X, y, _, _ = d2l.load_fashion_mnist()
    X, y, params = d2l.to_float(X[:10]), y[:10], d2l.init_params(init="he")
    expected, _ = d2l.loss_and_grads(X, y, params)
    devices = [d2l.cpu(i) for i in range(3)]
    loss = d2l.train_batch(X, y, [d2l.get_params(params, device) for device in devices], devices, 0.05)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


@loops(
    "the training accuracy of the whole minibatch",
    "`history.train_accuracy`: correct answers are summed over all devices, and divided once",
)
def the_accuracy_of_all():
    one, three = on_one().history, trained(3, loads=[3, 1, 1]).history
    np.testing.assert_allclose(three.train_loss, one.train_loss, rtol=1e-4)
    assert three.train_accuracy == one.train_accuracy and 0 < one.train_accuracy[0] < 1


@loops(
    "batch norm's statistics combined over all workers (`aggregateState`)",
    '`d2l.train(2, network="lenet-bn", batch_statistics="aggregated")`, '
    "`d2lmgpu train --network lenet-bn --batch-statistics aggregated`",
)
def statistics_of_all():
    ways = {how: trained(2, network=NORMED, batch_statistics=how) for how in ("local", "aggregated")}
    means = {how: result.statistics[0] for how, result in ways.items()}
    assert not np.allclose(means["local"], means["aggregated"], rtol=1e-4)


@loops("find the layers that have such statistics", "`networks.channels(network)`, `layer.channels` of each layer")
def layers_with_statistics():
    assert channels(LENET_BN) == [20, 50] == [layer.channels for layer in LENET_BN if layer.channels]


@loops(
    "combine the means and variances of the parts by a formula",
    "`layers.mean_and_variance(moments)`, with the sums of `layers.batch_moments(x)` over the parts",
)
def combined_moments():
    """The document's formula, and what all images together give."""
    x = np.random.default_rng(1).normal(3, 2, (12, 2, 3, 3))
    parts = x[:1], x[1:5], x[5:]
    mean, variance = mean_and_variance(sum(map(batch_moments, parts)))
    shares = [len(part) / 12 for part in parts]
    means = [part.mean((0, 2, 3)) for part in parts]
    expected = sum(share * own for share, own in zip(shares, means, strict=True))
    spread = [part.var((0, 2, 3)) + (own - expected) ** 2 for part, own in zip(parts, means, strict=True)]
    np.testing.assert_allclose(mean, expected)
    np.testing.assert_allclose(variance, sum(share * own for share, own in zip(shares, spread, strict=True)))
    np.testing.assert_allclose(variance, x.var((0, 2, 3)))


@loops("the statistics after training (`net.State`)", "`result.statistics`, `model.statistics`")
def statistics_afterwards():
    result = trained(2, network="lenet-bn")
    assert [len(array) for array in result.statistics] == [20, 20, 50, 50]
    X, y = d2l.load_fashion_mnist()[2:]
    assert result.model.evaluate(X, y) == result.history.test_accuracy[-1]


class Told(d2l.Callback):
    """Keeps what it is told; ends training after so many steps."""

    def __init__(self, steps=None):
        self.steps, self.told, self.ended = steps, [], False

    def on_start(self, history, steps):
        self.history, self.of = history, steps

    def on_step(self, epoch, step, loss):
        self.told.append((epoch, step, loss, self.history.learning_rate))
        return len(self.told) == self.steps

    def on_end(self, history):
        self.ended = True


loops(
    'a plot of the progress, or none (`plots = "training-progress"`, `"none"`)',
    "`d2l.LivePlot()` in a notebook, which `d2l.train()` shows there by default; `progress=False`; "
    "`d2lmgpu train --plot run.png`",
    "test_live_plot.py::test_what_is_seen_while_training_runs",
)


@loops(
    "how long training takes (the monitor has a timer)",
    "`history.seconds_per_epoch`, `history.examples_per_second`; `d2l.Timer()` in your own loop",
)
def seconds():
    timer = d2l.Timer()
    times = [timer.stop() for _ in range(3)]
    assert timer.times == times and timer.sum() == sum(times) and timer.avg() == sum(times) / 3
    history = trained(2, num_epochs=2).history
    assert len(history.seconds_per_epoch) == 2
    np.testing.assert_allclose(history.examples_per_second, 120 / sum(history.seconds_per_epoch))


@loops(
    "send data from the workers to the waiting program, and call a function for each item (`DataQueue`, `afterEach`)",
    "`d2l.train(devices, callbacks=[callback])`: methods of a `d2l.Callback`",
)
def callbacks():
    told = Told()
    trained(2, num_epochs=2, callbacks=[told])
    assert [(epoch, step) for epoch, step, *_ in told.told] == [(e, s) for e in (0, 1) for s in (1, 2, 3)]
    assert told.of == 3 and told.ended


@loops(
    "stop with a button: all workers end after the same step",
    "the button of `d2l.LivePlot()`, or in your own loop `animator.stopped`; a callback that returns True; the "
    "kernel's interrupt, or Ctrl-C",
)
def ending():
    """One of two processes says so."""

    def stop(cluster):
        return trained(cluster, num_epochs=50, callbacks=[Told(4 if cluster.rank else None)]).history

    one, other = in_each([1, 1], stop)
    assert one.interrupted["steps"] == other.interrupted["steps"] and one.interrupted["epoch"] < 10
    assert one.final_parameters_sha256 == other.final_parameters_sha256


loops(
    "press that button while a cell runs",
    "a notebook in JupyterLab 4.4.4, or newer: [Watching and stopping](guide.md#watching-and-stopping)",
    "test_live_plot.py::test_stop_ends_training_within_a_step",
)


@loops(
    "plot your own numbers without the monitor (`animatedline`)",
    '`d2l.Animator("iteration", legend=["loss"])` and `animator.add(iteration, loss)`; `d2l.plot_history(history)`',
)
def own_lines():
    animator = d2l.Animator("iteration", legend=["loss"])
    for iteration, loss in enumerate((3.0, 2.0, 1.5)):
        animator.add(iteration, loss)
    assert list(animator.fig.axes[0].lines[0].get_ydata()) == [3.0, 2.0, 1.5] and not animator.stopped
    history = trained(2, num_epochs=2, network=TINY).history
    figure = d2l.plot_history(history)
    assert list(figure.axes[0].lines[-1].get_ydata()) == history.test_accuracy
    figure.savefig("run.png")
    is_picture("run.png")


@loops(
    "your own metrics besides the loss (`Metrics`)",
    '`d2l.train(devices, metrics={"top 3": function})`, `d2lmgpu train --metrics own.py`',
)
def metrics():
    def right(outputs, labels):
        return (outputs.argmax(axis=1) == labels).sum()

    history = trained(3, metrics={"right": right}).history
    np.testing.assert_allclose(history.metrics["right"], history.test_accuracy)


@loops(
    "the loss at each iteration (`recordMetrics`)",
    "`d2l.Callback.on_step` receives epoch, step and loss; `d2lmgpu train --tensorboard runs` writes them",
)
def the_loss_of_each_step():
    told = Told()
    history = trained(2, callbacks=[told]).history
    losses = [loss for _, _, loss, _ in told.told if loss is not None]
    assert losses and all(0 < loss < 20 for loss in losses) and told.told[-1][3] == history.lr


@loops(
    "the current epoch, the number of epochs and the number of workers (`Info`, `updateInfo`)",
    "a line for each epoch; the last line names the devices: `history.summary()`",
)
def lines_that_are_printed():
    text = command(f"train --devices 2 {OPTIONS} --epochs 2")
    assert "epoch 1/2: " in text and "epoch 2/2: " in text and text.rstrip().endswith("on [cpu(0), cpu(1)]")


loops(
    "progress in per cent (`monitor.Progress`)",
    "a progress bar; if standard error is not a terminal, a line every few seconds",
    "test_monitor.py::test_what_is_told_where_there_is_no_terminal",
)


@loops(
    "only one worker reports, since the aggregated loss is the same on all",
    "`cluster.rank == 0` prints and writes; every process has the same `history`",
)
def one_tells():
    histories = in_each([1, 2], lambda cluster: trained(cluster).history)
    assert histories[0].train_loss == histories[1].train_loss
    assert histories[0].test_accuracy == histories[1].test_accuracy


loops(
    "the progress of all workers in the window of the waiting program",
    "`mpiexec -n 2 d2lmgpu train --environment parallel --log logs`: rank 0 prints, each process has a log",
    "test_across.py::test_rank_0_alone_prints",
)


TRIAL = {"num_epochs": 1, "batch_size": 24, "network": TINY, "lr": 0.01}


@loops(
    "train several networks with your own loops, at the same time (`parfor`)",
    "`executor.map(function, d2l.grid(lr=[0.1, 0.2]))` with any `concurrent.futures` executor",
)
def own_loops_at_the_same_time():
    def train(trial):
        device = d2l.cpu(trial["number"])
        return [d2l.to_host(param) for param in trained([device], network=TINY, seed=trial["seed"]).params]

    with ThreadPoolExecutor(2) as executor:
        nets = list(executor.map(train, [{"number": i, "seed": i} for i in range(2)]))
    close(nets[1], trained(1, network=TINY, seed=1).params)
    assert d2l.grid(lr=[0.1, 0.2], seed=3) == [{"lr": 0.1, "seed": 3}, {"lr": 0.2, "seed": 3}]


loops(
    "the same on a remote cluster",
    "`d2l.sweep(trials, executor)` with workers of MPI or Dask: [Sweeps over a cluster](sweeps.md)",
    "test_sweep.py::test_executors_of_other_packages",
)
loops(
    "leave out some of the GPUs",
    "`CUDA_VISIBLE_DEVICES=0,2 d2lmgpu sweep --lr 0.1,0.2`: each worker has one of these GPUs",
    "test_sweep.py::test_a_worker_has_a_gpu_of_its_own",
)


loops(
    "change parameters or the network from worker to worker (parameter sweeps)",
    '`d2l.grid(network={"small": small, "LeNet": "lenet"})`, `d2lmgpu sweep --lr 0.1,0.2 --network lenet,cnn`',
    "test_sweep.py::test_networks_of_ones_own",
)


loops(
    "all trained networks at the end (`trainedNetworks`)",
    '`d2l.sweep(trials, keep_models="models")`, then `d2l.load_model(FILE)` for the file in each row',
    "test_sweep.py::test_models_that_are_kept",
)


@loops(
    "the optimiser's state (velocity) for each network",
    '`d2l.init_optimizer("momentum", device_params)`; `optimizers.momentum(params, grads, velocities, lr, batch_size)`',
)
def velocities():
    from d2lmgpu.networks.optimizers import momentum

    param, velocity = np.ones(3, np.float32), np.zeros(3, np.float32)
    for _ in range(2):
        momentum([param], [np.full(3, 4, np.float32)], [velocity], 0.5, 2)
    np.testing.assert_allclose(param, 1 - 0.5 * 2 - 0.5 * (0.9 * 2 + 2))
    assert trained(2, optimizer="momentum", lr=0.005, network=TINY).history.optimizer == "momentum"


loops(
    "an experiment whose trials run at the same time, one worker each (`Mode: Simultaneous`)",
    "`d2lmgpu sweep --lr 0.1,0.2 --mode simultaneous --workers 2`",
    "test_sweep.py::test_however_it_is_done_a_history_is_that_of_train",
)


@loops(
    "or one after the other, each on several workers (`Mode: Sequential`)",
    "`d2lmgpu sweep --lr 0.1,0.2 --mode sequential --devices 2`",
)
def one_after_the_other():
    text = "sweep --mode sequential --devices 2 --epochs 1 --batch-size 24 --limit 48 --lr 0.01,0.02 --json rows.json"
    assert "\n2 done\n" in command(text)
    rows = json.loads(Path("rows.json").read_text("utf-8"))
    assert [row["history"]["devices"] for row in rows["rows"]] == [["cpu(0)", "cpu(1)"]] * 2


loops(
    "a single trial with an experiment's settings",
    "`d2l.run_trial(d2l.grid(lr=0.1)[0])`, in any process or thread",
    "test_sweep.py::test_a_trial_as_grid_makes_it",
)


loops(
    "a training plot of each trial while the experiment runs",
    "`d2lmgpu sweep --lr 0.1,0.2 --curves curves.png`, `d2l.sweep(trials, watch=function)`, `d2l.plot_curves(rows)`",
    "test_sweep.py::test_curves_of_trials_that_run",
)


@loops(
    "the same bits each time (`deep.gpu.deterministicAlgorithms`)",
    "the same `seed` on the same number of devices; `history.final_parameters_sha256` shows it",
)
def the_same_bits():
    first, again, other = (trained(3, seed=seed).history.final_parameters_sha256 for seed in (4, 4, 5))
    assert first == again != other


@loops(
    "networks as values, made of layers (`dlnetwork`)",
    "`networks.sequential((1, 28, 28), Conv2d(20, 3), ReLU(), Flatten(), Dense(10))`",
)
def networks_of_layers():
    assert [param.shape for param in d2l.init_params(network=TINY)] == [(3, 1, 5, 5), (3,), (108, 10), (10,)]
    assert trained(2, network=TINY, lr=0.02).history.network == "custom"
