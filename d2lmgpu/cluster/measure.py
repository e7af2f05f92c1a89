"""How fast is an allreduce across processes? As collectives/measure.py, with times that all processes agree upon."""

import functools

import numpy as np

from ..collectives import ALGORITHMS, Measurement, allreduce
from ..collectives.measure import row_of, value_of
from ..devices import nothing_left_behind, put, synchronize, to_host
from ..measuring import repeats_in, seconds_of, take_rounds


def measure_across(cluster, algorithms, sizes, budget=0.3):
    """Time allreduces over all devices of a `Cluster`: a `Measurement` for each size in bytes and each algorithm.

    All processes call it, and get the same. A time is the mean over the processes' devices, each repeat begins when
    all are there, and there are as many of them as ``budget`` seconds hold: from 5 to 1000. The algorithms take turns,
    so that whatever else the machines do meets all of them.

    Raises ValueError for unknown algorithms, RuntimeError for a wrong sum.
    """
    across = [(algorithm, cluster.across(algorithm)) for algorithm in algorithms]
    for nbytes in sizes:
        with nothing_left_behind(cluster.mine):
            correct = [_check(cluster, *each, nbytes) for each in across]
            data = [put(np.zeros(nbytes // 4, np.float32), device) for device in cluster.mine]  # the sums of which stay
            contenders = {i: functools.partial(_time, cluster, ours, data) for i, (_, ours) in enumerate(across)}
            repeats = {i: repeats_in(budget, *_mean(cluster, [once()])) for i, once in contenders.items()}
            seconds = take_rounds(contenders, repeats).values()
            for (algorithm, _), sums, times in zip(across, correct, seconds, strict=True):
                yield _row(cluster, algorithm, nbytes, _mean(cluster, times), sums)


def _check(cluster, algorithm, across, nbytes):
    """Warm up; whether the sums are right, None for "none"."""
    k, n = len(cluster), nbytes // 4
    data = [put(value_of(cluster.first + i, n), device) for i, device in enumerate(cluster.mine)]
    _time(cluster, across, data)
    if algorithm == "none":
        return None
    total = np.sum([value_of(i, n) for i in range(k)], axis=0)
    wrong = sum(not np.array_equal(to_host(array), total) for array in data)
    if _mean(cluster, [wrong])[0]:
        raise RuntimeError(f"allreduce {algorithm!r} of {nbytes} bytes on {k} devices gave a wrong sum")
    return True


def _row(cluster, algorithm, nbytes, seconds, correct) -> Measurement:
    k, steps, sent = len(cluster), None, None
    if callable(algorithm) or algorithm in ALGORITHMS:
        schedule = cluster.schedules(algorithm)(k, nbytes // 4)
        steps = len(schedule)
        sent = [sum(4 * t.size for step in schedule for t in step if t.source == i) for i in range(k)]
    return row_of(algorithm, k, nbytes, seconds, sent, steps, correct)


def _time(cluster, across, data):
    """Seconds of one allreduce, after all processes have come to it."""
    _mean(cluster, [0])
    return seconds_of(lambda: allreduce(data, across), lambda: synchronize(cluster.mine))


def _mean(cluster, numbers):
    """The means over all devices of numbers that each process has, as a list; every process waits for all others."""
    data = [put(np.array(numbers, float), device) for device in cluster.mine]
    allreduce(data, cluster.across("recursive_doubling"))
    return (to_host(data[0]) / len(cluster)).tolist()
