"""The functions of notebook 11, each with a mistake that people really make, or might.

The notebook shows what they do before it shows their code, and says where each
mistake was seen. On purpose, nothing here says what is wrong with them. They are
written as a student would write them, with the package's public names.
"""

import math
import time

import d2lmgpu as d2l
from d2lmgpu.collectives import chunk_bounds


def sum_into_all(data):
    for array in data[1:]:
        data[0][:] += d2l.put(array, data[0].device)
    for i in range(1, len(data)):
        data[i] = d2l.put(data[0], data[i].device)


def sum_by_chunks(data):
    flat = [array.reshape(-1) for array in data]  # views
    for owner, (start, stop) in enumerate(chunk_bounds(flat[0].size, len(flat))):
        mine = flat[owner][start:stop]
        others = [array[start:stop] for i, array in enumerate(flat) if i != owner]
        for chunk in others:
            mine += d2l.put(chunk, mine.device)
        for chunk in others:
            chunk += d2l.put(mine, chunk.device)


def sum_from_neighbours(data):
    if len(data) == 1:
        return
    messages = [d2l.put(data[i - 1], array.device) for i, array in enumerate(data)]
    for array, message in zip(data, messages, strict=True):
        array[:] += message


def sum_round_the_ring(data):
    messages = data
    for _ in range(len(data) - 1):
        messages = [d2l.put(messages[i - 1], array.device) for i, array in enumerate(data)]
        for array, message in zip(data, messages, strict=True):
            array[:] += message


def step_replicas(device_params, device_grads, shard_sizes, lr):
    for grads in zip(*device_grads, strict=True):
        d2l.allreduce(list(grads))
    for params, grads, size in zip(device_params, device_grads, shard_sizes, strict=True):
        d2l.sgd(params, grads, lr, size)


def cut(n, k):
    size = max(1, math.ceil(n / k))
    return [(start, min(start + size, n)) for start in range(0, n, size)]


def stopwatch(work, devices, repeats=5, clock=time.perf_counter):
    seconds = []
    for repeat in range(repeats):
        begin = clock()
        work()
        devices[0].synchronize()
        print(f"repetition {repeat + 1} of {repeats}", end="\r")
        seconds.append(clock() - begin)
    return seconds


def name_devices(k, gpus):
    return [f"gpu({i})" if gpus >= i + 1 else "cpu(0)" for i in range(k)]
