"""Wrong answers to the exercises of notebook 8. A docstring is a part of what the check should say."""

import numpy as np

import d2lmgpu as d2l


def _shards(device_params, X, y, devices, batch_size):
    """For each minibatch the list of its shards, in which each answer is right or not."""
    for start in range(0, len(X), batch_size):
        part = slice(start, start + batch_size)
        found = []
        for X_shard, y_shard, params in zip(*d2l.split_batch(X[part], y[part], devices), device_params, strict=True):
            scores = d2l.to_host(d2l.lenet(X_shard, params))
            found.append(scores.argmax(axis=1) == d2l.to_host(y_shard))
        yield found


def evaluate__mean_of_means(*args):
    """a mean of shards' accuracies"""
    return np.mean([np.mean([right.mean() for right in shards]) for shards in _shards(*args)])


def evaluate__mean_of_minibatches(*args):
    """a mean of minibatches' accuracies"""
    return np.mean([np.concatenate(shards).mean() for shards in _shards(*args)])


def evaluate__drops_the_last(device_params, X, y, devices, batch_size):
    """the last minibatch is missing"""
    n = len(X) - len(X) % batch_size
    right = [right for shards in _shards(device_params, X[:n], y[:n], devices, batch_size) for right in shards]
    return np.concatenate(right).mean()


def evaluate__only_device_0(*args):
    """only device 0 counts"""
    return np.concatenate([shards[0] for shards in _shards(*args)]).mean()


def evaluate__counts(*args):
    """divide by the number of all images"""
    return sum(right.sum() for shards in _shards(*args) for right in shards)


def evaluate__the_last_minibatch(*args):
    """add up over all minibatches before you divide"""
    return [np.concatenate(shards).mean() for shards in _shards(*args)][-1]


def evaluate__all_on_device_0(device_params, X, y, devices, batch_size):
    """right, but images went to 1 of the devices"""
    scores = d2l.to_host(d2l.lenet(d2l.put(X, devices[0]), device_params[0]))
    return (scores.argmax(axis=1) == y).mean()


def evaluate__divides_by_an_empty_shard(*args):
    """a shard may be empty, and 0/0 is NaN"""
    accuracies = [sum(right.tolist()) / len(right) for shards in _shards(*args) for right in shards]
    sizes = [len(right) for shards in _shards(*args) for right in shards]
    return np.average(accuracies, weights=sizes)


def split_by_loads__parts_of_examples(n, loads):
    """an example cannot be divided"""
    return [n * load / sum(loads) for load in loads]


def split_by_loads__rounded_down(n, loads):
    """give these to devices, too"""
    return [int(n * load / sum(loads)) for load in loads]


def split_by_loads__rounded_one_by_one(n, loads):
    """shares rounded one by one may not add up to n"""
    return [round(n * load / sum(loads)) for load in loads]


def split_by_loads__not_divided_by_their_sum(n, loads):
    """loads are in any unit"""
    return [int(n * load) for load in loads]


def split_by_loads__the_last_gets_the_rest(n, loads):
    """round down, then give the remaining examples to different devices, one each"""
    sizes = [int(n * load / sum(loads)) for load in loads]
    busy = max(i for i, load in enumerate(loads) if load)
    sizes[busy] += n - sum(sizes)
    return sizes


def split_by_loads__work_for_the_idle(n, loads):
    """a device with load 0 has work"""
    sizes = [int(n * load / sum(loads)) for load in loads]
    for _ in range(n - sum(sizes)):
        sizes[sizes.index(min(sizes))] += 1
    return sizes


def split_by_loads__one_number(n, loads):
    """return a list of sizes, one per device"""
    return n // len(loads)


def combine_statistics__mean_of_means(counts, means, variances):
    """weight each mean by the shard's count"""
    mean = np.mean(means)
    return mean, np.mean(variances) + np.mean((np.array(means) - mean) ** 2)


def combine_statistics__weighted_mean_of_variances(counts, means, variances):
    """the variance leaves out the differences between the means"""
    return np.average(means, weights=counts), np.average(variances, weights=counts)


def combine_statistics__the_mean_square(counts, means, variances):
    """subtract the square of the mean"""
    squares = np.array(variances) + np.array(means) ** 2
    return np.average(means, weights=counts), np.average(squares, weights=counts)


def combine_statistics__the_mean_only(counts, means, variances):
    """return two numbers: mean, variance"""
    return np.average(means, weights=counts)
