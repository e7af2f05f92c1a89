"""Networks of wires: list the wires yourself, read them from a string, or use a known network.

    wired            wires as you list them: from device to device, or to a switch
    read_wires       the same from a string, one wire per line: "0-1: 25 GB/s"
    rewired          a network with some of its wires broken, slower or faster

    nvlink_ring      each device is wired to its two neighbours
    nvlink_mesh      the hybrid cube mesh of a server with 8 V100s, the DGX-1
    torus            a grid of any number of dimensions whose edges are joined, as in a TPU pod
    hypercube        2^d devices; wires between those whose numbers differ in one bit

A message takes a route with the fewest wires. Each device on the route receives the message before passing it on, which
costs the latency again. A wire carries its bandwidth in both directions at the same time.
"""

import re

import numpy as np

from ...base.arguments import MAX_DEVICES, check_number, check_text, check_whole, plain, shown
from ..topology import NO_LINK, Topology

MESH_WIRES = [(0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 2), (2, 6, 1)]
MESH_WIRES += [(3, 7, 1), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 2)]
"""Pairs of devices in a DGX-1 with V100s, and the number of NVLinks between them (six on each device)."""

_EXAMPLE = "0-1: 25 GB/s"
LINE = re.compile(r"\s*([\w ]*\w)\s*([->])\s*([\w ]*\w)\s*:\s*([0-9.]{1,20})\s*([kMGT]?)(B|bit)/s\s*")
LATENCY = re.compile(r"\s*latency\s*:\s*([0-9.]{1,20})\s*([nuµμm]?)s\s*")
_UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9}


def wired(wires, latency=0.0, name=None):
    """A network of ``wires``, a dict of bytes/s by pairs of ends; ``latency``: seconds from device to device.

    An end is a device (a number from 0) or a switch (a string). A wire carries its bytes/s in both directions, unless
    the other direction is given separately; a wire of 0 bytes/s does not exist.

    Raises ValueError for other ends, a wire from an end to itself, bandwidths below 0, and devices that cannot be
    reached.
    """
    wires = _by_pairs("wires", wires)
    ends = {end for pair in wires for end in pair}
    numbers = {end for end in ends if not isinstance(end, str)}
    k = len(numbers)
    if numbers != {*range(k)} or not 1 <= k <= MAX_DEVICES or any(a == b for a, b in wires):
        raise ValueError(
            f"wires: their devices are {shown(sorted(numbers, key=str))}; they should be all numbers from 0 on, "
            f"at most {MAX_DEVICES} devices, and each wire should join two devices, or a device and a named switch"
        )
    both = {(b, a): bandwidth for (a, b), bandwidth in wires.items()} | wires
    nodes = [*range(k), *sorted(ends - numbers)]
    pairs = sorted((nodes.index(a), nodes.index(b)) for (a, b), bandwidth in both.items() if bandwidth)
    latency = check_number("latency", latency, least=0)
    ways, legs = _ways(pairs, k, len(nodes))
    links = [f"{nodes[a]} to {nodes[b]}" for a, b in pairs]
    bandwidths = [both[nodes[a], nodes[b]] for a, b in pairs]
    more = {"latency": _by(legs * float(latency)), "direct": legs == 1, "wired": (both, latency)}
    return Topology(name or f"{k} devices", k, links, bandwidths, _by(ways), **more)


def _by(table):
    return lambda sources, destinations: table[sources, destinations]


def _ways(pairs, k, count):
    """A shortest route from each device to each: its links, (k, k, hops), and how many devices it reaches, (k, k).

    The first k of ``count`` nodes are devices. Where several routes lead on through switches, messages to different
    devices take different ones; where they lead through devices, all messages take the first.
    """
    number = {pair: i for i, pair in enumerate(pairs)}
    out, into = ([[] for _ in range(count)] for _ in range(2))
    for a, b in pairs:
        out[a].append(b)
        into[b].append(a)
    found, legs = {}, np.zeros((k, k), int)
    for destination in range(k):
        far = {destination: 0}
        queue = [destination]
        for here in queue:
            for before in into[here]:
                if before not in far:
                    far[before] = far[here] + 1
                    queue.append(before)
        lost = [source for source in range(k) if source not in far]
        if lost:
            raise ValueError(f"wires: no route leads from device {lost[0]} to device {destination}; add wires for one")
        for source in range(k):
            here, way = source, []
            while here != destination:
                nearer = [there for there in out[here] if far[there] < far[here]]
                there = nearer[destination % len(nearer) if nearer[0] >= k else 0]
                way.append(number[here, there])
                legs[source, destination] += there < k
                here = there
            found[source, destination] = way
    table = np.full((k, k, max(map(len, found.values())) or 1), NO_LINK)
    for (source, destination), way in found.items():
        table[source, destination, : len(way)] = way
    return table, legs


