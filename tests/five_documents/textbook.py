"""The chapter "Training on Multiple GPUs" of Dive into Deep Learning, in its own order."""

import re
from pathlib import Path

import numpy as np

import d2lmgpu as d2l
from d2lmgpu import collectives, exercises
from d2lmgpu.networks import DEEP
from d2lmgpu.plans import PLANS, Compute, prove, simulate

from .article import mirrored
from .guide import (
    accuracy_by_rate_and_devices,
    prediction_on_several,
    the_minibatch_scales,
    what_a_step_takes,
    what_devices_are_like,
)
from .items import OPTIONS, TINY, close, command, items_of, on_one, refused, result_of, trained
from .loops import a_loop_of_ones_own, as_many_as_cores, gradients, on_several, own_lines, remainders, updates

textbook = items_of("textbook")


def proved(name, k, network=DEEP, **how):
    return prove(PLANS[name](k, network=network, **how), batch_size=64)


textbook(
    "names that the chapter uses",
    "[Name by name](names.md) lists names that differ here; errors suggest them, too",
    "test_chapter.py::test_each_cell_runs_or_says_what_to_type",
)
textbook("list the GPUs (`nvidia-smi`)", "`d2lmgpu devices`", what_devices_are_like)


@textbook(
    "machines with 2, 4, 8 or 16 GPUs",
    "`d2lmgpu train --devices 16`, even on one CPU, with virtual devices; for GPUs that you do not have: "
    "`d2lmgpu plan --devices 16 --on nvlink_ring`",
)
def sixteen_devices():
    result = trained(16, network=TINY)
    assert result.history.devices[-1] == "cpu(15)"
    close(result.params, on_one(network=TINY).params)


@textbook(
    "network partitioning: each GPU has some of the layers",
    '`d2lmgpu train --split layers --devices 2`, `d2l.train(2, split="layers")`',
)
def by_layers():
    plan = PLANS["layers"](3, network=DEEP)
    assert [{action.stage for action in mine if isinstance(action, Compute)} for mine in plan.actions] == [
        {0},
        {1},
        {2},
    ]
    close(trained(2, split="layers").params, on_one().params)


@textbook(
    "each GPU then needs a fraction of the memory, and larger networks fit",
    "`plans.prove(plan).between` and `plans.prove(plan).peak`, in bytes; `d2lmgpu plan --split layers`",
)
def memory_by_layers():
    """All devices together hold the network once."""
    one, four = (proved("layers", k).between for k in (1, 4))
    assert sum(four) == one[0] and max(four) < one[0]


@textbook(
    "devices wait for each other between layers, especially if these are not balanced",
    "`plans.simulate(plan).bubble`; `d2lmgpu train --split layers --pipeline 1f1b --micro-batches 4` waits less",
)
def bubbles():
    even = {"F": 1.0, "B": 2.0, "update": 0.0}
    waits = [simulate(PLANS["gpipe"](4, m, network=DEEP), costs=even).bubble for m in (1, 4, 16)]
    np.testing.assert_allclose(waits, [3 / 4, 3 / 7, 3 / 19], rtol=1e-6)


@textbook(
    "activations and their gradients cross between devices",
    "`plans.prove(plan).sent`, in bytes for each device; `d2lmgpu plan --split layers` shows both",
)
def bytes_between_layers():
    """What crosses a cut goes once forward and once back."""
    sent = prove(PLANS["layers"](2), batch_size=8).sent
    assert sent[0] == sent[1] > 0 and sent[0] % (8 * 4) == 0


@textbook(
    "layer-wise partitioning: 64 channels become 16 on each of 4 GPUs, and a dense layer's outputs likewise",
    '`d2lmgpu train --split channels --devices 4`, `d2l.train(4, split="channels")`',
)
def by_channels():
    close(trained(3, split="channels").params, on_one().params)


@textbook("memory then grows in proportion to the number of GPUs", "`d2lmgpu plan --split channels --devices 4`")
def memory_by_channels():
    one, two, four = (max(proved("channels", k).between) for k in (1, 2, 4))
    assert two < 0.52 * one and four < 0.27 * one


