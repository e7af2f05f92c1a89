"""Networks of wires: drawn, read, known ones, and broken ones."""

import itertools

import numpy as np
import pytest
from conftest import long

from d2lmgpu.collectives import Transfer, simulate
from d2lmgpu.collectives.network import full_switch
from d2lmgpu.collectives.topology import NO_LINK
from d2lmgpu.collectives.wirings.wires import (
    dragonfly,
    fat_tree,
    hypercube,
    nvlink_mesh,
    nvlink_ring,
    read_wires,
    rewired,
    torus,
    wired,
)


def pairs_of(k):
    return np.array([(a, b) for a, b in itertools.product(range(k), repeat=2) if a != b]).T


def ways(network):
    """By (source, destination) the nodes on the way, as texts; checked to be a way over links that there are."""
    found, (sources, destinations) = {}, pairs_of(network.k)
    for a, b, way in zip(sources, destinations, network.route(sources, destinations), strict=True):
        links = [network.links[i].split(" to ") for i in way if i != NO_LINK]
        nodes = [str(a), *(to for _, to in links)]
        assert nodes[-1] == str(b) and [start for start, _ in links] == nodes[:-1]
        found[int(a), int(b)] = nodes
    return found


def hops(network):
    """Of each pair the fewest links, over any nodes, by going from each to its neighbours."""
    near = {}
    for link in network.links:
        a, b = link.split(" to ")
        near.setdefault(a, []).append(b)
    found = {}
    for source in range(network.k):
        far, queue = {str(source): 0}, [str(source)]
        for here in queue:
            for there in near.get(here, ()):
                if there not in far:
                    far[there] = far[here] + 1
                    queue.append(there)
        found |= {(source, i): far[str(i)] for i in range(network.k) if i != source}
    return found


NETWORKS = [
    *(torus(*sides) for sides in [(2,), (5,), (2, 2), (2, 3), (4, 4), (3, 1, 4), (2, 2, 3)]),
    *(hypercube(dimensions) for dimensions in (1, 2, 3, 4)),
    *(fat_tree(k, size) for k, size in [(1, 4), (3, 2), (8, 4), (10, 4), (9, 3)]),
    *(dragonfly(*shape) for shape in [(1, 3), (2, 1), (3, 2), (5, 4), (4, 3)]),
    nvlink_mesh(25e9),
    nvlink_ring(7, 1e9),
    read_wires("0>1: 1 GB/s\n1>2: 1 GB/s\n2>0: 1 GB/s"),
]


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_messages_take_shortest_ways_and_pay_each_device(network):
    if network.k == 1:
        return
    fewest = hops(network)
    for (a, b), nodes in ways(network).items():
        assert len(nodes) - 1 == fewest[a, b]
        legs = sum(node.isdigit() for node in nodes[1:])
        latency = network.latency(np.array([a]), np.array([b]))
        assert latency == pytest.approx(legs * network.wired[1]) and network.direct[a, b] == (legs == 1)
    assert not network.direct.diagonal().any()


@pytest.mark.parametrize(
    "sides", [(1,), (2,), (6,), (2, 2), (3, 4), (2, 3, 5), (1, 1, 4), *long(((16, 16),), ((8, 8, 8),))]
)
def test_a_torus_has_two_wires_in_each_direction_from_each_device(sides):
    network = torus(*sides)
    k = int(np.prod(sides))
    wires = sum({1: 0, 2: 1}.get(side, 2) for side in sides)
    assert network.k == k and len(network.links) == k * wires
    if k > 1:
        where = np.array(np.unravel_index(np.arange(k), sides))
        apart = np.abs(where[:, :, None] - where[:, None])
        apart = np.minimum(apart, np.array(sides)[:, None, None] - apart).sum(axis=0)
        sources, destinations = pairs_of(k)
        used = (network.route(sources, destinations) != NO_LINK).sum(axis=1)
        assert (used == apart[sources, destinations]).all()


