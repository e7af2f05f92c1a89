"""Right answers in other forms and ways than the solutions'."""

import functools
import itertools
import math

import numpy as np

import d2lmgpu as d2l
from d2lmgpu.collectives import Transfer, chunk_bounds


def sum_on__by_pluses(arrays, device):
    return functools.reduce(lambda a, b: a + b, [d2l.put(array, device) for array in arrays])


def swap__in_one_line(a, b):
    a[...], b[...] = d2l.put(b, a.device), d2l.put(a, b.device)
    return a, b


def timed__an_array(work, devices, repeats=5, clock=None):
    seconds = np.empty(1 + repeats)
    for i in range(1 + repeats):
        d2l.synchronize(devices)
        begin = clock()
        work()
        for device in devices:
            device.synchronize()
        seconds[i] = clock() - begin
    return seconds[1:]


def leaky_relu__by_masks(x, slope):
    positive = x > 0
    y = slope * x
    y[positive] = x[positive]

    def backward(dy):
        dx = dy.copy()
        dx[~positive] *= slope
        return dx

    return y, backward


def leaky_relu__slope_at_zero_from_the_right(x, slope):
    return np.where(x > 0, x, slope * x), lambda dy: dy * np.where(x >= 0, 1.0, slope)


def max_pool_grad__by_four_views(dy, x):
    dx, left = np.zeros(x.shape), np.ones(dy.shape, bool)
    H, W = 2 * dy.shape[2], 2 * dy.shape[3]
    views = [x[:, :, i:H:2, j:W:2] for i in (0, 1) for j in (0, 1)]
    for view, (i, j) in zip(views, np.ndindex(2, 2), strict=True):
        first = left & (view == np.max(views, axis=0))
        dx[:, :, i:H:2, j:W:2][first] = dy[first]
        left &= ~first
    return dx


def log_softmax__row_by_row(logits):
    return np.stack([row - np.logaddexp.reduce(row) for row in logits.astype(float)])


def layer_split_bytes__a_numpy_number(outputs, cuts, batch_size):
    return np.array(outputs)[np.array(cuts, int) - 1].sum() * 8.0 * batch_size


def split_batch__in_turn(X, y, devices):
    k = len(devices)
    X_shards = tuple(d2l.put(X[i::k], device) for i, device in enumerate(devices))
    return X_shards, tuple(d2l.put(y[i::k], device) for i, device in enumerate(devices))


def allreduce__returns_it(data):
    for array in data[1:]:
        data[0] += d2l.put(array, data[0].device)
    for array in data[1:]:
        array[...] = d2l.put(data[0], array.device)
    return data


def examples_per_second__by_numpy(seconds, sizes):
    return np.sum(sizes[1:]) / np.sum(seconds[1:])


def smallest_batch__a_float(per_example, exchange, k):
    return next(float(n) for n in itertools.count(1) if per_example * (n - math.ceil(n / k)) - exchange > 1e-9)


def ring__the_other_way(k, n):
    bounds = chunk_bounds(n, k)
    steps = (
        tuple(Transfer(i, (i - 1) % k, *bounds[(i + s) % k], "add" if s < k - 1 else "copy") for i in range(k))
        for s in range(2 * k - 2)
    )
    return tuple(steps)


def updates_per_epoch__a_float(n, b, k):
    return np.ceil(n / (k * b))


def learning_rate__without_a_branch(step, lr, k, warmup_steps):
    return np.float32(k * lr * min(1, (step + 1) / max(1, warmup_steps)))


def he_std__an_array(shape):
    return np.sqrt(2 / np.prod(shape[1:] if len(shape) > 2 else shape[:1], keepdims=True)[0])


def evaluate__a_device_array(device_params, X, y, devices, batch_size):
    right = d2l.put(np.zeros(1), devices[0])
    for start in range(0, len(X), batch_size):
        part = slice(start, start + batch_size)
        for X_own, y_own, params in zip(*d2l.split_batch(X[part], y[part], devices), device_params, strict=True):
            right += float((d2l.to_host(d2l.lenet(X_own, params)).argmax(1) == d2l.to_host(y_own)).sum())
    return right.sum() / len(X)