def read_wires(text, name=None):
    """The `wired` network of a string, one wire per line: "0-1: 25 GB/s", or in one direction "0>1: 10 Gbit/s".

    An end that is not a number is a switch. Units are B/s or bit/s, with k, M, G or T (powers of 1000). A line
    "latency: 5 us" gives the time per message. Text after a # is a comment.

    Raises ValueError for anything else, quoting the line, and whenever `wired` does.
    """
    check_text("text", text)
    wires, latency = {}, 2e-6
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#")[0]
        found, waits = LINE.fullmatch(line), LATENCY.fullmatch(line)
        try:
            if waits:
                latency = float(waits[1]) * _UNITS[waits[2]]
            elif found:
                a, b = (int(end) if end.isdigit() else end for end in (found[1], found[3]))
                bandwidth = float(found[4]) * _UNITS[found[5]] / (8 if found[6] == "bit" else 1)
                wires |= dict.fromkeys([(a, b), (b, a)][: 1 if found[2] == ">" else 2], bandwidth)
            elif line.strip():
                raise ValueError
        except ValueError:
            what = f"{name or 'wires'}, line {number}: {shown(line.strip())} is no wire"
            raise ValueError(f"{what}; write a line such as {_EXAMPLE!r}, or 'latency: 5 us'") from None
    one_way = {(b, a): 0.0 for a, b in wires if (b, a) not in wires}
    return wired(wires | one_way, latency, name)


def rewired(network, changes):
    """A wired network with ``changes``, a dict of bandwidths by pairs of ends, for both directions; 0 breaks the wire.

    Raises ValueError for a network that is not `wired`, for breaking a wire that does not exist, and whenever `wired`
    does.
    """
    if network.wired is None:
        raise ValueError(f"network {network.name} has no wires to change; give a wired network, such as torus(4, 4)")
    wires, latency = network.wired
    changes = _by_pairs("changes", changes)
    for pair, bandwidth in changes.items():
        if pair not in wires and not bandwidth:
            raise ValueError(f"wire {shown(pair)} cannot be broken: {network.name} has no such wire")
    both = {(b, a): bandwidth for (a, b), bandwidth in changes.items()} | changes
    said = ", ".join(f"{a}-{b} {f'at {to / 1e9:g} GB/s' if to else 'broken'}" for (a, b), to in changes.items())
    return wired(wires | both, latency, f"{network.name}, {said}")


def _by_pairs(name, wires):
    """``wires`` as a dict of plain numbers. Raises ValueError unless it is a dict of bandwidths by pairs of ends."""
    if not isinstance(wires, dict) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in wires):
        raise ValueError(
            f"{name} is {shown(wires)}; it should be a dict of bandwidths by pairs, such as {{(0, 1): 25e9}}"
        )
    for pair, bandwidth in wires.items():
        check_number(f"the bandwidth of wire {shown(pair)}", bandwidth, least=0)
    return {tuple(plain(pair)): plain(bandwidth) for pair, bandwidth in wires.items()}


def nvlink_ring(k, bandwidth, latency=0.0):
    """Wires of ``bandwidth`` bytes/s in either direction between neighbours; messages take the shorter way round."""
    return torus(k, bandwidth=bandwidth, latency=latency, name=f"NVLink ring, {k} devices")


def nvlink_mesh(bandwidth=25e9, latency=0.0):
    """Eight devices wired as in a DGX-1; ``bandwidth`` is that of one NVLink, in one direction."""
    return wired({(a, b): count * plain(bandwidth) for a, b, count in MESH_WIRES}, latency, "NVLink mesh, 8 devices")


def torus(*sides, bandwidth=50e9, latency=2e-6, name=None):
    """A grid whose edges are joined, with ``sides`` devices in each dimension, numbered along the last one first."""
    sides = [check_whole("torus: a side", side, most=MAX_DEVICES) for side in sides]
    at = np.arange(np.prod(sides, dtype=int)).reshape(sides)
    turned = [np.roll(at, -1, axis) for axis in range(at.ndim)]
    wires = {(int(a), int(b)): bandwidth for each in turned for a, b in zip(at.flat, each.flat, strict=True) if a != b}
    name = name or f"torus {' × '.join(map(str, sides))}"
    return wired(wires, latency, name) if wires else Topology(name, 1, [], [], _by(np.full((1, 1, 1), NO_LINK)))


def hypercube(dimensions, bandwidth=50e9, latency=2e-6):
    """A hypercube of 2 to the power of ``dimensions`` devices."""
    dimensions = check_whole("hypercube: dimensions", dimensions, least=0, most=MAX_DEVICES.bit_length() - 1)
    return torus(*[2] * dimensions, bandwidth=bandwidth, latency=latency, name=f"hypercube of {2**dimensions}")
