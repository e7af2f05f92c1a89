"""The minibatch queue: every example once an epoch, preprocessing that is the same on any devices, dropped rests."""

import threading

import numpy as np
import pytest
from conftest import LONG_ON_STANDIN

import d2lmgpu as d2l
from d2lmgpu.data.minibatches import batch_rng

LOADS = {1: [3], 2: [0, 1], 3: [2, 0, 1], 5: [1, 0, 2, 0.3, 1], 8: [1, 2, 0, 0, 3, 1, 0.5, 1]}


def train(devices, data, **settings):
    settings = {"batch_size": 250, "lr": 0.1, "num_epochs": 2, "init": "he", "progress": False, **settings}
    return d2l.train(devices, data=data, **settings)


def numbered(n):
    """Images that show their own number everywhere, and labels that are it."""
    y = np.arange(n)
    return np.broadcast_to(y.astype(np.float32)[:, None, None, None], (n, 1, 2, 3)), y


def seen(queue):
    """The labels of each minibatch that is left, in order; images must be those of the labels."""
    batches = []
    while queue.hasdata:
        X_shards, y_shards = queue.next()
        for X, y, device in zip(X_shards, y_shards, queue.devices, strict=True):
            assert X.device is y.device is device and X.shape == (len(y), 1, 2, 3)
            assert (d2l.to_host(X) == d2l.to_host(y)[:, None, None, None]).all()
        batches.append(np.concatenate([d2l.to_host(y) for y in y_shards]).tolist())
    return batches


@LONG_ON_STANDIN
@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("k", LOADS)
def test_each_example_once_an_epoch(make_devices, k, loaded):
    """Of 21 the rest is 0, 1, 3, and all; or there is none, where it is dropped."""
    for batch_size, drop_last in [(1, False), (5, False), (9, False), (50, False), (5, True), (7, True)]:
        loads = LOADS[k] if loaded else None
        queue = d2l.MinibatchQueue(*numbered(21), make_devices(k), batch_size, 3, loads=loads, drop_last=drop_last)
        shown = 21 // batch_size * batch_size if drop_last else 21
        epochs = []
        for epoch in (0, 1, 0):
            queue.shuffle(epoch)
            batches = seen(queue)
            sizes = [min(batch_size, shown - start) for start in range(0, shown, batch_size)]
            assert [len(batch) for batch in batches] == sizes and queue.steps == len(sizes)
            epochs.append(sum(batches, []))
            order = np.concatenate([y for _, y in d2l.minibatches(*numbered(21), 6, 3, epoch)]).tolist()
            assert epochs[-1] == order[:shown] and sorted(order) == [*range(21)]
        assert epochs[0] == epochs[2] != epochs[1]
        with pytest.raises(ValueError, match=r"the epoch is over; begin another with shuffle\(epoch\)"):
            queue.next()


@pytest.mark.parametrize("loads", [None, [2, 0, 1]])
def test_it_gives_what_split_batch_gives(make_devices, rng, loads):
    for dtype in (np.uint8, np.float32, np.float64):
        X = rng.integers(0, 256, (50, 1, 4, 3)).astype(dtype)[:, :, ::-1]  # not contiguous
        y, devices = rng.integers(0, 10, 50).astype(np.uint8), make_devices(3)
        queue = d2l.MinibatchQueue(X, y, devices, 20, seed=1, loads=loads)
        for epoch in range(2):  # the same arrays serve the second epoch
            queue.shuffle(epoch)
            for shards, batch in zip(queue, d2l.minibatches(X, y, 20, 1, epoch), strict=True):
                for parts, expected_parts in zip(shards, d2l.split_batch(*batch, devices, loads), strict=True):
                    for shard, expected in zip(parts, expected_parts, strict=True):
                        assert shard.device is expected.device and shard.dtype == expected.dtype
                        np.testing.assert_array_equal(d2l.to_host(shard), d2l.to_host(expected))


def test_a_minibatch_is_left_alone_until_the_next_but_one():
    queue = d2l.MinibatchQueue(*numbered(30), [d2l.cpu(0), d2l.cpu(1)], 10)
    queue.start_epoch(np.arange(30))
    first, _ = queue.next(), queue.next()
    assert [d2l.to_host(shard).tolist() for shard in first[1]] == [list(range(5)), list(range(5, 10))]
    queue.next()
    assert d2l.to_host(first[1][0]).tolist() == list(range(20, 25))


def test_devices_that_lag_behind_are_waited_for():
    """Also across the end of an epoch with an odd number of minibatches."""
    device = d2l.cpu(0)
    queue = d2l.MinibatchQueue(*numbered(30), [device], 10)
    go_on, results, expected = threading.Event(), [], []
    for epoch in range(3):
        queue.start_epoch(np.roll(np.arange(30), epoch))
        for number, (_, (y,)) in enumerate(queue):
            go_on.clear()
            threading.Timer(0.02, go_on.set).start()
            results.append(device.submit(lambda raw=y.raw: (go_on.wait(10), raw.tolist())[1]))
            expected.append(np.roll(np.arange(30), epoch)[10 * number : 10 * number + 10].tolist())
    assert [task.result() for task in results] == expected