def split_by_loads__rounded_sums(n, loads):
    stops = np.floor(n * np.cumsum(loads) / np.sum(loads) + 1e-9)
    return np.diff(stops, prepend=0)


def combine_statistics__an_array(counts, means, variances):
    n, m, v = np.array([counts, means, variances])
    mean = n @ m / n.sum()
    return np.array([mean, n @ (v + (m - mean) ** 2) / n.sum()])


def speedup_and_efficiency__lists_in_another_order(seconds):
    return {k: [seconds[1] / seconds[k], seconds[1] / seconds[k] / k] for k in sorted(seconds, reverse=True)}


def serial_fraction__the_mean(speedups):
    return np.mean([(1 / S - 1 / k) / (1 - 1 / k) for k, S in speedups.items() if k > 1])


def limiting_phase__a_numpy_text(one, many, k):
    names = np.array(list(one))
    return names[np.argmax([many[name] - one[name] / k for name in one])]


def count_products__by_numpy(x_shape, weight_shape, input_grad):
    N, _, *size = x_shape
    return (2 + bool(input_grad)) * N * np.prod(np.subtract(size, weight_shape[2:]) + 1) * np.prod(weight_shape)


def accumulate_grads__in_zeros(grads_of, X, y, most):
    total = None
    for start in range(0, len(X), most):
        grads = grads_of(X[start : start + most], y[start : start + most])
        total = tuple(np.zeros_like(grad) for grad in grads) if total is None else total
        total = tuple(a + b for a, b in zip(total, grads, strict=True))
    return total


def buckets__tuples_of_numpy_numbers(sizes, limit):
    found, room = [], -1
    for i in np.arange(len(sizes))[::-1]:
        if sizes[i] > room:
            found.append(())
            room = limit
        found[-1] += (i,)
        room -= sizes[i]
    return tuple(found)


def to_bfloat16__by_halves(x):
    upper = x.view(np.uint32) >> 16
    lower = x.view(np.uint32) & 0xFFFF
    upper = upper + ((lower > 0x8000) | ((lower == 0x8000) & (upper & 1 == 1)))
    return (upper.astype(np.uint32) << 16).view(np.float32)


def next_scale__numpy_numbers(scale, good_steps, grads, interval):
    use = np.all([np.isfinite(grad).all() for grad in grads])
    if not use:
        return [use, np.maximum(scale / 2, 1), 0]
    good_steps = (good_steps + 1) % interval
    return use, np.float32(scale * (2 if good_steps == 0 else 1)), np.int64(good_steps)


def cut__an_array(n, k):
    stops = np.arange(1, k + 1) * n // k
    return np.stack([np.append(0, stops[:-1]), stops], axis=1)


def name_devices__tuples(k, gpus):
    return tuple(map(("gpu({})" if gpus else "cpu({})").format, range(k)))


def one_f_one_b__lists(k, micro_batches):
    orders = []
    for s in range(k):
        ahead = min(k - s, micro_batches)
        order = [["F", s, m] for m in range(ahead)]
        for m in range(micro_batches):
            order += [["B", s, m]] + [["F", s, m + ahead]] * (m + ahead < micro_batches)
        orders.append(tuple(order))
    return tuple(orders)


def enough_micro_batches__by_trying(k, bubble):
    return next(float(m) for m in itertools.count(1) if (k - 1) / (m + k - 1) <= bubble * (1 + 1e-9))


def zero_bytes__a_float(stage, parameters, states, k):
    sizes = np.array([parameters, math.ceil(parameters / k)])
    return 4.0 * (sizes[int(stage >= 3)] + sizes[int(stage >= 2)] + states * sizes[int(stage >= 1)])


def largest_batch__a_float(parameters, activations, memory, k):
    return k * max(0.0, np.floor((memory - 8 * parameters) / (4 * activations)))


def my_examples__an_array(batch_size, counts, rank):
    stops = np.cumsum(counts)
    k, sizes = stops[-1], batch_size // stops[-1] * stops + np.minimum(stops, batch_size % stops[-1])
    return np.append(0, sizes)[rank : rank + 2] if k else None


def culprits__by_numpy(waits):
    return np.setdiff1d(list(waits.values()), list(waits))