@textbook(
    "it needs very many synchronisations, and sends more than the other two",
    "`d2lmgpu plan --split channels`, compared with `d2lmgpu plan --split layers` and `d2lmgpu plan --split data`",
)
def what_channels_cost():
    plans = {name: result_of(f"plan --split {name} --devices 4") for name in ("channels", "layers", "data")}
    assert plans["channels"]["bytes"] > max(plans["layers"]["bytes"], plans["data"]["bytes"])
    exchanges = {name: sum(map(len, PLANS[name](4).actions)) for name in ("channels", "layers")}
    assert exchanges["channels"] > 2 * exchanges["layers"]


@textbook(
    "data parallelism: all GPUs do the same with different examples",
    "`d2lmgpu train --split data --devices 2`, which is the default",
)
def by_data():
    named, usual = trained(2, split="data"), trained(2)
    assert named.history.final_parameters_sha256 == usual.history.final_parameters_sha256


@textbook("it synchronises once for each minibatch", "`d2l.record_transfers()` shows what a step sends")
def one_exchange_a_minibatch():
    devices = [d2l.cpu(0), d2l.cpu(1)]
    device_params = [d2l.get_params(d2l.init_params(), device) for device in devices]
    X, y, *_ = d2l.load_fashion_mnist()
    with d2l.record_transfers() as transfers:
        d2l.train_batch(d2l.to_float(X[:8]), y[:8], device_params, devices, 0.1, flat=True)
    between = [transfer for transfer in transfers if "host" not in (transfer.source, transfer.destination)]
    size = 4 * sum(param.size for param in d2l.init_params())
    assert [transfer.nbytes for transfer in between] == [size, size]  # there and back


@textbook(
    "exchange gradients while others are still being computed",
    "`d2lmgpu train --devices 2 --overlap`, `overlap=True`",
)
def overlapped():
    overlap, plain = trained(3, overlap=True), trained(3)
    close(overlap.params, plain.params)


@textbook("more GPUs allow no larger network", "`plans.prove(plan).between` is the same for any number of devices")
def data_parallelism_holds_all():
    assert {max(proved("data", k).between) for k in (1, 2, 4)} == {proved("data", 1).between[0]}


textbook(
    "many GPUs make minibatches so large that learning suffers",
    "`d2lmgpu sweep --devices 1,2,4 --lr 0.1,0.2 --scale-batch --plot sweep.png`",
    accuracy_by_rate_and_devices,
)


textbook("each GPU has a complete set of parameters", "`d2l.get_params(params, device)`", mirrored)
textbook("the minibatch is split evenly into k parts", "`d2l.split_batch(X, y, devices)`", remainders)
textbook(
    "each GPU computes the loss and gradients of its part",
    "`d2l.loss_and_grads(X, y, params)` on each device",
    a_loop_of_ones_own,
)
textbook("the gradients are summed, and all GPUs get the sum", "`d2l.allreduce(data)`", on_several)
textbook("each GPU updates its own complete set of parameters", "`d2l.sgd(params, grads, lr, batch_size)`", updates)


@textbook("the picture of these steps", "`d2l.play(plan)` plays them; `plans.draw(plan)` draws them")
def the_picture():
    plan = PLANS["data"](2)
    page = d2l.play(plan)
    assert "<html" in page._repr_html_() or "iframe" in page._repr_html_()


@textbook(
    "the ways to split, side by side",
    '`plans.draw_splits({"layers": plan})` for any of them; `d2lmgpu plan --split layers --plot layers.png`',
)
def pictures_of_splits():
    figure = d2l.plans.draw_splits({name: PLANS[name](2) for name in ("layers", "channels", "data")})
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["layers", "channels", "data"]
    command("plan --split layers --devices 2 --plot layers.png")
    assert Path("layers.png").read_bytes().startswith(b"\x89PNG")


textbook(
    "minibatches k times as large on k GPUs, with larger rates",
    "`d2lmgpu train --devices 4 --scale-batch`",
    accuracy_by_rate_and_devices,
)


@textbook(
    "batch norm with separate coefficients on each GPU",
    "`d2lmgpu train --network lenet-bn --batch-statistics local`, which is the default",
)
def batch_norm_for_each():
    usual, local = (trained(2, network="lenet-bn", **how) for how in ({}, {"batch_statistics": "local"}))
    assert usual.history.final_parameters_sha256 == local.history.final_parameters_sha256
    assert usual.history.batch_statistics == "local"


