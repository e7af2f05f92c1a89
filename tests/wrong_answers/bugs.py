"""Wrong repairs of notebook 11's functions, first each as found. A docstring is a part of what the check says."""

import itertools
import math
import time

import numpy as np

import d2lmgpu as d2l
from d2lmgpu.collectives import chunk_bounds
from d2lmgpu.exercises import faulty


def sum_into_all__as_found(data):
    """data[i] = ... puts another array into the list"""
    faulty.sum_into_all(data)


def sum_into_all__no_answer(data):
    """nothing has changed. Repair sum_into_all"""


def sum_into_all__a_name_instead_of_an_element(data):
    """once the sum is on device 0, copy it to the others"""
    for array in data[1:]:
        data[0][:] += d2l.put(array, data[0].device)
    for array in data[1:]:
        array = d2l.put(data[0], array.device)


def sum_into_all__all_rebound(data):
    """the list now has other arrays, and the given ones, the devices' gradients, do not hold the sum"""
    total = np.sum([d2l.to_host(array) for array in data], axis=0)
    data[:] = [d2l.put(total, array.device) for array in data]


def sum_into_all__without_a_transfer(data):
    """you cannot mix arrays of two devices"""
    for array in data[1:]:
        data[0][:] += d2l.put(array, data[0].device)
    for array in data[1:]:
        array[:] = data[0]


def sum_into_all__with_plus(data):
    """copy the sum back with data[i][:] = ..., not with +="""
    for array in data[1:]:
        data[0][:] += d2l.put(array, data[0].device)
    for array in data[1:]:
        array[:] += d2l.put(data[0], array.device)


def sum_by_chunks__as_found(data):
    """copy the sum back with data[i][:] = ..., not with +="""
    faulty.sum_by_chunks(data)


def sum_by_chunks__by_one_device(data):
    """right, but a device sends 1998 numbers; 1332 are enough: cpu(2) sends most"""
    d2l.allreduce(data)


def sum_by_chunks__no_answer(data):
    """nothing has changed. Repair sum_by_chunks"""


def sum_by_chunks__a_name_instead_of_a_chunk(data):
    """the digits show which were counted, and how often"""
    _by_chunks(data, lambda chunk, mine: None)


def sum_by_chunks__mixes_places(data):
    """you cannot mix arrays of two devices"""
    _by_chunks(data, lambda chunk, mine: chunk.__setitem__(slice(None), mine))


def _by_chunks(data, give_back):
    flat = [array.reshape(-1) for array in data]
    for owner, (start, stop) in enumerate(chunk_bounds(flat[0].size, len(flat))):
        mine = flat[owner][start:stop]
        others = [array[start:stop] for i, array in enumerate(flat) if i != owner]
        for chunk in others:
            mine += d2l.put(chunk, mine.device)
        for chunk in others:
            give_back(chunk, mine)


def sum_by_chunks__halves_of_what_is_counted_twice(data):
    """cpu(0): ["""
    faulty.sum_by_chunks(data)
    for array in data:
        array[:] /= 2


def sum_from_neighbours__as_found(data):
    """k may be more than two: add all of them"""
    faulty.sum_from_neighbours(data)


def sum_from_neighbours__no_answer(data):
    """nothing has changed. Repair sum_from_neighbours"""


def sum_from_neighbours__what_grew_is_sent_on(data):
    """3 devices, 7 numbers: cpu(2): ["""
    for _ in range(len(data) - 1):
        faulty.sum_from_neighbours(data)


def sum_from_neighbours__one_device_too(data):
    """1 device, 4 numbers in two rows: cpu(0): ["""
    messages = data
    for _ in range(max(1, len(data) - 1)):
        messages = [d2l.put(messages[i - 1], array.device) for i, array in enumerate(data)]
        for array, message in zip(data, messages, strict=True):
            array[:] += message


def sum_from_neighbours__one_after_the_other(data):
    """copy the sum back with data[i][:] = ..., not with +="""
    if len(data) > 1:
        for i, array in enumerate(data):
            array[:] += d2l.put(data[i - 1], array.device)


def sum_from_neighbours__without_a_transfer(data):
    """you cannot mix arrays of two devices"""
    for array in data[1:]:
        data[0][:] += array


def sum_round_the_ring__as_found(data):
    """3 devices, 999 numbers: right, but a device sends 1998 numbers; 1332 are enough: all devices send whole arrays"""
    faulty.sum_round_the_ring(data)


def sum_round_the_ring__no_answer(data):
    """nothing has changed. Repair sum_round_the_ring"""


def sum_round_the_ring__the_textbooks(data):
    """let every device add up one chunk, and send it back"""
    d2l.allreduce(data, "naive")


def sum_round_the_ring__over_the_host(data):
    """put copies from device to device"""
    total = np.sum([d2l.to_host(array) for array in data], axis=0)
    for array in data:
        array[:] = d2l.put(total, array.device)


def sum_round_the_ring__chunks_of_everybody_to_everybody(data):
    """right, but a device sends 1998 numbers; 1332 are enough"""
    values = [[d2l.put(other, array.device) for other in data] for array in data]
    for array, copies in zip(data, values, strict=True):
        array[:] = sum(copies[1:], copies[0])


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


