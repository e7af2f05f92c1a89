"""Wrong repairs of notebook 11's functions, first each as found. A docstring is a part of what the check says."""

import itertools
import time

import numpy as np

import d2lmgpu as d2l
from d2lmgpu.collectives import chunk_bounds
from d2lmgpu.exercises import faulty


def sum_into_all__as_found(data):
    """data[i] = ... puts another array into the list"""
    faulty.sum_into_all(data)


def sum_by_chunks__as_found(data):
    """copy the sum back with data[i][:] = ..., not with +="""
    faulty.sum_by_chunks(data)


def sum_from_neighbours__as_found(data):
    """k may be more than two: add all of them"""
    faulty.sum_from_neighbours(data)


def sum_round_the_ring__as_found(data):
    """3 devices, 999 numbers: right, but a device sends 1998 numbers; 1332 are enough: all devices send whole arrays"""
    faulty.sum_round_the_ring(data)


def sum_round_the_ring__the_textbooks(data):
    """let every device add up one chunk, and send it back"""
    d2l.allreduce(data, "naive")


def sum_round_the_ring__chunks_but_all_the_way_twice(data):
    """a chunk goes round twice"""
    k, flat = len(data), [array.reshape(-1) for array in data]
    bounds = chunk_bounds(flat[0].size, k)
    for step in range(3 * (k - 1)):
        for i in range(k):
            start, stop = bounds[(i - step) % k]
            target = flat[(i + 1) % k][start:stop]
            message = d2l.put(flat[i][start:stop], target.device)
            target[:] = target + message if step < k - 1 else message


def step_replicas__as_found(device_params, device_grads, shard_sizes, lr):
    """the step of cpu(0):"""
    faulty.step_replicas(device_params, device_grads, shard_sizes, lr)


def _step(device_params, device_grads, lr, batch_size):
    for grads in zip(*device_grads, strict=True):
        d2l.allreduce(list(grads))
    for params, grads in zip(device_params, device_grads, strict=True):
        d2l.sgd(params, grads, lr, batch_size)


def _means(device_grads, shard_sizes):
    for grads, size in zip(device_grads, shard_sizes, strict=True):
        for grad in grads:
            grad[:] /= max(size, 1)


def step_replicas__mean_of_means(device_params, device_grads, shard_sizes, lr):
    """it uses the mean of the shards' means"""
    _means(device_grads, shard_sizes)
    _step(device_params, device_grads, lr, len(shard_sizes))


def step_replicas__sum_of_means(device_params, device_grads, shard_sizes, lr):
    """it uses the sum of the shards' means"""
    _means(device_grads, shard_sizes)
    _step(device_params, device_grads, lr, 1)


def step_replicas__zero_divided_by_zero(device_params, device_grads, shard_sizes, lr):
    """do not divide by an empty shard's size"""
    for grads, size in zip(device_grads, shard_sizes, strict=True):
        for grad in grads:
            grad[:] *= size / np.float64(size)
    _step(device_params, device_grads, lr, sum(shard_sizes))


def cut__as_found(n, k):
    """every device needs a pair, even if no example is left for it"""
    return faulty.cut(n, k)


def cut__padded_with_empty_shards(n, k):
    """shards of [2, 2, 2, 2, 1, 0, 0, 0] examples; all devices wait for the largest"""
    bounds = faulty.cut(n, k)
    return bounds + [(n, n)] * (k - len(bounds))


def cut__refuses(n, k):
    """a shard may be empty"""
    if n < k:
        raise ValueError("too few examples")
    return chunk_bounds(n, k)


def cut__rounded_down(n, k):
    """cut(9, 2): [(0, 4), (4, 8)]"""
    return [(i * (n // k), (i + 1) * (n // k)) for i in range(k)]


def cut__sizes(n, k):
    """return a list of pairs (start, stop)"""
    return [n // k + (i < n % k) for i in range(k)]


def stopwatch__as_found(work, devices, repeats=5, clock=time.perf_counter):
    """print before or after both readings of the clock"""
    return faulty.stopwatch(work, devices, repeats, clock)


def stopwatch__prints_while_the_devices_work(work, devices, repeats=5, clock=time.perf_counter):
    """print before or after both readings of the clock"""
    work()
    d2l.synchronize(devices)
    seconds = []
    for _ in range(repeats):
        begin = clock()
        work()
        d2l.synchronize(devices)
        print("done at", clock())
        seconds.append(clock() - begin)
    return seconds


def name_devices__as_found(k, gpus):
    """name_devices(2, 1): ['gpu(0)', 'cpu(0)'] instead of ['gpu(0)', 'gpu(1)']"""
    return faulty.name_devices(k, gpus)


def name_devices__no_gpu_if_there_are_too_few(k, gpus):
    """the GPU has nothing to do; several devices may share one GPU"""
    return [f"{'gpu' if gpus >= k else 'cpu'}({i})" for i in range(k)]


def name_devices__one_gpu_twice(k, gpus):
    """a name is in the list twice"""
    return [f"gpu({i % gpus})" if gpus else f"cpu({i})" for i in range(k)]


def name_devices__only_as_many_as_there_are(k, gpus):
    """return a name for each of the k devices"""
    return [f"gpu({i})" for i in range(min(k, gpus))] or [f"cpu({i})" for i in range(k)]


def name_devices__gpus_only(k, gpus):
    """without a GPU, the devices are cpu(0), cpu(1), ..."""
    return [f"gpu({i})" for i in range(k)]


def name_devices__backwards(k, gpus):
    """number them from 0 on, in order"""
    return list(itertools.chain(f"{'gpu' if gpus else 'cpu'}({i})" for i in reversed(range(k))))