@textbook(
    "the chapter as a program to run, change and try", "notebooks: `d2lmgpu course mycourse`; `import d2lmgpu as d2l`"
)
def notebooks():
    command("course mycourse --no-data")
    names = {path.name for path in Path("mycourse").glob("*.ipynb")}
    assert {"04_copies_and_synchronisation.ipynb", "05_training_on_k_devices.ipynb"} <= names


@textbook("LeNet's parameters, from a normal distribution times 0.01", "`d2l.init_params(seed=0, scale=0.01)`")
def initial_parameters():
    params = d2l.init_params()
    shapes = [(20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (800, 128), (128,), (128, 10), (10,)]
    assert [param.shape for param in params] == shapes
    assert all(not param.any() for param in params[1::2])
    np.testing.assert_allclose(np.concatenate([weight.ravel() for weight in params[::2]]).std(), 0.01, rtol=0.02)


@textbook("LeNet as a function, `lenet(X, params)`", "`d2l.lenet(X, params)`")
def lenet():
    """By loops over pixels, as the definitions have it."""
    rng = np.random.default_rng(3)
    params = [rng.normal(0, 0.1, param.shape) for param in d2l.init_params()]
    X = rng.normal(size=(2, 1, 28, 28))
    h = X
    for weight, bias in (params[:2], params[2:4]):
        side = h.shape[-1] - weight.shape[-1] + 1
        y = np.zeros((len(h), len(weight), side, side)) + bias[:, None, None]
        for i in range(weight.shape[2]):
            for j in range(weight.shape[3]):
                y += np.einsum("ncij,oc->noij", h[:, :, i : i + side, j : j + side], weight[:, :, i, j])
        half = side // 2
        h = np.maximum(y, 0)[..., : 2 * half, : 2 * half].reshape(*y.shape[:2], half, 2, half, 2).mean((3, 5))
    hidden = np.maximum(h.reshape(2, -1) @ params[4] + params[5], 0)
    np.testing.assert_allclose(d2l.lenet(X, params), hidden @ params[6] + params[7], rtol=1e-6, atol=1e-8)


@textbook(
    "its layers: convolution, activation, pooling, dense",
    "`d2l.conv2d(x, weight, bias)`, `d2l.relu(x)`, `d2l.avg_pool2d(x)`, `d2l.flatten(x)`, `d2l.dense(x, weight, bias)`",
)
def layer_by_layer():
    params, X = d2l.init_params(init="he"), d2l.to_float(d2l.load_fashion_mnist()[0][:3])
    h = X
    for weight, bias in (params[:2], params[2:4]):
        h, _ = d2l.avg_pool2d(d2l.relu(d2l.conv2d(h, weight, bias)[0])[0])
    h, _ = d2l.relu(d2l.dense(d2l.flatten(h)[0], *params[4:6])[0])
    np.testing.assert_allclose(d2l.dense(h, *params[6:])[0], d2l.lenet(X, params), rtol=1e-4, atol=1e-5)


@textbook("cross-entropy of softmax as the loss", "`d2l.softmax_cross_entropy(logits, labels)`")
def the_loss():
    logits, labels = np.random.default_rng(0).normal(size=(5, 10)), np.array([3, 0, 9, 1, 1])
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    loss, _ = d2l.softmax_cross_entropy(logits, labels)
    np.testing.assert_allclose(loss, -np.log(shares[range(5), labels]).sum())


@textbook("copy parameters to a device", "`d2l.get_params(params, d2l.try_gpu(0))`; a printed array shows its device")
def copies_are_printed():
    new_params = d2l.get_params(d2l.init_params(), d2l.try_gpu(0))
    assert f"b1 weight: {new_params[1]}" == f"b1 weight: [{'0. ' * 19}0.] @cpu(0)"


@textbook(
    "attach gradients to them (`attach_grad`, `.grad`)",
    "`d2l.loss_and_grads(X, y, params)` returns the gradients; arrays do not store them, as the error says",
)
def no_attached_gradients():
    refused(AttributeError, lambda: d2l.put([1.0], d2l.cpu(0)).grad, "d2l.loss_and_grads")
    gradients()


@textbook("sum vectors from several devices, and give every device the sum", "`d2l.allreduce(data)`, in place")
def the_chapters_allreduce():
    data = [d2l.put(np.ones((1, 2)) * (i + 1), d2l.try_gpu(i)) for i in range(2)]
    assert [str(array) for array in data] == ["[[1. 1.]] @cpu(0)", "[[2. 2.]] @cpu(1)"]
    d2l.allreduce(data)
    assert [str(array) for array in data] == ["[[3. 3.]] @cpu(0)", "[[3. 3.]] @cpu(1)"]


@textbook(
    "split a matrix over two devices (`split_and_load`)",
    "`d2l.split_batch(X, y, devices)`; an error about the chapter's name says so",
)
def the_chapters_matrix():
    refused(AttributeError, lambda: d2l.split_and_load, "d2l.split_batch")
    X_shards, y_shards = d2l.split_batch(np.arange(20.0).reshape(4, 5), np.arange(4), [d2l.cpu(0), d2l.cpu(1)])
    np.testing.assert_array_equal(d2l.to_host(X_shards[1]), np.arange(10.0, 20).reshape(2, 5))
    assert str(y_shards[1]) == "[2 3] @cpu(1)"


@textbook(
    "split examples and labels in the same way, and refuse lengths that differ",
    "`d2l.split_batch(X, y, devices)`",
)
def lengths_that_differ():
    refused(ValueError, lambda: d2l.split_batch(np.zeros((4, 5)), np.zeros(3), [d2l.cpu(0)]), "4", "3")


textbook(
    "train on one minibatch",
    "`d2l.train_batch(X, y, device_params, devices, lr)`",
    a_loop_of_ones_own,
)
textbook(
    "devices work at the same time, without extra code",
    "work goes to a device's queue, and the program continues: `device.run(function, x)`",
    "test_devices.py::test_devices_work_at_the_same_time",
)
textbook(
    "updates divide by the size of the whole minibatch",
    "`d2l.sgd(params, grads, lr, batch_size)`",
    updates,
)


@textbook("Fashion-MNIST in minibatches", "`d2l.load_fashion_mnist()`, `d2l.minibatches(X, y, 256, seed=0, epoch=0)`")
def fashion_mnist_in_minibatches():
    X, y, *_ = d2l.load_fashion_mnist()
    sizes = [(X.shape, X.dtype.name, len(y)) for X, y in d2l.minibatches(X, y, 24, seed=0, epoch=0)]
    assert sizes == [((n, 1, 28, 28), "float32", n) for n in (24, 24, 12)]


textbook("devices by their number (`try_gpu`)", "`d2l.try_gpu(i)`, `d2l.try_all_gpus()`", as_many_as_cores)


@textbook(
    "a timer for epochs, and a plot that grows (`Timer`, `Animator`)",
    '`d2l.Timer()`, `d2l.Animator("epoch", "test acc", xlim=[1, 10])`',
)
def timer_and_animator():
    """As the chapter uses them."""
    animator, timer = d2l.Animator("epoch", "test acc", xlim=[1, 3]), d2l.Timer()
    for epoch in range(3):
        timer.start()
        timer.stop()
        animator.add(epoch + 1, (0.2 * epoch,))
    assert animator.Y[0][-1] == 0.4 and animator.X[0] == [1, 2, 3] and 0 <= timer.avg() < 60


@textbook("wait for all devices (`waitall`)", "`d2l.synchronize(devices)`")
def waiting():
    devices, done = [d2l.cpu(0), d2l.cpu(1)], []
    for device in devices:
        device.run(done.append, str(device))
    d2l.synchronize(devices)
    assert sorted(done) == ["cpu(0)", "cpu(1)"]


@textbook("accuracy on the test set, on one GPU", "`d2l.evaluate(params, X, y, [d2l.try_gpu(0)])`")
def accuracy_on_one():
    params, (_, _, X, y) = d2l.init_params(init="he"), d2l.load_fashion_mnist()
    right = d2l.lenet(d2l.to_float(X), params).argmax(axis=1) == y
    assert d2l.evaluate(params, X, y, [d2l.try_gpu(0)]) == right.mean()


@textbook("the whole loop, `train(num_gpus, batch_size, lr)`", "`d2l.train(num_gpus=2, batch_size=256, lr=0.2)`")
def the_chapters_call():
    settings = {"batch_size": 24, "lr": 0.2, "num_epochs": 1, "progress": False}
    history, _ = d2l.train(num_gpus=2, **settings)
    assert (history.devices, history.init) == (["cpu(0)", "cpu(1)"], "normal")


@textbook(
    "its last line: accuracy, seconds per epoch, devices",
    "`history.summary()`; `d2lmgpu train --devices 2` ends with it",
)
def the_last_line():
    for text in (trained(2).history.summary(), command(f"train --devices 2 {OPTIONS}").splitlines()[-1]):
        assert re.fullmatch(r"test acc: 0\.\d\d, \d.*? sec/epoch on \[cpu\(0\), cpu\(1\)\]", text), text


textbook("a plot of the accuracy by epoch", "`d2lmgpu train --plot run.png`, `d2l.plot_history(history)`", own_lines)


@textbook(
    "the experiment on one GPU: batch 256, rate 0.2, ten epochs",
    "`d2lmgpu train --devices 1`: these are the defaults; `d2l.Settings()`",
)
def the_chapters_settings():
    settings = d2l.Settings()
    assert (settings.batch_size, settings.lr, settings.num_epochs) == (256, 0.2, 10)


@textbook(
    "two GPUs learn what one learns",
    "`d2l.train(2)` gives the same result as `d2l.train(1)`, up to rounding, with any number of devices",
)
def two_learn_what_one_learns():
    ways = [trained(k, num_epochs=2) for k in (1, 2, 5)]
    for result in ways[1:]:
        np.testing.assert_allclose(result.history.train_loss, ways[0].history.train_loss, rtol=1e-3)


textbook(
    "why a second GPU does not help such a small network",
    "`history.phases`, `d2lmgpu scaling --devices 1,2 --predict` show the parts of a step",
    what_a_step_takes,
)


textbook("exercise 1: minibatches of k · b examples", "`d2lmgpu train --devices 4 --scale-batch`", the_minibatch_scales)
textbook(
    "exercise 2: accuracy by learning rate and number of GPUs",
    "`d2lmgpu sweep --devices 1,2,4 --lr 0.05,0.1,0.2 --plot sweep.png`",
    accuracy_by_rate_and_devices,
)


@textbook(
    "exercise 3: an allreduce that sums different parameters on different GPUs, and why it is faster",
    '`d2l.allreduce(data, "sharded")`; to check yours: `d2lmgpu check allreduce mine.py`, '
    "`collectives.prove(schedule, 4, 9)`",
)
def exercise_3():
    """Of n numbers the busiest of k devices sends (k - 1)·n by the simple one, and 2(k - 1)/k·n by this one."""
    k, n = 4, 1000
    simple, sharded = (collectives.prove(collectives.ALGORITHMS[name](k, n), k, n) for name in ("naive", "sharded"))
    assert max(simple.sent) == 3 * n and max(sharded.sent) == 1.5 * n
    rows = np.random.default_rng(0).normal(size=(5, 7))
    data = [d2l.put(row, d2l.cpu(i)) for i, row in enumerate(rows)]
    d2l.allreduce(data, "sharded")
    close(data, [rows.sum(axis=0)] * 5)

    def wrong(data):
        for other in data[1:]:
            data[0][...] += d2l.put(other, data[0].device)

    verdict = exercises.judge("allreduce", wrong)
    assert not verdict.right and verdict.says


@textbook(
    "exercise 4: accuracy on several GPUs", "`d2l.evaluate(params, X, y, devices)`, `d2lmgpu check evaluate mine.py`"
)
def exercise_4():
    params, (_, _, X, y) = d2l.init_params(init="he"), d2l.load_fashion_mnist()
    devices = [d2l.cpu(i) for i in range(5)]
    assert d2l.evaluate(params, X[:57], y[:57], devices) == d2l.evaluate(params, X[:57], y[:57], devices[:1])


textbook(
    "prediction on several GPUs, which the chapter leaves out",
    "`d2l.predict(params, X, devices)`, `d2lmgpu predict run.ckpt --devices 2`",
    prediction_on_several,
)
