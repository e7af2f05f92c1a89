"""One reader of schedules: how long would it take on a network that you describe?

The schedule itself is replayed, transfer by transfer, so that whatever can be
written as a schedule can be timed. Steps follow each other; within a step

    time of a transfer = α + the fullest link on its way:  Σ bytes over it / bandwidth
    time of a step     = the slowest transfer, and then γ · the bytes that the busiest device adds

which is the model with which the closed forms of the literature are derived
(Hockney 1994; Thakur, Rabenseifner and Gropp 2005), plus contention: messages
of one step share the links that they have in common.
"""

from dataclasses import dataclass

import numpy as np

from .network import NO_LINK, check_network


@dataclass
class Simulation:
    """``seconds`` in all, with the network's startup, ``step_seconds`` of each step, ``link_bytes`` over each link."""

    seconds: float
    step_seconds: np.ndarray
    link_bytes: np.ndarray


def simulate(schedule, network, itemsize=4):
    """Time a schedule on a network; elements have ``itemsize`` bytes. Returns a `Simulation`.

    ``schedule`` may be any iterable of steps. Raises ValueError if it names a
    device that the network does not have.
    """
    check_network(network)
    times = []
    total = np.zeros(len(network.links))
    for step in schedule:
        seconds, load = _step(step, network, itemsize)
        times.append(seconds)
        total += load
    return Simulation(network.startup + float(np.sum(times)), np.array(times), total)


def _step(step, network, itemsize):
    """Seconds of one step, and the bytes that it puts on each link."""
    rows = [(t.source, t.destination, t.stop - t.start, t.op == "add") for t in step if t.stop > t.start]
    links = len(network.links)
    if not rows:
        return 0.0, np.zeros(links)
    sources, destinations, sizes, adds = zip(*rows, strict=True)
    if max(*sources, *destinations) >= network.k or min(*sources, *destinations) < 0:
        raise ValueError(f"simulate: the schedule has more devices than the {network.k} of {network.name}")
    # indices of the type that the machine has, however long the messages are
    sources, destinations = np.array(sources, np.intp), np.array(destinations, np.intp)
    sizes = np.array(sizes, float) * itemsize
    ways = network.route(sources, destinations)
    used = ways != NO_LINK
    load = np.bincount(ways[used], np.broadcast_to(sizes[:, None], ways.shape)[used], links)
    messages = np.bincount(ways[used], minlength=links)
    busy = load / network.bandwidth + messages * network.occupancy
    slowest = np.where(used, busy[ways], 0.0).max(axis=1)
    added = np.bincount(destinations, sizes * adds, network.k)
    seconds = (network.latency(sources, destinations) + slowest).max() + network.reduce_seconds_per_byte * added.max()
    return seconds, load
