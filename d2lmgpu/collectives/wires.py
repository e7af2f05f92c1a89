"""Networks of wires from device to device, over which messages take a way of the fewest wires.

nvlink_ring          each device is wired to its two neighbours
nvlink_mesh          the hybrid cube mesh of a server with 8 V100
"""

import numpy as np

from .links import NO_LINK, Network


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
