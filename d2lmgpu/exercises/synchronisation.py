"""Exercises of notebook 4, copies and synchronisation: a minibatch over the devices, sums over them, and a step."""

import numpy as np

from ..devices import DeviceArray, cpu, put, to_host
from ..words import several
from .checking import Exercise, random_numbers
from .results import Empty, Wrong, call_recorded, close, compare, expect, kind, read, result_of, same_things
from .watching import check_ways


def try_split_batch(answer, n, k):
    """Each example is there once, with its label; shards differ by at most one, and each is on its device."""
    devices = [cpu(i) for i in range(k)]
    case = f"{several(n, 'example')} on {several(k, 'device')}"
    X, y = np.arange(3 * n, dtype=np.float32).reshape(n, 3), np.arange(n)
    result = result_of(answer, X, y, list(devices), case=case, hint=RAGGED)
    expect(isinstance(result, tuple), f"{case}: it returned {kind(result)}", TWO_LISTS)
    X_shards, y_shards = read(result, ([object], [object]), case, TWO_LISTS)
    for shards in (X_shards, y_shards):
        expect(len(shards) == k, f"{case}: {len(shards)} shards", "each device gets one, if it is an empty one")
    _check_places(X_shards + y_shards, devices, case)
    sizes = [len(shard) for shard in X_shards]
    labels = [len(shard) for shard in y_shards]
    expect(sizes == labels, f"{case}: {sizes} images and {labels} labels", "cut X and y at the same places")
    expect(sum(sizes) == n, f"{case}: shards of {sizes} examples, {sum(sizes)} in all", RAGGED)
    expect(max(sizes) - min(sizes) <= 1, f"{case}: shards of {sizes} examples; all wait for the largest", RAGGED)
    _check_pairs(X_shards, y_shards, n, case)


TWO_LISTS = "return two lists: return X_shards, y_shards"
RAGGED = "n divided by k leaves a remainder r; give one more example to r of the devices"


def _check_places(shards, devices, case):
    for shard, device in zip(shards, [*devices, *devices], strict=True):
        place = shard.device if isinstance(shard, DeviceArray) else "the host"
        said = f"{case}: the shard for {device} is on {place}"
        expect(place is device, said, "put(part, device) copies a part there")


def _check_pairs(X_shards, y_shards, n, case):
    """Image i is [3i, 3i + 1, 3i + 2], and its label i."""
    X = np.concatenate([to_host(shard).reshape(-1, 3) for shard in X_shards])
    y = np.concatenate([to_host(shard) for shard in y_shards])
    expect(sorted(X[:, 0]) == [3 * i for i in range(n)], f"{case}: some examples occur twice, others never", RAGGED)
    said = f"{case}: some images have another image's label"
    expect((X[:, 0] == 3 * y).all(), said, "cut X and y at the same places, in the same order")


def try_allreduce(answer, k, n):
    """The sum, in place, on every device. Returns the transfers."""
    rng = random_numbers(0)
    devices = [cpu(i) for i in range(k)]
    values = [rng.normal(0, 1, n).astype(np.float32) for _ in devices]
    arrays = [put(value, device) for value, device in zip(values, devices, strict=True)]
    data, case = list(arrays), several(k, "device")
    hint = "arrays of two devices do not mix: put(x, device) copies x to the other"
    _, transfers = call_recorded(answer, data, case=case, hint=hint)
    rebound = any(new is not old for new, old in zip(data, arrays, strict=False))
    if k > 1 and not rebound and all(map(close, arrays, values)):
        raise Empty(f"{case}: nothing has changed")
    total = np.sum(values, axis=0, dtype=float)
    if rebound and not close(arrays[-1], total):
        said = "the list has other arrays in it than before, and those given, the devices' gradients, no sum"
        raise Wrong(f"{case}: {said}", REBOUND)
    for i, array in enumerate(arrays):
        _check_sum(i, array, values, total, case)
    if k > 1:
        check_ways(transfers, devices, n, case)
    return transfers


REBOUND = "data[i] = ... gives the list another array; data[i][:] = ... writes into the one that is there"


def _check_sum(i, array, values, total, case):
    twice = np.where(_equal(array, total), total, total + values[i])  # its own vector, in some chunks or in all
    mistakes = (
        (values[i], "it still holds its own vector", "once the sum is on device 0, copy it to the others"),
        (total / len(values), "the mean", "the textbook's allreduce sums; sgd divides, by the whole minibatch"),
        (twice, "the sum with its own vector counted twice", "copy the sum back with data[i][:] = ..., not with +="),
        (values[0] + values[-1], "the first vector and the last only", "k may be more than two: add all of them"),
    )
    hint = "try it with vectors such as [1], [10], [100]: the digits tell who was counted, and how often"
    compare(array, total, mistakes, f"{case}: device {i}", hint, 1e-4)