def jitter(X, y, rng):
    """Shift each image by up to two pixels, and mirror half of them."""
    for image in X:
        image[:] = np.roll(image, rng.integers(-2, 3, 2), axis=(1, 2))
    mirrored = rng.random(len(X)) < 0.5
    X[mirrored] = X[mirrored, ..., ::-1]
    return X, y


@LONG_ON_STANDIN
@pytest.mark.parametrize("k", [1, 3, 8])
def test_preprocessing_is_called_once_a_minibatch(make_devices, rng, k):
    X = rng.integers(0, 256, (21, 1, 4, 3)).astype(np.uint8)
    y, calls = rng.integers(0, 10, 21).astype(np.uint8), []
    y[0] = 9

    def spy(X, y, rng):
        calls.append((X.dtype, X.copy(), y.copy(), rng.random(5)))
        X += 1  # what it is given is its own
        return X.astype(np.float64), (9 - y.astype(int)) % 10

    before = X.tobytes(), y.tobytes()
    queue = d2l.MinibatchQueue(X, y, make_devices(k), 5, seed=2, preprocess=spy)
    for epoch in (0, 1):
        queue.shuffle(epoch, done=1)
        batches = list(d2l.minibatches(X, y, 5, 2, epoch))[1:]  # 5, 5, 5, 1
        for number, (X_batch, y_batch) in enumerate(batches, start=1):
            X_seen, y_seen = (np.concatenate(list(map(d2l.to_host, shards))) for shards in queue.next())
            assert X_seen.dtype == np.float32 and y_seen.dtype == np.uint8
            dtype, X_given, y_given, drawn = calls.pop()
            assert calls == [] and dtype == np.float32
            np.testing.assert_array_equal([X_seen, X_given], [X_batch + 1, X_batch])
            np.testing.assert_array_equal([9 - y_seen, y_given], [y_batch, y_batch])
            assert drawn.tolist() == batch_rng(2, epoch, number).random(5).tolist()
        assert not queue.hasdata
    assert (X.tobytes(), y.tobytes()) == before


@LONG_ON_STANDIN
def test_an_error_in_preprocessing_comes_out(make_devices, small):
    """And the minibatch that failed is still the next."""
    devices, failures = make_devices(2), [0, 1]

    def fail_second(X, y, rng):
        if failures and failures.pop(0):
            raise RuntimeError("of the function itself")
        return X, y

    with pytest.raises(RuntimeError, match="of the function itself"):
        train(devices, small, preprocess=fail_second)
    assert failures == []
    d2l.synchronize(devices)
    settings = {"num_epochs": 1, "graphs": False}
    with_it, without = (train(devices, small, preprocess=each, **settings) for each in (fail_second, None))
    assert with_it.history.train_loss[0] == without.history.train_loss[0]
    failures += [1]
    queue = d2l.MinibatchQueue(*numbered(9), devices, 4, preprocess=fail_second)
    with pytest.raises(RuntimeError):
        queue.next()
    assert sorted(sum(seen(queue), [])) == [*range(9)]


@pytest.mark.parametrize(
    "nonsense, described",
    [
        (lambda X, y: None, "None"),
        (lambda X, y: (X, y, y), "an array of float32 .* and an array of int64 .* and an array of int64 "),
        (lambda X, y: (X[1:], y[1:]), r"an array of float32 \(3, 1, 2, 3\) and an array of int64 \(3,\)"),
        (lambda X, y: (X.astype(np.uint8), y), "an array of uint8 "),
        (lambda X, y: (X, y.astype(float)), ".* and an array of float64 "),
        (lambda X, y: (X, y - 9), ".* and an array of int64 "),
        (lambda X, y: (X, y + 9), ".* and an array of int64 "),
        (lambda X, y: (list(X), y), r"\[array.* and an array of int64 "),
    ],
)
def test_preprocessing_that_returns_nonsense(nonsense, described):
    def blur(X, y, rng):
        return nonsense(X, y)

    queue = d2l.MinibatchQueue(*numbered(9), [d2l.cpu(0), d2l.cpu(1)], 4, preprocess=blur)
    queue.start_epoch(np.array([0, 8, 2, 3, 4, 1, 5, 6, 7]))
    asked = r"it should return NumPy arrays: X of shape \(4, 1, 2, 3\) with floats, and y .* labels from 0 to 8$"
    with pytest.raises(ValueError, match=f"preprocess function blur returned {described}.*; {asked}"):
        queue.next()