@pytest.mark.parametrize("k, size", [(8, 4), (12, 4), (9, 3), (10, 4)])
def test_no_bottleneck_in_a_fat_tree(k, size):
    """What a leaf's devices send to those of another goes over different spines, so that no link has two messages."""
    network = fat_tree(k, size, 1e9, 1e-6)
    leaves = -(-k // size)
    assert len(network.links) == 2 * (k + leaves * size)
    for shift in range(size, k - size + 1, size):
        step = [Transfer(i, (i + shift) % k, 0, 1000, "copy") for i in range(k)]
        step = step if k % size == 0 else [t for t in step if t.destination == t.source + shift]
        spines = {(t.source // size, ways(network)[t.source, t.destination][2]) for t in step}
        assert len(spines) == len(step)
        assert simulate([step], network).seconds == pytest.approx(1e-6 + 4e-6)
    assert ways(network)[0, 1] == ["0", "leaf 0", "1"]


@pytest.mark.parametrize("groups, size", [(1, 4), (2, 1), (3, 2), (5, 4), (9, 8)])
def test_in_a_dragonfly_any_two_groups_have_a_wire(groups, size):
    network = dragonfly(groups, size, 50e9, 25e9)
    assert network.k == groups * size
    assert len(network.links) == groups * size * (size - 1) + groups * (groups - 1)
    ends = [tuple(map(int, link.split(" to "))) for link in network.links]
    between = [(a // size, b // size) for a, b in ends if a // size != b // size]
    assert sorted(between) == [(a, b) for a in range(groups) for b in range(groups) if a != b]
    assert all(
        (a // size == b // size) == (width == 50e9) for (a, b), width in zip(ends, network.bandwidth, strict=True)
    )
    leaving = np.bincount([a for a, b in ends if a // size != b // size], minlength=network.k)
    assert np.ptp(leaving) <= 1 + (groups - 1) % size  # they begin at devices in turn


def width(network, link):
    return network.bandwidth[network.links.index(link)]


def test_a_text_with_everything():
    network = read_wires(
        """
        # two devices and a switch
        0-1: 25 GB/s        # a comment
        0 - the switch : 10 Gbit/s
        the switch-1:1MB/s
        1>0: 3 kB/s
        2-1: 5 B/s
        2>0: 0.5 TB/s

        latency: 3 us
        """,
        "mine",
    )
    assert network.name == "mine" and network.k == 3
    assert [width(network, f"{a} to {b}") for a, b in [(0, 1), (1, 0), (2, 1), (1, 2), (2, 0)]] == [
        25e9,
        3e3,
        5,
        5,
        5e11,
    ]
    assert width(network, "0 to the switch") == width(network, "the switch to 0") == 1.25e9
    assert width(network, "the switch to 1") == 1e6 and "0 to 2" not in network.links
    assert ways(network)[0, 2] == ["0", "1", "2"]
    assert network.latency(np.array([0]), np.array([2])) == pytest.approx(6e-6)


@pytest.mark.parametrize("unit, factor", [("", 1), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12)])
def test_units(unit, factor):
    assert read_wires(f"0-1: 8 {unit}B/s").bandwidth.tolist() == [8 * factor] * 2
    assert read_wires(f"0-1: 8{unit}bit/s").bandwidth.tolist() == [factor] * 2
    for said, seconds in [("2 s", 2), ("2ms", 2e-3), ("2 us", 2e-6), ("2 µs", 2e-6), ("2 μs", 2e-6), ("2 ns", 2e-9)]:
        network = read_wires(f"latency: {said}\n0-1: 1 GB/s")
        assert network.latency(np.array([0]), np.array([1])) == pytest.approx(seconds)
    assert read_wires("0-1: 1 GB/s").latency(np.array([0]), np.array([1])) == 2e-6


@pytest.mark.parametrize(
    "line", ["0-1: 25", "0-1: 1.2.3 GB/s", "0-1: -3 GB/s", "-1-0: 1 GB/s", "latency: 1..2 us", "hello", "0-²: 1 GB/s"]
)
def test_lines_that_are_no_wires(line):
    with pytest.raises(
        ValueError, match=r"^wires, line 2: '.*' is no wire; write a line such as '0-1: 25 GB/s', or 'latency: 5 us'$"
    ):
        read_wires(f"0-1: 1 GB/s\n{line} # x\n")


@pytest.mark.parametrize(
    "wires, message",
    [
        ({}, r"their devices are \[\]; they should be all numbers from 0 on, at most 4096"),
        ({(0, 2): 1e9}, r"their devices are \[0, 2\]"),
        ({(0, 1.5): 1e9}, r"their devices are \[0, 1.5\]"),
        ({(0, 1): 1e9, (1, 1): 1e9}, r"each wire should join two devices, or a device and a named switch"),
        ({(0, 1): -1.0}, r"the bandwidth of wire \(0, 1\) is -1.0; it should be a finite number, at least 0"),
        ({(0, 1): "25 GB/s"}, "is '25 GB/s'; it should be a finite number"),
        ({(0, 1): 0}, "no route leads from device 1 to device 0; add wires for one"),
        ({(0, 1): 1e9, (2, "s"): 1e9}, "no route leads from device 2 to device 0"),
        ([(0, 1)], r"wires are \[\(0, 1\)\]; they should be a list of two ends and a bandwidth each, such as \(0, 1, "),
        ([(0, 1, 1e9), (0, 1, 2e9)], "each wire once"),
        (None, "wires are None; they should be a list"),
    ],
)  # fmt: skip
def test_wires_that_are_none(wires, message):
    with pytest.raises(ValueError, match=message):
        wired(wires)


def test_a_list_of_wires():
    """Both ways, unless the other one is given; no latency unless given."""
    network = wired([(0, 1, 2e9), (1, 0, 1e9), (1, "switch", 3e9), ("switch", 2, 4e9)])
    assert dict(zip(network.links, network.bandwidth, strict=True)) == {
        "0 to 1": 2e9, "1 to 0": 1e9, "1 to switch": 3e9, "switch to 1": 3e9, "switch to 2": 4e9, "2 to switch": 4e9
    }  # fmt: skip
    assert not network.latency(np.array([0, 0]), np.array([1, 2])).any()


def test_other_wrong_arguments():
    with pytest.raises(ValueError, match="latency is -1; it should be a finite number, at least 0"):
        wired({(0, 1): 1e9}, latency=-1)
    with pytest.raises(ValueError, match="text is 5; it should be a string"):
        read_wires(5)
    for make, message in [
        (lambda: torus(3, 0), "torus: a side is 0; it should be a whole number, at least 1"),
        (lambda: hypercube(-1), "hypercube: dimensions is -1; it should be a whole number, at least 0"),
        (lambda: fat_tree(0), "fat_tree: k is 0; it should be a whole number, at least 1"),
        (lambda: dragonfly(0, 4), "dragonfly: groups is 0"),
        (lambda: dragonfly(100, 100), "dragonfly: devices is 10000; it should be a whole number, at most 4,096"),
    ]:
        with pytest.raises(ValueError, match=message):
            make()


def test_a_wire_breaks_or_is_slow():
    whole = nvlink_mesh(25e9, 2e-6)
    broken = rewired(whole, {(0, 4): 0, (3, 2): 12.5e9})
    assert broken.name == "NVLink mesh, 8 devices, 0-4 broken, 3-2 at 12.5 GB/s"
    assert {*whole.links} - {*broken.links} == {"0 to 4", "4 to 0"} and {*broken.links} < {*whole.links}
    assert width(broken, "2 to 3") == width(broken, "3 to 2") == 12.5e9 and width(whole, "2 to 3") == 50e9
    same = [link for link in broken.links if link not in ("2 to 3", "3 to 2")]
    assert all(width(broken, link) == width(whole, link) for link in same)
    assert ways(broken)[0, 4] == ["0", "1", "5", "4"]  # there are no shorter ones: 0 and 4 have no neighbour in common
    assert broken.latency(np.array([0]), np.array([4])) == pytest.approx(6e-6)
    again = rewired(broken, {(0, 4): 50e9, (2, 3): 50e9})
    assert again.links == whole.links and (again.bandwidth == whole.bandwidth).all()


def test_changes_of_wires_that_are_none():
    with pytest.raises(
        ValueError,
        match=r"network switch, 3 devices has no wires to change; .* such as torus\(4, 4\)",
    ):
        rewired(full_switch(3, 1e9), {(0, 1): 0})
    with pytest.raises(ValueError, match=r"wire \(0, 5\) cannot be broken: NVLink mesh, 8 devices has no such wire"):
        rewired(nvlink_mesh(), {(0, 5): 0})
    with pytest.raises(ValueError, match="no route leads from device 1 to device 0"):
        rewired(torus(3), {(0, 1): 0, (0, 2): 0})
    with pytest.raises(ValueError, match=r"the bandwidth of wire \(0, 1\) is 'slow'"):
        rewired(torus(3), {(0, 1): "slow"})
    with pytest.raises(ValueError, match="changes is 5; it should be a dict of bandwidths"):
        rewired(torus(3), 5)
