"""Wrong answers to the exercises of notebook 5. A docstring is a part of what the check should say."""

import math
import statistics

import d2lmgpu as d2l


def _tasks(X, y, device_params, devices):
    """Submits to one device after the other, each when it is asked for."""
    shards = zip(devices, *d2l.split_batch(X, y, devices), device_params, strict=True)
    return (device.run(d2l.loss_and_grads, *arguments) for device, *arguments in shards)


def _gradients(X, y, device_params, devices):
    results = [task.result() for task in list(_tasks(X, y, device_params, devices))]
    losses = [float(d2l.to_host(loss)) for loss, _ in results]
    return losses, [grads for _, grads in results], [len(shard) for shard in d2l.split_batch(X, y, devices)[1]]


def _exchange(device_grads):
    for grads in zip(*device_grads, strict=True):
        d2l.allreduce(list(grads))


def _update(device_params, device_grads, lr, sizes):
    for params, grads, size in zip(device_params, device_grads, sizes, strict=True):
        d2l.sgd(params, grads, lr, size or 1)


def train_batch__updates_before_the_allreduce(X, y, device_params, devices, lr):
    """first the allreduce, then the updates"""
    losses, device_grads, sizes = _gradients(X, y, device_params, devices)
    _update(device_params, device_grads, lr, [len(y)] * len(sizes))
    _exchange(device_grads)
    return sum(losses)


def train_batch__a_mean_of_means(X, y, device_params, devices, lr):
    """add up the sums of the losses of all shards"""
    losses, device_grads, sizes = _gradients(X, y, device_params, devices)
    _exchange(device_grads)
    _update(device_params, device_grads, lr, [len(y)] * len(sizes))
    return statistics.mean(loss / (size or 1) for loss, size in zip(losses, sizes, strict=True))


def train_batch__returns_the_mean(X, y, device_params, devices, lr):
    """return the sum over the examples; do not divide it"""
    return d2l.train_batch(X, y, device_params, devices, lr) / len(y)


def train_batch__returns_the_first_devices_loss(X, y, device_params, devices, lr):
    """add up the losses of all devices"""
    losses, device_grads, sizes = _gradients(X, y, device_params, devices)
    _exchange(device_grads)
    _update(device_params, device_grads, lr, [len(y)] * len(sizes))
    return losses[0]


def train_batch__adds_losses_of_two_devices(X, y, device_params, devices, lr):
    """to_host(x) to the host"""
    return sum([task.result()[0] for task in list(_tasks(X, y, device_params, devices))])


def train_batch__returns_nothing(X, y, device_params, devices, lr):
    """return the loss, summed over examples"""
    d2l.train_batch(X, y, device_params, devices, lr)


def train_batch__one_device_after_the_other(X, y, device_params, devices, lr):
    """submit to all devices first"""
    results = [task.result() for task in _tasks(X, y, device_params, devices)]
    return _finish(results, device_params, lr, len(y))


def train_batch__calls_that_wait(X, y, device_params, devices, lr):
    """you waited for cpu(2) before you gave work to cpu(1)"""
    shards = zip(*d2l.split_batch(X, y, devices), device_params, strict=True)
    return _finish([d2l.loss_and_grads(*arguments) for arguments in shards], device_params, lr, len(y))


def train_batch__synchronises_each(X, y, device_params, devices, lr):
    """submit to all devices first"""
    tasks = []
    for device, task in zip(devices, _tasks(X, y, device_params, devices), strict=True):
        tasks.append(task)
        device.synchronize()
    return _finish([task.result() for task in tasks], device_params, lr, len(y))


def train_batch__over_the_host(X, y, device_params, devices, lr):
    """put copies from device to device"""
    results = [task.result() for task in list(_tasks(X, y, device_params, devices))]
    totals = [sum(map(d2l.to_host, grads)) for grads in zip(*(grads for _, grads in results), strict=True)]
    for device, params in zip(devices, device_params, strict=True):
        d2l.sgd(params, [d2l.put(total, device) for total in totals], lr, len(y))
    return sum(float(loss) for loss, _ in results)


def _finish(results, device_params, lr, n):
    _exchange([grads for _, grads in results])
    _update(device_params, [grads for _, grads in results], lr, [n] * len(results))
    return sum(float(loss) for loss, _ in results)


def examples_per_second__five_percent_too_many(seconds, sizes):
    """divide all examples by all seconds, except for the first step"""
    return 1.05 * sum(sizes[1:]) / sum(seconds[1:])


def examples_per_second__with_the_warm_up(seconds, sizes):
    """leave it out of both lists"""
    return sum(sizes) / sum(seconds)


def examples_per_second__a_mean_of_rates(seconds, sizes):
    """divide all examples by all seconds: a short step should count less"""
    return statistics.mean(size / second for size, second in zip(sizes[1:], seconds[1:], strict=True))


def examples_per_second__full_minibatches(seconds, sizes):
    """the last minibatch is smaller"""
    return sizes[0] * len(sizes[1:]) / sum(seconds[1:])


def examples_per_second__upside_down(seconds, sizes):
    """divide examples by seconds"""
    return sum(seconds[1:]) / sum(sizes[1:])


def smallest_batch__as_if_k_devices_had_nothing_to_do(per_example, exchange, k):
    """k devices still have to compute"""
    return math.ceil(exchange / per_example)


def smallest_batch__as_fast_is_not_faster(per_example, exchange, k):
    """equally fast is not faster"""
    n = 1
    while per_example * math.ceil(n / k) + exchange > per_example * n:
        n += 1
    return n


def smallest_batch__parts_of_examples(per_example, exchange, k):
    """a minibatch has whole examples"""
    return exchange / (per_example * (1 - 1 / k))


def smallest_batch__parts_of_examples_on_a_device(per_example, exchange, k):
    """rounded up: math.ceil(n / k)"""
    return math.floor(exchange / (per_example * (1 - 1 / k))) + 1


def examples_per_second__drops_the_first(seconds, sizes):
    """work on a copy"""
    seconds.pop(0)
    sizes.pop(0)
    return sum(sizes) / sum(seconds)
