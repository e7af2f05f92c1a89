"""Scaling on a cluster: measure training on all its devices, and predict it for these and for more machines.

    1   one device of rank 0 trains on whole minibatches, while all others are idle
    2   every device trains on its part of a minibatch, and on its part in larger clusters, without exchanging anything
    3   all train together

Each of the ``repeats`` rounds consists of 1, 2 and 3. From 1, 2 and the times of messages (cluster/measure.py),
`predict_scaling` predicts a step for the existing devices, to be compared with 3, and for more processes of the same
kind.
"""

import math

import numpy as np

from ..arguments import check_whole
from ..cluster import gather, measure_wires, network_of
from ..measuring import take_rounds
from .predict import Compute, check_predictable, predict_scaling
from .setup import batch_sizes, begin, check_steps
from .turns import Contender

MORE = (1, 2, 4, 8)
"""Multiples of the number of processes for which a step is predicted."""


def measure_cluster_scaling(cluster, more=MORE, steps=20, algorithm="ring", **what):
    """Time training on a `Cluster` of several processes; predict it for these and for more processes.

    ``more``: multiples of the number of processes. The other arguments are as in `measure_scaling`. All processes call
    this and get the same `Scaling`. Raises ValueError for settings that make no sense, a single process, or processes
    with different numbers of devices.
    """
    d, per_host = _shape(cluster)
    more = [check_whole("times as many processes", number) for number in more]
    check_predictable(algorithm)
    scaling, data, network = begin(cluster.mine, algorithm, **what)
    k, mode, batch_size, repeats = len(cluster), scaling.mode, scaling.batch_size, scaling.rounds
    batches = batch_sizes(mode, [number * k for number in sorted({1, *more})], batch_size)
    how, scaling.devices = scaling.settings, cluster.names
    scaling.devices_per_process, scaling.processes_per_host = d, per_host
    scaling.steps = steps = check_steps(steps, repeats, {k: batches[k]}, len(data[0]))
    sizes = sorted({math.ceil(batch / count) for count, batch in batches.items()})
    contenders = {"together": Contender([cluster], network, batches[k], steps, data, algorithm, how)}
    for n in sizes:
        alone = Contender([[device] for device in cluster.mine], network, n, steps, data, how=how)
        contenders[n] = _in_turn(cluster, alone)
    one = Contender([cluster.mine[:1]], network, batch_size, steps, data, how=how) if cluster.rank == 0 else None
    contenders["one"] = _in_turn(cluster, one)
    seconds = {}
    for name, mine in take_rounds(contenders, repeats).items():
        seconds[name] = gather(cluster, [[turn.seconds / steps if turn else 0.0 for turn in mine]] * d)
    own = {batch_size: float(np.median(seconds["one"][0]))} | {n: float(np.median(seconds[n])) for n in sizes}
    compute = Compute(sorted(own), [own[size] for size in sorted(own)], busy=k)
    wires = measure_wires(cluster)
    measured = seconds["together"].max(axis=0).tolist()
    scaling.measured = [float(np.median(measured)), min(measured), max(measured)]
    network = network_of(wires, d, per_host)
    step = batch_size, scaling.parameters, network, mode, algorithm
    scaling.predicted = predict_scaling(compute, list(batches), *step)
    scaling.compute, scaling.wires = compute.as_dict(), wires.as_dict()
    return scaling


def _shape(cluster):
    """Devices per process, and processes per host. Raises ValueError unless these are the same everywhere."""
    if cluster.size < 2:
        raise ValueError("scaling on a cluster needs several processes: start them with mpiexec or srun")
    devices = {cluster.owners.count(rank) for rank in range(cluster.size)}
    if len(devices) > 1:
        raise ValueError("processes have different numbers of devices; to predict more of them, give each as many")
    processes = {cluster.hosts.count(host) for host in cluster.hosts}
    if len(processes) > 1:
        raise ValueError("hosts have different numbers of processes; to predict more of them, start as many on each")
    return devices.pop(), processes.pop()


def _in_turn(cluster, contender):
    """Wait for all processes, then train in those that have a contender; all processes call this."""

    def turn():
        gather(cluster, [[0.0]] * len(cluster.mine))
        return contender() if contender else None

    return turn
