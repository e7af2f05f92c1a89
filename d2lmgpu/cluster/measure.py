"""How fast is an allreduce across processes? As collectives/measure.py, but all processes get the same times."""

import functools

from ..collectives import allreduce, check_measured, measure
from .gather import gather


def measure_across(cluster, algorithms, sizes):
    """Time allreduces over all devices of a `Cluster`: like `measure_allreduce`, with its errors.

    All processes call this and get the same measurements. A time is the mean over all devices.
    """
    algorithms, sizes = check_measured(algorithms, sizes)
    k, mean = len(cluster), functools.partial(_mean, cluster)
    across = [(algorithm, cluster.across(algorithm)) for algorithm in algorithms]

    def timed(nbytes, algorithm, ours):
        def sum_up(data, _):
            allreduce(data, ours)

        schedule = ours.schedules(k, nbytes // 4) if ours.schedules else None
        return measure(sum_up, cluster.mine, algorithm, nbytes, schedule, first=cluster.first, k=k, mean=mean)

    return (timed(nbytes, *pair) for nbytes in sizes for pair in across)


def _mean(cluster, numbers):
    """The mean of each of these numbers over all devices (a process's numbers count for each of its devices).

    Every process waits here for all others.
    """
    return gather(cluster, [numbers] * len(cluster.mine)).mean(axis=0).tolist()
