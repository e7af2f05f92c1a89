"""Scaling on a cluster: training on all its devices, as measured, and as predicted there and on more machines.

    1   one device of rank 0 trains on whole minibatches, while all others rest
    2   every device trains on its part of a minibatch, and exchanges nothing; on smaller parts, too, as more have them
    3   all train together

Each of ``repeats`` rounds has 1, 2 and 3. From 1, 2 and messages (cluster/messages.py) a step is predicted as
`predict_scaling` does it: of the devices that there are, to be compared with 3, and of more processes like these.
"""

import math
from dataclasses import asdict, dataclass
from datetime import date

import numpy as np

from ..arguments import check_list, check_whole
from ..cluster import gather, measure_wires, network_of
from ..measuring import take_rounds
from ..networks import init_params
from .predict import Compute, check_predictable, predict_scaling
from .setup import batch_sizes, check_steps, machine, subject, versions
from .turns import Contender

MORE = (1, 2, 4, 8)
"""Times as many processes as there are, for which a step is predicted."""


@dataclass
class ClusterScaling:
    """``measured``: seconds of a step, the median, the least and the most of the rounds; ``predicted``: `Prediction`s.

    The first of these is of the cluster itself, the others are of more processes. ``compute`` and ``wires`` are what
    they were made from. ``processes_per_host`` and ``devices_per_process``: those that there are.
    """

    mode: str
    network: str
    parameters: int
    batch_size: int
    allreduce: str
    steps: int
    rounds: int
    devices: list
    processes_per_host: int
    devices_per_process: int
    machine: str
    versions: dict
    date: str
    measured: list
    predicted: list
    compute: dict
    wires: dict
    settings: dict

    as_dict = asdict


def measure_cluster_scaling(
    cluster,
    more=MORE,
    mode="strong",
    batch_size=256,
    network="lenet",
    width=1,
    algorithm="ring",
    steps=20,
    repeats=5,
    data=None,
    settings=None,
):
    """Time training on a `Cluster` of several processes, predict it, and predict ``more`` times as many processes.

    Arguments are those of `measure_scaling`. All processes call it, and get the same `ClusterScaling`. Raises
    ValueError for settings that make no sense, a single process, or processes with different numbers of devices.
    """
    d, per_host = _shape(cluster)
    times = sorted({1, *check_list("more", more, of="whole numbers, such as 2,4,8")})
    for number in times:
        check_whole("times as many processes", number)
    data, name, network, how = subject(data, network, width, settings, cluster.mine)
    check_predictable(algorithm)
    k = len(cluster)
    batches = batch_sizes(mode, [number * k for number in times], batch_size)
    steps = check_steps(steps, repeats, {k: batches[k]}, len(data[0]))
    sizes = sorted({math.ceil(batch / count) for count, batch in batches.items()})
    contenders = {"together": Contender([cluster], network, batches[k], steps, data, algorithm, how)}
    for n in sizes:
        alone = Contender([[device] for device in cluster.mine], network, n, steps, data, how=how)
        contenders[n] = _in_turn(cluster, alone)
    one = Contender([cluster.mine[:1]], network, batch_size, steps, data, how=how) if cluster.rank == 0 else None
    contenders["one"] = _in_turn(cluster, one)
    seconds = {
        what: gather(cluster, [[turn.seconds / steps if turn else 0.0 for turn in mine]] * d)
        for what, mine in take_rounds(contenders, repeats).items()
    }
    own = {batch_size: float(np.median(seconds["one"][0]))} | {n: float(np.median(seconds[n])) for n in sizes}
    compute = Compute(sorted(own), [own[size] for size in sorted(own)], busy=k)
    wires = measure_wires(cluster)
    elements = sum(param.size for param in init_params(network=network))
    predicted = predict_scaling(
        compute, list(batches), batch_size, elements, network_of(wires, d, per_host), mode, algorithm
    )
    measured = seconds["together"].max(axis=0).tolist()
    return ClusterScaling(
        mode=mode,
        network=name,
        parameters=elements,
        batch_size=batch_size,
        allreduce=algorithm,
        steps=steps,
        rounds=repeats,
        devices=cluster.names,
        processes_per_host=per_host,
        devices_per_process=d,
        machine=machine(cluster.mine),
        versions=versions(cluster.mine),
        date=date.today().isoformat(),
        measured=[float(np.median(measured)), min(measured), max(measured)],
        predicted=predicted,
        compute=compute.as_dict(),
        wires=wires.as_dict(),
        settings=how,
    )


def _shape(cluster):
    """Devices of a process, and processes of a host. Raises ValueError unless each has as many as the others."""
    if cluster.size < 2:
        raise ValueError("scaling on a cluster is of several processes: start them with mpiexec or srun")
    devices = {cluster.owners.count(rank) for rank in range(cluster.size)}
    if len(devices) > 1:
        raise ValueError("processes have different numbers of devices; to predict more of them, give each as many")
    processes = {cluster.hosts.count(host) for host in cluster.hosts}
    if len(processes) > 1:
        raise ValueError("hosts have different numbers of processes; to predict more of them, start as many on each")
    return devices.pop(), processes.pop()


def _in_turn(cluster, contender):
    """Called in all processes, it waits for all, and trains in those that have a contender."""

    def turn():
        gather(cluster, [[0.0]] * len(cluster.mine))
        return contender() if contender else None

    return turn
