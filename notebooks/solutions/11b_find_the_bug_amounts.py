"""Repairs of notebook 11b's functions."""

import d2lmgpu as d2l
from d2lmgpu.collectives import chunk_bounds


def sum_round_the_ring(data):
    """Chunks go round: device i sends chunk i - step, first to be added, then, finished, to be copied."""
    k, flat = len(data), [array.reshape(-1) for array in data]
    bounds = chunk_bounds(flat[0].size, k)
    for step in range(2 * (k - 1)):
        for i in range(k):
            start, stop = bounds[(i - step) % k]
            target = flat[(i + 1) % k][start:stop]
            message = d2l.put(flat[i][start:stop], target.device)
            target[:] = target + message if step < k - 1 else message


def step_replicas(device_params, device_grads, shard_sizes, lr):
    """The sum of all gradients, divided by the number of all examples."""
    for grads in zip(*device_grads, strict=True):
        d2l.allreduce(list(grads))
    for params, grads in zip(device_params, device_grads, strict=True):
        d2l.sgd(params, grads, lr, sum(shard_sizes))


def deal_out(X, y, devices):
    """Equal parts by rounding the ends: device i begins where i/k of the examples are dealt out."""
    n, k = len(X), len(devices)
    ends = [i * n // k for i in range(k + 1)]
    X_shards = [d2l.put(X[a:b], device) for a, b, device in zip(ends, ends[1:], devices, strict=False)]
    y_shards = [d2l.put(y[a:b], device) for a, b, device in zip(ends, ends[1:], devices, strict=False)]
    return X_shards, y_shards
