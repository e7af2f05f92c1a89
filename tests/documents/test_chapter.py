"""The textbook's program, as who has read the chapter would type it here, cell by cell.

What cannot be, since no framework is underneath, says what it is called here, and the next cell has that instead.
"""

import re

import numpy as np
import pytest

import d2lmgpu as d2l

PARAMETERS = """
scale = 0.01
W1, b1 = np.random.normal(scale=scale, size=(20, 1, 3, 3)), np.zeros(20)
W2, b2 = np.random.normal(scale=scale, size=(50, 20, 5, 5)), np.zeros(50)
W3, b3 = np.random.normal(scale=scale, size=(800, 128)), np.zeros(128)
W4, b4 = np.random.normal(scale=scale, size=(128, 10)), np.zeros(10)
params = [W1, b1, W2, b2, W3, b3, W4, b4]
"""
ALLREDUCE = """
def allreduce(data):
    for i in range(1, len(data)):
        data[0][:] += d2l.put(data[i], data[0].device)
    for i in range(1, len(data)):
        data[i][:] = d2l.put(data[0], data[i].device)
"""
TRAIN_BATCH = """
def train_batch(X, y, device_params, devices, lr):
    X_shards, y_shards = d2l.split_batch(X, y, devices)
    losses, grads = zip(*[d2l.loss_and_grads(X_shard, y_shard, device_W)
                          for X_shard, y_shard, device_W in zip(X_shards, y_shards, device_params)])
    for i in range(len(device_params[0])):
        allreduce([grads[c][i] for c in range(len(devices))])
    for param, grad in zip(device_params, grads):
        d2l.sgd(param, grad, lr, X.shape[0])
"""
TRAIN = """
def train(num_gpus, batch_size, lr, num_epochs=2):
    devices = [d2l.try_gpu(i) for i in range(num_gpus)]
    device_params = [get_params(params, d) for d in devices]
    animator = d2l.Animator('epoch', 'test acc', xlim=[1, num_epochs])
    timer = d2l.Timer()
    for epoch in range(num_epochs):
        timer.start()
        for X, y in d2l.minibatches(X_train, y_train, batch_size, seed=0, epoch=epoch):
            train_batch(X, y, device_params, devices, lr)
            d2l.synchronize(devices)
        timer.stop()
        animator.add(epoch + 1, (d2l.evaluate(device_params[0], X_test, y_test, devices[:1]),))
    print(f'test acc: {animator.Y[0][-1]:.2f}, {timer.avg():.1f} sec/epoch on {str(devices)}')
    return device_params
"""
CELLS = [
    (PARAMETERS, ""),
    ("d2l.npx.convolution", "; d2lmgpu uses no framework, "),
    ("d2l.convolution(data=X, weight=params[0])", "; here: d2l.conv2d"),
    ("loss = d2l.SoftmaxCrossEntropyLoss()", "; here: d2l.softmax_cross_entropy"),
    ("params = [p.astype(np.float32) for p in params]", ""),
    ("get_params = d2l.get_params\nnew_params = get_params(params, d2l.try_gpu(0))", ""),
    ("for p in new_params: p.attach_grad()", "; here: d2l.loss_and_grads"),
    ("data = [d2l.put(np.ones((1, 2)), d2l.try_gpu(i)) * (i + 1) for i in range(3)]", ""),
    ("data[0][:] += data[1].copyto(data[0].device)", "; here: d2l.put"),
    (ALLREDUCE, ""),
    ("print(*data)\nallreduce(data)\nprint(*data)", ""),
    ("data, devices = np.arange(20).reshape(4, 5), [d2l.try_gpu(0), d2l.try_gpu(1)]", ""),
    ("split = d2l.split_and_load(data, devices)", "; here: d2l.split_batch"),
    ("print(*d2l.split_batch(data, range(4), devices))", ""),
    ("new_params[0].backward()", "; here: d2l.loss_and_grads"),
    (TRAIN_BATCH, ""),
    ("train_iter, test_iter = d2l.load_data_fashion_mnist(256)", "; here: d2l.load_fashion_mnist, d2l.minibatches"),
    ("d2l.waitall()", "; here: d2l.synchronize"),
    ("d2l.evaluate_accuracy_gpu(d2l.lenet, X_test, devices[0])", "; here: d2l.evaluate"),
    (TRAIN, ""),
    ("one = train(num_gpus=1, batch_size=256, lr=0.2)", ""),
    ("two = train(num_gpus=2, batch_size=256, lr=0.2)", ""),
]


def test_each_cell_runs_or_says_what_to_type(small):
    """What it prints is what the chapter does, and its step is this package's, bit for bit, with "naive"."""
    X_train, y_train, X_test, y_test = small
    np.random.seed(0)  # noqa: NPY002, as the chapter draws
    printed = []
    here = {"d2l": d2l, "np": np, "print": lambda *words: printed.append(" ".join(map(str, words)))}
    here |= {"X_train": X_train, "y_train": y_train, "X_test": X_test, "y_test": y_test}
    for code, hint in CELLS:
        if hint:
            with pytest.raises(AttributeError, match=hint):
                exec(code, here)
        else:
            exec(code, here)
    devices = first, second, third = [d2l.try_gpu(i) for i in range(3)]
    before, after, split, *accuracies = printed
    assert before == f"[[1. 1.]] @{first} [[2. 2.]] @{second} [[3. 3.]] @{third}"
    assert after == f"[[6. 6.]] @{first} [[6. 6.]] @{second} [[6. 6.]] @{third}"
    assert split.index("[5 6 7 8 9]] @") < split.index("[[10 11 12 13 14]")
    said = [re.fullmatch(r"test acc: 0\.\d\d, \d+\.\d sec/epoch on (.*)", line)[1] for line in accuracies]
    assert said == [f"[{first}]", f"[{first}, {second}]"]
    expected = [d2l.get_params(here["params"], device) for device in devices[:2]]
    for epoch in range(2):
        for X, y in d2l.minibatches(X_train, y_train, batch_size=256, seed=0, epoch=epoch):
            d2l.train_batch(X, y, expected, devices[:2], lr=0.2)
    for params in here["two"]:
        assert all(np.array_equal(d2l.to_host(p), d2l.to_host(e)) for p, e in zip(params, expected[0], strict=True))
