"""Solutions of notebook 5's exercises."""

import math

import d2lmgpu as d2l


def train_batch(X, y, device_params, devices, lr):
    """All devices get their work before the first is waited for."""
    X_shards, y_shards = d2l.split_batch(X, y, devices)
    each_device = zip(devices, X_shards, y_shards, device_params, strict=True)
    tasks = [device.run(d2l.loss_and_grads, *arguments) for device, *arguments in each_device]
    losses, device_grads = zip(*[task.result() for task in tasks], strict=True)
    for grads in zip(*device_grads, strict=True):
        d2l.allreduce(list(grads))
    for params, grads in zip(device_params, device_grads, strict=True):
        d2l.sgd(params, grads, lr, len(y))
    return sum(float(d2l.to_host(loss)) for loss in losses)


def examples_per_second(seconds, sizes):
    """A rate of many steps is a ratio of sums."""
    return sum(sizes[1:]) / sum(seconds[1:])


def smallest_batch(per_example, exchange, k):
    """By trying: the number of examples on the fullest device grows in steps."""
    n = 1
    while per_example * math.ceil(n / k) + exchange >= per_example * n:
        n += 1
    return n
