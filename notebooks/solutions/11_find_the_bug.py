"""Repairs of notebook 11's functions."""

import time

import d2lmgpu as d2l
from d2lmgpu.collectives import chunk_bounds


def sum_into_all(data):
    """data[i][:] = ... instead of data[i] = ..."""
    for array in data[1:]:
        data[0][:] += d2l.put(array, data[0].device)
    for array in data[1:]:
        array[:] = d2l.put(data[0], array.device)


def sum_by_chunks(data):
    """The finished chunk replaces what is there."""
    flat = [array.reshape(-1) for array in data]
    for owner, (start, stop) in enumerate(chunk_bounds(flat[0].size, len(flat))):
        mine = flat[owner][start:stop]
        others = [array[start:stop] for i, array in enumerate(flat) if i != owner]
        for chunk in others:
            mine += d2l.put(chunk, mine.device)
        for chunk in others:
            chunk[:] = d2l.put(mine, chunk.device)


def sum_from_neighbours(data):
    """What is received is sent on, k - 1 times."""
    messages = data
    for _ in range(len(data) - 1):
        messages = [d2l.put(messages[i - 1], array.device) for i, array in enumerate(data)]
        for array, message in zip(data, messages, strict=True):
            array[:] += message


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


def cut(n, k):
    """Always k pairs, some of them perhaps empty."""
    return [(i * n // k, (i + 1) * n // k) for i in range(k)]


def stopwatch(work, devices, repeats=5, clock=time.perf_counter):
    """A warm-up that is waited for; then from idle devices to idle devices, and nothing printed between."""
    work()
    d2l.synchronize(devices)
    seconds = []
    for _ in range(repeats):
        begin = clock()
        work()
        d2l.synchronize(devices)
        seconds.append(clock() - begin)
    return seconds


def name_devices(k, gpus):
    """The kind depends on the machine, not on the device's number."""
    kind = "gpu" if gpus else "cpu"
    return [f"{kind}({i})" for i in range(k)]
