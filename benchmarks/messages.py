"""What a message costs between two devices of a cluster: of one process, of two processes on a host, or on two hosts.

Only messages are measured, not collectives, since the costs are used to predict collectives. In each round, two devices
send each other, at the same time, the n bytes that they received in the round before. So no round begins early:

    device i ◄──► device j      startup + rounds·(α + β·n) seconds (Hockney 1994)

The three constants (startup, α, β) are fitted to the times of one round and of several, for several sizes n. The time
to add a byte is measured separately.
"""

import functools
import itertools
import statistics
from dataclasses import asdict, dataclass

import numpy as np

from d2lmgpu.base.measuring import least_squares, repeated, seconds_of
from d2lmgpu.cluster import Across, gather
from d2lmgpu.collectives import Transfer, allreduce, execute
from d2lmgpu.collectives.network import NO_LINK, Topology
from d2lmgpu.devices import isolated_errors, put, synchronize

SIZES = (2**12, 2**16, 2**18, 2**20, 2**22)
"""Bytes of the messages that are timed."""

ROUNDS, REPEATS = 4, 5
"""The number of rounds in the longer measurements of messages, and how often each measurement is repeated."""

LEVELS = ("process", "host", "hosts")
"""Where two devices are: in one process, in two processes on the same host, or on two hosts."""

REWEIGHTED, SMALL_ERROR = 50, 1e-3
"""How often a fit is reweighted, and the relative error below which all errors get the same weight."""


@dataclass
class Wires:
    """The costs of messages on a cluster, by level: dicts with an item for each of the `LEVELS` that the cluster has.

    ``latency``: α, the seconds for a message. ``seconds_per_byte``: β. Two costs are the same for all levels:
    ``startup``, the seconds until an exchange begins, and ``add_seconds_per_byte``, the seconds to add one byte.
    """

    startup: float
    latency: dict
    seconds_per_byte: dict
    add_seconds_per_byte: float

    as_dict = asdict

    def level(self, name):
        """The level of that name; if it was not measured, the next wider one, or the widest that was."""
        wider = LEVELS[LEVELS.index(name) :]
        return next((level for level in wider if level in self.latency), list(self.latency)[-1])


def measure_wires(cluster, sizes=SIZES):
    """The `Wires` of a `Cluster` of at least two devices, from messages of these ``sizes`` in bytes.

    All processes call this and get the same result.
    """
    startups, latency, per_byte = [], {}, {}
    with isolated_errors(cluster.mine):
        for level, (i, j) in _pairs(cluster).items():
            tries = [(nbytes, rounds) for nbytes in sizes for rounds in (1, ROUNDS)]
            # Arrays of nbytes / 2 elements of 4 bytes: each message is one half of an array.
            seconds = [time_messages(cluster, i, j, nbytes // 2, rounds) for nbytes, rounds in tries]
            # The robust fit almost ignores a few outliers, as on a network that does not limit the first bytes' rate.
            terms = [(1.0, rounds, rounds * nbytes) for nbytes, rounds in tries]
            startup, latency[level], per_byte[level] = robust_fit(terms, seconds).tolist()
            startups.append(startup)
        a, b = np.ones((2, 2**20), np.float32)
        adding = statistics.median(repeated(lambda: seconds_of(lambda: np.add(a, b, out=a)), REPEATS))
    return Wires(statistics.median(startups), latency, per_byte, _mean(cluster, adding / a.nbytes))


def network_of(wires, devices=1, processes=1):
    """Return a function of k that makes a `Topology` of k devices: ``processes`` on a host, ``devices`` in a process.

    Messages cost what ``wires`` says. In this model, each process has one thread for all its messages, and each host
    one network card.
    """

    def network(k):
        process = np.arange(k) // devices
        host = process // processes
        levels = [wires.level(name) for name in LEVELS]
        links, bandwidth = [], []
        ways = np.full((2, len(LEVELS), k), NO_LINK)  # out of each device and into it, by level: its link
        for level, group, kinds in (
            (0, process, ["within process"]),
            (1, process, ["out of process", "into process"]),
            (2, host, ["out of host", "into host"]),
        ):
            for way, kind in enumerate(kinds):
                ways[way, level] = len(links) + group
                links += [f"{kind} {i}" for i in range(group[-1] + 1)]
                bandwidth += [1 / max(wires.seconds_per_byte[levels[level]], 1e-30)] * (group[-1] + 1)
        alphas = np.array([wires.latency[level] for level in levels])

        def far(sources, destinations):
            return (process[sources] != process[destinations]) + 0 + (host[sources] != host[destinations])

        def route(sources, destinations):
            level = far(sources, destinations)
            return np.stack([ways[0, level, sources], ways[1, level, destinations]], axis=1)

        def latency(sources, destinations):
            return alphas[far(sources, destinations)]

        name = f"hosts of {processes} processes of {devices} devices, {k} devices"
        add, occupancy = wires.add_seconds_per_byte, np.zeros(len(links))
        return Topology(name, k, links, bandwidth, route, latency, occupancy, add, wires.startup)

    return network


def both_ways(k, n, i, j, rounds):
    """A schedule for k devices: in each round, i and j send each other the n / 2 elements that they received last."""
    halves = [(0, n // 2), (n // 2, 2 * (n // 2))]
    return [
        [Transfer(i, j, *halves[number % 2], "copy"), Transfer(j, i, *halves[1 - number % 2], "copy")]
        for number in range(rounds)
    ]


def _pairs(cluster):
    """For each of `LEVELS` that the cluster has, the first two devices at that distance."""
    pairs = {}
    for (i, a), (j, b) in itertools.combinations(enumerate(cluster.places), 2):
        level = LEVELS[(a.rank != b.rank) + (a.rank != b.rank and a.host != b.host)]
        pairs.setdefault(level, (i, j))
    return {level: pairs[level] for level in LEVELS if level in pairs}


def time_messages(cluster, i, j, n, rounds):
    """The median seconds of ``rounds`` rounds between devices i and j, as the process of device i measures them."""
    schedules = functools.partial(both_ways, i=i, j=j, rounds=rounds)
    k, across = len(cluster), Across(cluster, "messages", schedules) if cluster.size > 1 else None
    data = [put(np.ones(n, np.float32), device) for device in cluster.mine]

    def once():
        _mean(cluster, 0)  # all processes begin at the same time
        exchange = functools.partial(allreduce, data, across) if across else lambda: execute(schedules(k, n), data)
        return seconds_of(exchange, lambda: synchronize(cluster.mine))

    seconds = repeated(once, REPEATS)
    return float(np.median(gather(cluster, [seconds] * len(cluster.mine))[i]))


def robust_fit(terms, seconds):
    """The non-negative constants that explain measured times, ``terms @ constants``, with the least relative errors.

    It minimises the sum of these errors, not of their squares, so that a few odd measurements matter little.

    Source: iteratively reweighted least squares, for least absolute deviations (Schlossmacher 1973).
    """
    terms = np.asarray(terms, float) / np.asarray(seconds, float)[:, None]
    weights = np.ones(len(terms))
    for _ in range(REWEIGHTED):
        constants = least_squares(terms * weights[:, None], weights)
        weights = 1 / np.sqrt(np.maximum(np.abs(terms @ constants - 1), SMALL_ERROR))
    return constants


def _mean(cluster, number):
    """The mean over all devices (a process's number counts for each of its devices). All processes wait here."""
    return float(gather(cluster, [[number]] * len(cluster.mine)).mean())
