"""Networks on which to time a schedule; topology.py defines what a network is.

    wired and others     wires from device to device, yours or known ones (wirings/wires.py)
    full_switch          every device has one wire in and one out of a switch
    pcie_bus             all devices share one bus
    machines             servers of several devices, joined by Ethernet or InfiniBand
    shared_cores         virtual devices: threads on the cores of one computer

All these functions raise ValueError unless there is a device, and bandwidths are above 0. `TOPOLOGIES` has networks by
name, with the figures of existing machines:

    full_switch    each device's wires carry 150 GB/s each way, as with a server's NVSwitch
    pcie_bus       all devices share 16 GB/s, as with PCIe 3.0 through one CPU
    nvlink_ring    50 GB/s each way to both neighbours, as with two NVLinks
    nvlink_mesh    a DGX-1: up to 8 devices, NVLinks of 25 GB/s
    torus          a grid as nearly square as k allows, with wires of 50 GB/s
    hypercube      2, 4, 8, … devices, with wires of 50 GB/s
    machines       servers of 8 with a switch as in full_switch, and 12.5 GB/s (100 Gbit/s) between them
    ethernet       the same servers with 1.25 GB/s (10 Gbit/s) between them

The latency of a message is 2 µs within a server, 5 µs over a bus, 10 µs between servers and 50 µs over Ethernet.
"""

import math

import numpy as np

from ..base.arguments import plain_numbers
from .topology import NO_LINK as NO_LINK, Topology as Topology, check_topology as check_topology
from .wirings.wires import (
    hypercube as hypercube,
    nvlink_mesh as nvlink_mesh,
    nvlink_ring as nvlink_ring,
    read_wires as read_wires,
    rewired as rewired,
    torus as torus,
    wired as wired,
)


def full_switch(k, bandwidth, latency=0.0):
    """Every device has one wire in and one out, each of ``bandwidth`` bytes/s, to a switch that never blocks."""
    links = [f"out of {i}" for i in range(k)] + [f"into {i}" for i in range(k)]

    def route(sources, destinations):
        return np.stack([sources, k + destinations], axis=1)

    return Topology(f"switch, {k} devices", k, links, bandwidth, route, latency)


def pcie_bus(k, bandwidth, latency=0.0):
    """All devices share one bus of ``bandwidth`` bytes/s."""

    def route(sources, destinations):
        return np.zeros((len(sources), 1), int)

    return Topology(f"bus, {k} devices", k, ["bus"], bandwidth, route, latency)


@plain_numbers
def shared_cores(k, cores, bandwidth, occupancy=0.0, reduce_seconds_per_byte=0.0, startup=0.0):
    """Virtual devices on one computer: a message is a copy, made by one core at ``bandwidth`` bytes/s.

    At most ``cores`` copies run at the same time, however many devices there are. Messages are issued one after the
    other; each takes the interpreter ``occupancy`` seconds.
    """
    name, together, bus = f"{cores} cores, {k} virtual devices", min(k, cores), pcie_bus(k, bandwidth)
    reduce = reduce_seconds_per_byte / together
    return Topology(name, k, bus.links, bandwidth * together, bus.route, 0.0, occupancy, reduce, startup)


@plain_numbers
def machines(k, size=8, inside=150e9, between=12.5e9, latency_inside=2e-6, latency_between=10e-6):
    """Servers of ``size`` devices, each server with a switch and one network card.

    ``inside`` is the bandwidth of each device's wires, ``between`` that of each server's card, in bytes/s in each
    direction (12.5e9: InfiniBand or Ethernet of 100 Gbit/s).
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

    return Topology(f"machines of {size}, {k} devices", k, names, bandwidths, route, latency)


TOPOLOGIES = {
    "full_switch": lambda k: full_switch(k, 150e9, 2e-6),
    "pcie_bus": lambda k: pcie_bus(k, 16e9, 5e-6),
    "nvlink_ring": lambda k: nvlink_ring(k, 50e9, 2e-6),
    "nvlink_mesh": lambda k: nvlink_mesh(25e9, 2e-6),
    "machines": machines,
    "torus": lambda k: torus(*_sides(k)),
    "hypercube": lambda k: hypercube((int(k) - 1).bit_length()),
    "ethernet": lambda k: machines(k, between=1.25e9, latency_between=50e-6),
}
"""Functions of k that make a `Topology` of at least k devices."""


def _sides(k):
    """The sides of the grid of k devices that is closest to a square."""
    side = next(side for side in range(math.isqrt(k), 0, -1) if k % side == 0)
    return side, k // side


def topology(name, k):
    """The network of this name with at least k devices. Raises ValueError if it cannot have that many."""
    network = TOPOLOGIES[name](k)
    if network.k < k:
        raise ValueError(f"network {name} has {network.k} devices, not {k}")
    return network