def sum_round_the_ring__adds_on_the_second_trip(data):
    """copy the sum back with data[i][:] = ..., not with +="""
    k, flat = len(data), [array.reshape(-1) for array in data]
    bounds = chunk_bounds(flat[0].size, k)
    for step in range(2 * (k - 1)):
        for i in range(k):
            start, stop = bounds[(i - step) % k]
            target = flat[(i + 1) % k][start:stop]
            target += d2l.put(flat[i][start:stop], target.device)


def step_replicas__as_found(device_params, device_grads, shard_sizes, lr):
    """the step of cpu(0):"""
    faulty.step_replicas(device_params, device_grads, shard_sizes, lr)


def step_replicas__no_answer(device_params, device_grads, shard_sizes, lr):
    """no parameter has changed. Repair step_replicas"""


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


def step_replicas__the_largest_shard(device_params, device_grads, shard_sizes, lr):
    """on every device, divide by the size of the whole minibatch, not of the shard"""
    _step(device_params, device_grads, lr, max(shard_sizes))


def step_replicas__by_the_devices_too(device_params, device_grads, shard_sizes, lr):
    """divide once, by the number of examples, not also by k"""
    _step(device_params, device_grads, lr, sum(shard_sizes) * len(shard_sizes))


def cut__as_found(n, k):
    """every device needs a pair, even if no example is left for it"""
    return faulty.cut(n, k)


def cut__no_answer(n, k):
    """it returned nothing. Repair cut"""


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


def cut__both_ends_rounded(n, k):
    """the first shard begins at 0, each other shard begins where the one before it ends, and the last ends at n"""
    return [(i * n // k, math.ceil((i + 1) * n / k)) for i in range(k)]


def cut__in_another_order(n, k):
    """the first shard begins at 0"""
    return list(reversed(chunk_bounds(n, k)))


def cut__sizes(n, k):
    """return a list of pairs (start, stop)"""
    return [n // k + (i < n % k) for i in range(k)]


def stopwatch__as_found(work, devices, repeats=5, clock=time.perf_counter):
    """print before or after both readings of the clock"""
    return faulty.stopwatch(work, devices, repeats, clock)


def stopwatch__no_answer(work, devices, repeats=5, clock=time.perf_counter):
    """it returned nothing. Repair stopwatch"""


def _stopwatch(work, devices, repeats, clock, warm_ups, awaited):
    seconds = []
    for repeat in range(warm_ups + repeats):
        begin = clock()
        work()
        d2l.synchronize(awaited)
        seconds.append(clock() - begin)
        print(f"repetition {repeat + 1} of {repeats}", end="\r")
    return seconds[warm_ups:]


def stopwatch__with_the_warm_up(work, devices, repeats=5, clock=time.perf_counter):
    """the warm-up is in the first time"""
    return _stopwatch(work, devices, repeats, clock, 0, devices)


def stopwatch__waits_for_the_first_only(work, devices, repeats=5, clock=time.perf_counter):
    """wait for all devices, not for only one"""
    work()
    d2l.synchronize(devices)
    return _stopwatch(work, devices, repeats, clock, 0, devices[:1])


def stopwatch__waits_for_nobody(work, devices, repeats=5, clock=time.perf_counter):
    """the time for submitting the work, not for doing it"""
    return _stopwatch(work, devices, repeats, clock, 1, [])


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


def name_devices__no_answer(k, gpus):
    """it returned nothing. Repair name_devices"""


def name_devices__numbered_but_mixed(k, gpus):
    """all wait for the slowest"""
    return [f"gpu({i})" if i < gpus else f"cpu({i})" for i in range(k)]


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


def name_devices__a_number(k, gpus):
    """return a list of names"""
    return k


def sum_into_all__calls_the_librarys(data):
    """it is the library's own d2lmgpu.collectives.allreduce"""
    d2l.allreduce(data)


def sum_by_chunks__calls_the_librarys(data):
    """it is the library's own d2lmgpu.collectives.allreduce"""
    d2l.allreduce(data, "sharded")


def sum_round_the_ring__calls_the_librarys(data):
    """it is the library's own d2lmgpu.collectives.allreduce"""
    d2l.allreduce(data, "ring")


def name_devices__the_cards(k, gpus):
    """Hint: several devices may share one GPU, each with its own number: d2lmgpu puts"""
    return [f"gpu({i % gpus})" if gpus else f"cpu({i})" for i in range(k)]


def sum_by_chunks__of_rows(data):
    """8 devices, 4,000 numbers in two rows: right, but a device sends 28000 numbers; 7000 are enough"""
    for owner, (start, stop) in enumerate(chunk_bounds(data[0].size, len(data))):
        mine, *others = [array[start:stop] for array in data[owner:] + data[:owner]]
        for chunk in others:
            mine += d2l.put(chunk, mine.device)
        for chunk in others:
            chunk[:] = d2l.put(mine, chunk.device)
