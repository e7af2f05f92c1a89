"""Solutions of notebook 4's exercises."""

import d2lmgpu as d2l


def split_batch(X, y, devices):
    """The first devices get one example more, as many as are left over."""
    n, k = len(X), len(devices)
    X_shards, y_shards, start = [], [], 0
    for i, device in enumerate(devices):
        stop = start + n // k + (i < n % k)
        X_shards.append(d2l.put(X[start:stop], device))
        y_shards.append(d2l.put(y[start:stop], device))
        start = stop
    return X_shards, y_shards


def allreduce(data):
    """The textbook's: device 0 adds up, and gives the sum back."""
    for array in data[1:]:
        data[0][:] += d2l.put(array, data[0].device)
    for array in data[1:]:
        array[:] = d2l.put(data[0], array.device)
