"""Repairs of notebook 11b's functions."""

import time

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
