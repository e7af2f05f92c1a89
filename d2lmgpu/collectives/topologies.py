"""Networks by name, with the numbers of machines that there are: `network` has their makers, for others.

    full_switch    each device's wires carry 150 GB/s each way, as of a server's NVSwitch
    pcie_bus       all share 16 GB/s, as of PCIe 3.0 through one CPU
    nvlink_ring    50 GB/s each way to both neighbours: two NVLinks
    nvlink_mesh    a DGX-1: up to 8 devices, NVLinks of 25 GB/s
    machines       servers of 8 with such a switch, and 12.5 GB/s (100 Gbit/s) between them
    ethernet       the same servers with 1.25 GB/s (10 Gbit/s) between them

A message takes 2 µs within a server, 5 over a bus, 10 between servers, 50 by Ethernet.
"""

from ..arguments import check_name
from .network import full_switch, machines, nvlink_mesh, nvlink_ring, pcie_bus

TOPOLOGIES = {
    "full_switch": lambda k: full_switch(k, 150e9, 2e-6),
    "pcie_bus": lambda k: pcie_bus(k, 16e9, 5e-6),
    "nvlink_ring": lambda k: nvlink_ring(k, 50e9, 2e-6),
    "nvlink_mesh": lambda k: nvlink_mesh(25e9, 2e-6),
    "machines": lambda k: machines(k, 8, 150e9, 12.5e9, 2e-6, 10e-6),
    "ethernet": lambda k: machines(k, 8, 150e9, 1.25e9, 2e-6, 50e-6),
}
"""Functions of k that make a `network.Network` for so many devices, or more."""


def topology(name, k):
    """The network of that name for k devices. Raises ValueError if there is none."""
    check_name("network", name, TOPOLOGIES)
    network = TOPOLOGIES[name](k)
    if network.k < k:
        raise ValueError(f"network {name} has {network.k} devices, not {k}")
    return network