def _equal(array, total):
    """Which elements hold the sum."""
    return np.isclose(to_host(array), total, rtol=0, atol=1e-4 * np.abs(total).max(initial=1e-30))


def try_update_replicas(answer, k):
    """All replicas take the same step, in place: the sum of all gradients, divided once, by the whole minibatch."""
    rng = random_numbers(1)
    shapes, lr, batch_size = ((2, 3), (4,)), 0.5, 10
    devices, case = [cpu(i) for i in range(k)], f"{several(k, 'device')}, a minibatch of {batch_size}"
    start = [rng.normal(0, 1, shape).astype(np.float32) for shape in shapes]
    grads = [[rng.normal(0, 3, shape).astype(np.float32) for shape in shapes] for _ in devices]
    replicas = [[put(value, device) for value in start] for device in devices]
    device_grads = [[put(value, device) for value in values] for values, device in zip(grads, devices, strict=True)]
    arrays = [list(params) for params in replicas]
    _, transfers = call_recorded(answer, replicas, device_grads, lr, batch_size, case=case, hint=MIXED)
    if same_things(replicas, arrays) and all(
        close(array, value) for params in arrays for array, value in zip(params, start, strict=True)
    ):
        raise Empty(f"{case}: no parameter has changed")
    for number, value in enumerate(start):
        own = [values[number] for values in grads]
        for i, params in enumerate(arrays):
            _check_step(i, params[number], value, own, lr, batch_size, case)
    if k > 1:
        check_ways(transfers, devices, sum(value.size for value in start), case)


MIXED = "for each parameter, allreduce the list of its gradients, one of each device; then d2l.sgd on each replica"


def _check_step(i, array, start, own, lr, batch_size, case):
    """``own``: this parameter's gradient on each device."""
    k, total = len(own), np.sum(own, axis=0)
    steps = (
        (0 * total, "it has not changed", "update the copy on every device, in place: param[:] -= ..."),
        (own[i] / batch_size, "a step by its own gradient only", "first allreduce: the step needs all devices' sum"),
        (total * k / batch_size, "a step k times as long", "divide by the whole minibatch, not by a shard"),
        (total / k / batch_size, "a step k times too short", "sgd divides once; do not average over devices too"),
        (total, "a step by the sum itself", "gradients are sums over examples: divide by the minibatch's size"),
        (-total / batch_size, "a step uphill", "SGD subtracts the gradient"),
    )
    mistakes = [(start - lr * step, what, hint) for step, what, hint in steps]
    compare(array, start - lr / batch_size * total, mistakes, f"{case}: a parameter on device {i}", MIXED, 1e-4)


EXERCISES = {
    "split_batch": Exercise(
        "Write split_batch(X, y, devices): split n images X (n, ...) and their labels y (n,) over the list of devices; "
        "return two lists with a device array for each device. Sizes differ by one at most, and n may be less than the "
        "number of devices.",
        "every example is on one device, with its label, and the devices' numbers of examples differ by at most one.",
        try_split_batch,
        cases=((8, 2), (7, 1), (9, 2), (38, 8), (3, 5), (0, 2)),
        draw=lambda rng: tuple(map(int, rng.integers(1, (50, 9)))),
    ),
    "allreduce": Exercise(
        "Write allreduce(data): data is a list of device arrays of one shape, one on each device; afterwards each "
        "holds the sum of all. Work in place, and return nothing.",
        "all devices hold the sum, in place, for 1, 2, 3, 5 and 8 devices.",
        try_allreduce,
        cases=((2, 5), (1, 4), (3, 7), (5, 3), (8, 11)),
        draw=lambda rng: tuple(map(int, rng.integers((2, 1), (9, 30)))),
    ),
    "update_replicas": Exercise(
        "Write update_replicas(device_params, device_grads, lr, batch_size): for each device you get the list of its "
        "parameters and the list of its gradients, summed over its shard; let all replicas take the same step of SGD, "
        "in place. batch_size is that of the whole minibatch.",
        "all replicas take the same step, in place: the sum of all gradients, divided by the whole minibatch.",
        try_update_replicas,
        cases=((2,), (1,), (3,), (5,)),
        draw=lambda rng: (int(rng.integers(2, 9)),),
    ),
}
