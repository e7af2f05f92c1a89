"""Solutions of notebook 8's exercises."""

import numpy as np

import d2lmgpu as d2l


def evaluate(device_params, X, y, devices, batch_size):
    """Right answers are counted, and divided once. (Here one device waits for the other: d2l.evaluate does better.)"""
    correct = 0
    for start in range(0, len(X), batch_size):
        part = slice(start, start + batch_size)
        for X_shard, y_shard, params in zip(*d2l.split_batch(X[part], y[part], devices), device_params, strict=True):
            if len(y_shard):
                scores = d2l.to_host(d2l.lenet(X_shard, params))
                correct += (scores.argmax(axis=1) == d2l.to_host(y_shard)).sum()
    return correct / len(X)


def combine_statistics(counts, means, variances):
    """Mean squares can be averaged, variances cannot."""
    mean = np.average(means, weights=counts)
    mean_square = np.average(np.array(variances) + np.array(means) ** 2, weights=counts)
    return mean, mean_square - mean**2


def split_by_loads(n, loads):
    """Shares rounded down; those that lost most by it get one of the rest each."""
    shares = n * np.array(loads) / sum(loads)
    sizes = np.floor(shares).astype(int)
    neediest = np.argsort(sizes - shares)
    sizes[neediest[: n - sizes.sum()]] += 1
    return sizes.tolist()
