"""Networks to time a schedule on: links, and the route that a message takes over them.

A link carries ``bandwidth`` bytes per second, shared by all messages of a step
that go over it, in one direction. Each message also pays the latency of its
route once (α), and occupies each link for the link's ``occupancy``, however
short it is. A device that receives a message to be added spends
``reduce_seconds_per_byte`` (γ) on it.

    full_switch          every device has one wire in and one out of a switch
    pcie_bus             all devices share one bus
    nvlink_ring          each device is wired to its two neighbours
    nvlink_mesh          the hybrid cube mesh of a server with 8 V100
    machines             servers of several devices, joined by Ethernet or InfiniBand
    shared_cores         virtual devices: threads on the cores of one computer

All raise ValueError for bandwidths that are not above 0. `TOPOLOGIES` are networks by name, with the numbers of
machines that there are:

    full_switch    each device's wires carry 150 GB/s each way, as of a server's NVSwitch
    pcie_bus       all share 16 GB/s, as of PCIe 3.0 through one CPU
    nvlink_ring    50 GB/s each way to both neighbours: two NVLinks
    nvlink_mesh    a DGX-1: up to 8 devices, NVLinks of 25 GB/s
    machines       servers of 8 with such a switch, and 12.5 GB/s (100 Gbit/s) between them
    ethernet       the same servers with 1.25 GB/s (10 Gbit/s) between them

A message takes 2 µs within a server, 5 over a bus, 10 between servers, 50 by Ethernet.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..arguments import shown

NO_LINK = -1
"""Fills up routes that are shorter than the longest."""


@dataclass
class Network:
    """A network of ``k`` devices.

    ``bandwidth`` (bytes/s) and ``occupancy`` (s a message) are arrays with an
    entry for each link, whose names are ``links``; a number is of all of them.
    ``route(sources, destinations)`` takes arrays of m device numbers and gives the
    links on each way: an array (m, hops) of link numbers and `NO_LINK`.
    ``latency(sources, destinations)`` gives α for each, in seconds; a number is of
    all ways. ``startup`` is the time before the first step.
    """

    name: str
    k: int
    links: list
    bandwidth: np.ndarray
    route: Callable
    latency: Callable = 0.0
    occupancy: np.ndarray = 0.0
    reduce_seconds_per_byte: float = 0.0
    startup: float = 0.0

    def __post_init__(self):
        for name in ("bandwidth", "occupancy"):
            setattr(self, name, np.full(len(self.links), getattr(self, name), float))
        if not callable(self.latency):
            seconds = float(self.latency)
            self.latency = lambda sources, destinations: np.full(len(sources), seconds)
        if not (self.bandwidth > 0).all():
            raise ValueError(f"{self.name}: bandwidths are {self.bandwidth.min()} and more; they should be above 0")


def check_network(network):
    """Raise ValueError unless it is a `Network`."""
    if not isinstance(network, Network):
        raise ValueError(f"network is {shown(network)}; give one of collectives.network, such as full_switch(4, 16e9)")


def full_switch(k, bandwidth, latency=0.0):
    """Every device has one wire in and one out, each of ``bandwidth`` bytes/s, to a switch that never blocks."""
    links = [f"out of {i}" for i in range(k)] + [f"into {i}" for i in range(k)]

    def route(sources, destinations):
        return np.stack([sources, k + destinations], axis=1)

    return Network(f"switch, {k} devices", k, links, bandwidth, route, latency)


def pcie_bus(k, bandwidth, latency=0.0):
    """One bus of ``bandwidth`` bytes/s in all, which every message crosses."""

    def route(sources, destinations):
        return np.zeros((len(sources), 1), int)

    return Network(f"bus, {k} devices", k, ["bus"], bandwidth, route, latency)


def shared_cores(k, cores, bandwidth, occupancy=0.0, latency=0.0, reduce_seconds_per_byte=0.0):
    """Virtual devices on one computer: a message is a copy, which one core does at ``bandwidth`` bytes/s.

    At most ``cores`` copies run at the same time, whatever the number of
    devices; issuing a message takes the interpreter for ``occupancy`` seconds,
    one message after the other.
    """
    name, together, bus = f"{cores} cores, {k} virtual devices", min(k, cores), pcie_bus(k, bandwidth)
    reduce = reduce_seconds_per_byte / together
    return Network(name, k, bus.links, bandwidth * together, bus.route, latency, occupancy, reduce)


def nvlink_ring(k, bandwidth, latency=0.0):
    """Wires of ``bandwidth`` bytes/s in either direction between neighbours; messages take the shorter way round."""
    wires = {(i, (i + step) % k): bandwidth for i in range(k) for step in (1, -1)}
    return _wired(f"NVLink ring, {k} devices", k, wires, latency)


MESH_WIRES = [(0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2), (2, 6, 1)]
MESH_WIRES += [(3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2)]
"""Pairs of devices of a DGX-1 with V100, and the number of NVLinks between them (six on each device)."""


def nvlink_mesh(bandwidth=25e9, latency=0.0):
    """Eight devices wired as in a DGX-1; ``bandwidth`` is of one NVLink, in one direction."""
    wires = {pair: count * bandwidth for a, b, count in MESH_WIRES for pair in ((a, b), (b, a))}
    return _wired("NVLink mesh, 8 devices", 8, wires, latency)


def machines(k, size=8, inside=150e9, between=12.5e9, latency_inside=2e-6, latency_between=10e-6):
    """Servers of ``size`` devices with a switch inside and one network card each.

    ``inside`` is the bandwidth of each device's wires, ``between`` that of each
    server's card, per direction (12.5e9: InfiniBand or Ethernet of 100 Gbit/s).
    """
    count = -(-k // size)
    names = [f"out of {i}" for i in range(k)] + [f"into {i}" for i in range(k)]
    names += [f"card out of machine {m}" for m in range(count)] + [f"card into machine {m}" for m in range(count)]
    bandwidths = [inside] * 2 * k + [between] * 2 * count

    def route(sources, destinations):
        near = sources // size == destinations // size
        out_card = np.where(near, NO_LINK, 2 * k + sources // size)
        in_card = np.where(near, NO_LINK, 2 * k + count + destinations // size)
        return np.stack([sources, out_card, in_card, k + destinations], axis=1)

    def latency(sources, destinations):
        return np.where(sources // size == destinations // size, latency_inside, latency_between)

    return Network(f"machines of {size}, {k} devices", k, names, bandwidths, route, latency)


TOPOLOGIES = {
    "full_switch": lambda k: full_switch(k, 150e9, 2e-6),
    "pcie_bus": lambda k: pcie_bus(k, 16e9, 5e-6),
    "nvlink_ring": lambda k: nvlink_ring(k, 50e9, 2e-6),
    "nvlink_mesh": lambda k: nvlink_mesh(25e9, 2e-6),
    "machines": lambda k: machines(k, 8, 150e9, 12.5e9, 2e-6, 10e-6),
    "ethernet": lambda k: machines(k, 8, 150e9, 1.25e9, 2e-6, 50e-6),
}
"""Functions of k that make a `Network` for so many devices, or more."""


def topology(name, k):
    """The network of that name for k devices. Raises ValueError if it has fewer."""
    network = TOPOLOGIES[name](k)
    if network.k < k:
        raise ValueError(f"network {name} has {network.k} devices, not {k}")
    return network


def _wired(name, k, wires, latency):
    """A network of direct ``wires``, bandwidths by (source, destination); a message takes a way of the fewest wires."""
    pairs = sorted(wires)
    number = {pair: i for i, pair in enumerate(pairs)}
    neighbours = {i: [b for a, b in pairs if a == i] for i in range(k)}
    ways = {}
    for source in range(k):  # breadth first: the first way found to a device is a shortest
        ways[source, source] = []
        queue = [source]
        for here in queue:
            for there in neighbours[here]:
                if (source, there) not in ways:
                    ways[source, there] = [*ways[source, here], number[here, there]]
                    queue.append(there)
    hops = max(map(len, ways.values())) or 1
    table = np.full((k, k, hops), NO_LINK)
    for (source, destination), way in ways.items():
        table[source, destination, : len(way)] = way
    links, bandwidths = [f"{a} to {b}" for a, b in pairs], [wires[pair] for pair in pairs]
    return Network(name, k, links, bandwidths, lambda s, d: table[s, d], latency)
