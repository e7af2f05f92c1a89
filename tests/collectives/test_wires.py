"""Networks of wires: drawn, read, known ones, and broken ones."""

import itertools

import numpy as np
import pytest
from at_random import at_random
from hypothesis import strategies as st
from wirings import wirings

from d2lmgpu.collectives import Transfer, simulate
from d2lmgpu.collectives.topology import NO_LINK
from d2lmgpu.collectives.wirings.wires import (
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
    """Of each pair of devices the fewest links, over any nodes."""
    ends = [link.split(" to ") for link in network.links]
    nodes = [*map(str, range(network.k)), *sorted({end for pair in ends for end in pair if not end.isdigit()})]
    far = np.full((len(nodes), len(nodes)), np.inf)
    for a, b in ends:
        far[nodes.index(a), nodes.index(b)] = 1
    for between in range(len(nodes)):
        np.minimum(far, far[:, between, None] + far[between], out=far)
    return far


def tori():
    return st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


TREE = {(i, f"leaf {i // 3}"): 1e9 for i in range(9)}
TREE |= {(f"leaf {i}", f"spine {j}"): 1e9 for i in range(3) for j in range(3)}
TREE = wired(TREE, 1e-6)
"""Leaf switches of three devices each, and as many wires from them to spine switches."""

ANY = st.one_of(
    tori().map(lambda sides: torus(*sides)),
    st.integers(1, 4).map(hypercube),
    st.just(TREE),
    st.integers(1, 8).map(lambda k: nvlink_ring(k, 1e9, 1e-6)),
    st.just(nvlink_mesh(25e9)),
    st.just(read_wires("0>1: 1 GB/s\n1>2: 1 GB/s\n2>0: 1 GB/s")),
    wirings(least=2, most=10),
)


@at_random(60, ANY)
def test_messages_take_shortest_ways_and_pay_each_device(network):
    assert not network.direct.diagonal().any()
    if network.k == 1:
        return
    fewest = hops(network)
    for (a, b), nodes in ways(network).items():
        assert len(nodes) - 1 == fewest[a, b]
        legs = sum(node.isdigit() for node in nodes[1:])
        latency = network.latency(np.array([a]), np.array([b]))
        assert latency == pytest.approx(legs * network.wired[1]) and network.direct[a, b] == (legs == 1)


@at_random(25, tori())
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


@pytest.mark.parametrize("shift", [3, 6])
def test_no_bottleneck_in_a_tree_of_switches(shift):
    """What a leaf's devices send to those of another goes over different spines, so that no link has two messages."""
    step = [Transfer(i, (i + shift) % 9, 0, 1000, "copy") for i in range(9)]
    assert len({(t.source // 3, ways(TREE)[t.source, t.destination][2]) for t in step}) == 9
    assert simulate([step], TREE).seconds == pytest.approx(1e-6 + 4e-6)
    assert ways(TREE)[0, 1] == ["0", "leaf 0", "1"]


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
    found = [width(network, f"{a} to {b}") for a, b in [(0, 1), (1, 0), (2, 1), (1, 2), (2, 0)]]
    assert found == [25e9, 3e3, 5, 5, 5e11]
    assert width(network, "0 to the switch") == width(network, "the switch to 0") == 1.25e9
    assert width(network, "the switch to 1") == 1e6 and "0 to 2" not in network.links
    assert ways(network)[0, 2] == ["0", "1", "2"]
    assert network.latency(np.array([0]), np.array([2])) == pytest.approx(6e-6)
    for said, seconds in [("2 s", 2), ("2ms", 2e-3), ("2 µs", 2e-6), ("2 μs", 2e-6), ("2 ns", 2e-9), ("0.1 us", 1e-7)]:
        network = read_wires(f"latency: {said}\n0-1: 1 GB/s")
        assert network.latency(np.array([0]), np.array([1])) == pytest.approx(seconds)
    assert read_wires("0-1: 1 GB/s").latency(np.array([0]), np.array([1])) == 2e-6
    for line in "0-1: 25", "0-1: 1.2.3 GB/s", "0-1: -3 GB/s", "-1-0: 1 GB/s", "latency: 1..2 us", "0-²: 1 GB/s":
        with pytest.raises(ValueError, match=r"wires, line 2: '.*' is no wire; .* '0-1: 25 GB/s', or 'latency: 5 us'"):
            read_wires(f"0-1: 1 GB/s\n{line} # x\n")


def test_one_direction_given_separately():
    """No latency unless given."""
    network = wired({(0, 1): 2e9, (1, 0): 1e9, (1, "switch"): 3e9, ("switch", 2): 4e9})
    assert dict(zip(network.links, network.bandwidth, strict=True)) == {
        "0 to 1": 2e9, "1 to 0": 1e9, "1 to switch": 3e9, "switch to 1": 3e9, "switch to 2": 4e9, "2 to switch": 4e9
    }  # fmt: skip
    assert not network.latency(np.array([0, 0]), np.array([1, 2])).any()


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
