"""Training loops of one's own, and their parts: minibatches, layers, losses, gradients, sums, updates."""

import numpy as np
from clusters_in_threads import in_each

import d2lmgpu as d2l
from d2lmgpu import collectives, exercises
from d2lmgpu.layers.batch_norm import batch_moments, mean_and_variance
from d2lmgpu.networks import BatchNorm, Conv2d, Dense, Flatten, ReLU, init_statistics, sequential

from .common import TINY, close, cpus, once, refused, trained
from .rows import article, guide, loops, others, textbook

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


@loops("your own training loop", "get the loss, gradients and state")
@textbook("each GPU computes the loss", "train on one minibatch")
def a_loop_of_ones_own():
    device = d2l.try_gpu(0)
    params = d2l.get_params(d2l.init_params(init="he"), device)
    X, y, _, _ = d2l.load_fashion_mnist()
    for batch in d2l.minibatches(X, y, 24, seed=0, epoch=0):
        d2l.train_batch(*batch, [params], [device], lr=0.05)
    close(epoch_by_hand([device])[0], params)
    close(once(1).params, params)


@loops(
    "on several GPUs", "each worker trains", "combine gradients and losses", "one update with the same", "on a cluster"
)
@article("GPUs are synchronised before")
@textbook("the gradients are summed", "each GPU updates", "updates divide")
def on_several():
    """Also in parts of 16, 0 and 8 examples, on which means of means would be wrong; all copies have the same bits."""
    for each in (
        epoch_by_hand(cpus(2)),
        epoch_by_hand(cpus(3), loads=[2, 0, 1]),
        sum(in_each([1, 2], epoch_by_hand), []),
    ):
        for params in each:
            for one, other in zip(params, each[0], strict=True):
                np.testing.assert_array_equal(one, other)
        close(each[0], once(1).params)


@loops("with any network, optimiser and state", "the optimiser's state")
def any_network_by_hand():
    """An epoch of `d2l.train_batch` as `train` does it, with the statistics of each device's own images."""
    X, y, _, _ = d2l.load_fashion_mnist()
    result = trained(3, network=NORMED, optimizer="momentum", lr=0.005)
    params, running = d2l.init_params(init="he", network=NORMED), init_statistics(NORMED)

    def by_hand(devices):
        device_params, statistics = ([d2l.get_params(those, d) for d in devices.mine] for those in (params, running))
        options = {"network": NORMED, "optimizer": d2l.init_optimizer("momentum", device_params)}
        for batch in d2l.minibatches(X, y, 24, seed=0, epoch=0):
            d2l.train_batch(*batch, device_params, devices, 0.005, statistics=statistics, **options)
        return [list(map(d2l.to_host, those)) for those in (device_params[-1], statistics[0])]

    (one, statistics), (other, _) = in_each([1, 2], by_hand)
    close(one + other + statistics, [*result.params, *result.params, *result.statistics])


@loops("batch norm's statistics combined", "combine the means and variances")
def statistics_of_all():
    """Those of all images together."""
    ways = {way: trained(2, network=NORMED, batch_statistics=way).statistics[0] for way in ("local", "aggregated")}
    assert not np.allclose(ways["local"], ways["aggregated"], rtol=1e-4)
    x = np.random.default_rng(1).normal(3, 2, (12, 2, 3, 3))
    mean, variance = mean_and_variance(sum(map(batch_moments, (x[:1], x[1:5], x[5:]))))
    np.testing.assert_allclose(mean, x.mean((0, 2, 3)))
    np.testing.assert_allclose(variance, x.var((0, 2, 3)))


@loops("automatic gradients")
@textbook("attach gradients")
def gradients():
    """Against a difference of losses along a random direction, in float64."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(3, 1, 28, 28)), np.array([1, 5, 7])
    params = [rng.normal(0, 0.1, param.shape) for param in d2l.init_params(network=TINY)]
    step = [rng.normal(0, 1e-7, param.shape) for param in params]
    moved = [param + change for param, change in zip(params, step, strict=True)]
    (before, grads), (after, _) = (d2l.loss_and_grads(X, y, those, TINY) for those in (params, moved))
    expected = sum((grad * change).sum() for grad, change in zip(grads, step, strict=True))
    np.testing.assert_allclose(after - before, expected, rtol=1e-3)
    refused(AttributeError, lambda: d2l.put([1.0], d2l.cpu(0)).grad, "d2l.loss_and_grads")


@loops(
    "minibatches that are prepared",
    "put minibatches on the GPU",
    "start a pool with a worker",
    "a different minibatch size",
    "a single answer for all workers",
    "discard an incomplete",
)
@article("feed data from a queue", "leave out incomplete")
def a_queue():
    X, y, _, _ = d2l.load_fashion_mnist()
    for options, sizes in (
        ({}, [[12, 12], [12, 12], [6, 6]]),
        ({"loads": [2, 1]}, [[16, 8], [16, 8], [8, 4]]),
        ({"drop_last": True}, [[12, 12], [12, 12]]),
    ):
        queue = d2l.MinibatchQueue(X, y, cpus(2), 24, **options)
        assert [[len(y) for y in y_shards] for _, y_shards in queue] == sizes and not queue.hasdata
    refused(ValueError, queue.next, "shuffle(epoch)")
    queue.shuffle(1)
    whole = queue.next_whole()
    queue.shuffle(1)
    for array, parts in zip(whole, queue.next(), strict=True):
        assert isinstance(array, np.ndarray) and [part.device for part in parts] == cpus(2)
        np.testing.assert_array_equal(np.concatenate(list(map(d2l.to_host, parts))), array)


@loops("your own preprocessing")
@others("transforms of the pictures")
def preprocessing():
    def darker(X, y, rng):
        return X * 0, y

    X, y, _, _ = d2l.load_fashion_mnist()
    X_shards, _ = d2l.MinibatchQueue(X, y, [d2l.cpu(0)], 24, preprocess=darker).next()
    assert not d2l.to_host(X_shards[0]).any()
    one, several = (trained(k, preprocess="flip+shift") for k in (1, 3))
    close(one.params, several.params)


@guide("each minibatch is distributed")
@loops("a minibatch that cannot be divided")
@article("each GPU works on other", "parts that are as equal")
@textbook("the minibatch is split evenly", "split a matrix", "split examples and labels")
def splitting():
    """By the document's own formula; and as the chapter splits a matrix."""
    for size, k in ((10, 4), (3, 5), (256, 3), (0, 2)):
        X, y = np.arange(2.0 * size).reshape(size, 2), np.arange(size)
        X_shards, y_shards = d2l.split_batch(X, y, cpus(k))
        sizes = np.full(k, size // k) + (np.arange(k) < size % k)
        assert [len(shard) for shard in X_shards] == sizes.tolist()
        np.testing.assert_array_equal(np.concatenate(list(map(d2l.to_host, X_shards))), X)
        assert [shard.device for shard in y_shards] == cpus(k)
    assert str(d2l.split_batch(np.zeros((4, 5)), np.arange(4), cpus(2))[1][1]) == "[2 3] @cpu(1)"
    refused(ValueError, lambda: d2l.split_batch(np.zeros((4, 5)), np.zeros(3), cpus(1)), "4", "3")
    refused(AttributeError, lambda: d2l.split_and_load, "d2l.split_batch")


@loops("shuffle at the start")
@article("shuffle with a buffer")
@textbook("Fashion-MNIST in minibatches")
def shuffles():
    X, y = d2l.load_fashion_mnist()[0], np.arange(60)
    queue = d2l.MinibatchQueue(X, y, [d2l.cpu(0)], 24)
    epochs = []
    for epoch in (0, 1, 0):
        queue.shuffle(epoch)
        epochs.append(np.concatenate([d2l.to_host(y_shards[0]) for _, y_shards in queue]).tolist())
    assert epochs[0] == epochs[2] != epochs[1] and sorted(epochs[1]) == list(range(60)) != epochs[1]
    sizes = [(X.shape, X.dtype.name, len(y)) for X, y in d2l.minibatches(X, y, 24, seed=0, epoch=0)]
    assert sizes == [((n, 1, 28, 28), "float32", n) for n in (24, 24, 12)]


@loops("add up gradients over all")
@textbook("sum vectors from several", "exercise 3")
def sums_over_workers():
    """Of n numbers the busiest of k devices sends (k - 1)·n by the simple one, and 2(k - 1)/k·n by the other."""
    for k in (1, 2, 3, 5):
        for algorithm in ("naive", "sharded", "ring"):
            rows = np.random.default_rng(k).normal(size=(k, 7)).astype(np.float32)
            data = [d2l.put(row, d2l.cpu(i)) for i, row in enumerate(rows)]
            d2l.allreduce(data, algorithm)
            close(data, [rows.sum(axis=0)] * k)
    k, n = 4, 1000
    simple, sharded = (collectives.prove(collectives.ALGORITHMS[name](k, n), k, n) for name in ("naive", "sharded"))
    assert max(simple.sent) == 3 * n and max(sharded.sent) == 1.5 * n
    assert "right, but it is the library's own" in exercises.judge("allreduce", d2l.allreduce).says


@loops("the loss of the whole minibatch")
@textbook("it synchronises once")
def a_step():
    """Its loss is that of one device, and gradients cross once there and back."""
    X, y, _, _ = d2l.load_fashion_mnist()
    X, y, params = d2l.to_float(X[:9]), y[:9], d2l.init_params(init="he")
    device_params = [d2l.get_params(params, device) for device in cpus(2)]
    with d2l.record_transfers() as transfers:
        loss = d2l.train_batch(X, y, device_params, cpus(2), 0.05, flat=True)
    np.testing.assert_allclose(loss, d2l.loss_and_grads(X, y, params)[0], rtol=1e-5)
    between = [transfer.nbytes for transfer in transfers if "host" not in (transfer.source, transfer.destination)]
    assert between == [4 * sum(param.size for param in params)] * 2


@textbook("LeNet's parameters, from")
def initial_parameters():
    params = d2l.init_params()
    shapes = [(20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (800, 128), (128,), (128, 10), (10,)]
    assert [param.shape for param in params] == shapes
    assert all(not param.any() for param in params[1::2])
    np.testing.assert_allclose(np.concatenate([weight.ravel() for weight in params[::2]]).std(), 0.01, rtol=0.02)


@textbook("LeNet as a function", "its layers")
def lenet():
    """Layer by layer; test_networks.py compares it with another framework's."""
    rng = np.random.default_rng(3)
    params = [rng.normal(0, 0.1, param.shape) for param in d2l.init_params()]
    X = h = rng.normal(size=(2, 1, 28, 28))
    for weight, bias in (params[:2], params[2:4]):
        h, _ = d2l.avg_pool2d(d2l.relu(d2l.conv2d(h, weight, bias)[0])[0])
    h, _ = d2l.relu(d2l.dense(d2l.flatten(h)[0], *params[4:6])[0])
    np.testing.assert_allclose(d2l.dense(h, *params[6:])[0], d2l.lenet(X, params), rtol=1e-6, atol=1e-8)


@article("probabilities as the network's outputs", "pictures as floats")
@textbook("cross-entropy of softmax", "accuracy on the test set", "exercise 4")
def the_loss_and_what_follows():
    params, (_, _, X, y) = d2l.init_params(init="he"), d2l.load_fashion_mnist()
    np.testing.assert_allclose(d2l.to_float(X), X.astype(np.float32) / 255, rtol=1e-6)
    logits = d2l.lenet(d2l.to_float(X), params)
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    loss, _ = d2l.softmax_cross_entropy(logits, y)
    np.testing.assert_allclose(loss, -np.log(shares[range(60), y]).sum(), rtol=1e-5)
    np.testing.assert_allclose(d2l.predict(params, X, cpus(2)), shares, rtol=1e-5)
    right = logits.argmax(axis=1) == y
    assert d2l.evaluate(params, X, y, [d2l.try_gpu(0)]) == right.mean()
    assert d2l.evaluate(params, X[:57], y[:57], cpus(5)) == right[:57].mean()


@loops("plot your own numbers")
@textbook("a timer for epochs")
def timer_and_animator():
    """As the chapter uses them."""
    animator, timer = d2l.Animator("epoch", "test acc", xlim=[1, 3]), d2l.Timer()
    for epoch in range(3):
        timer.start()
        timer.stop()
        animator.add(epoch + 1, (0.2 * epoch,))
    assert animator.Y[0][-1] == 0.4 and animator.X[0] == [1, 2, 3] and 0 <= timer.avg() < 60
    assert timer.sum() == sum(timer.times) and timer.avg() == sum(timer.times) / 3
    assert list(animator.fig.axes[0].lines[0].get_ydata()) == animator.Y[0] and not animator.stopped
