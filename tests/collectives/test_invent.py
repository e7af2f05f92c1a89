"""Invented schedules: proved, executed, beside those that are known and what no schedule can beat."""

import os
import subprocess
import sys

import numpy as np
import pytest
from at_random import at_random, nightly
from hypothesis import strategies as st
from wirings import wirings

import d2lmgpu as d2l
from d2lmgpu.collectives import execute, invent, invented, order_along, prove, ring_along
from d2lmgpu.collectives.bounds import cuts_of
from d2lmgpu.collectives.network import full_switch, machines, nvlink_mesh, nvlink_ring, pcie_bus
from d2lmgpu.collectives.wirings.wires import hypercube, read_wires, rewired, torus, wired

INVENT = sys.modules["d2lmgpu.collectives.wirings.invent"]  # the module, whose name the function hides
BROKEN = rewired(nvlink_mesh(25e9, 2e-6), {(0, 4): 0, (3, 2): 12.5e9})
STAR = wired({(i, "switch"): 25e9 / (1 + i % 2) for i in range(5)})
ONE_WAY = read_wires("0>1: 1 GB/s\n1>2: 1 GB/s\n2>3: 1 GB/s\n3>0: 1 GB/s")
UNLIKE = read_wires("0>1: 9 GB/s\n1>0: 1 GB/s\n1-2: 9 GB/s\n2>0: 1 GB/s\n0>2: 9 GB/s\n2-3: 9 GB/s")


def check_allreduce(schedule, k, n):
    """Run it on whole numbers, and compare with the sum."""
    before = np.random.default_rng(0).integers(-1000, 1001, (k, n)).astype(float)
    arrays = [d2l.put(values, d2l.cpu(i)) for i, values in enumerate(before)]
    execute(schedule, arrays)
    for array in arrays:
        assert (d2l.to_host(array) == before.sum(axis=0)).all()


@pytest.fixture
def little(monkeypatch):
    """Only a small part of the searching, which is quick."""
    monkeypatch.setattr(INVENT, "_MESSAGES", 500)


@st.composite
def searches(draw):
    """A network, and a short and a long array's number of elements."""
    network = draw(wirings(most=8))
    k = network.k
    short = draw(st.one_of(st.sampled_from([1, k - 1, k, k + 1]), st.integers(20, 500).map(lambda half: 2 * half + 1)))
    return network, short, draw(st.sampled_from([129_068, 25_000_001]))


@at_random(2, searches(), nights=200)
def test_random_wirings(drawn):
    """With a fortieth of the searching; where that finds nothing as good as the rings, with all."""
    network, short, long = drawn
    k = network.k
    for n in (short, long):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(INVENT, "_MESSAGES", 5_000)
            found = invent(network, n)
        prove(found, k, n)
        if n == short:
            check_allreduce(found, k, n)
        laid = min(found.considered["ring along"], found.considered["both rings along"]) * (1 + 1e-9)
        if n >= 100 * k and found.considered["invented"] > laid:  # of fewer elements the largest chunk counts
            assert invent(network, n).considered["invented"] <= laid
        assert found.bound <= found.seconds * (1 + 1e-9) and found.seconds == min(found.considered.values())


@pytest.mark.parametrize("network", [ONE_WAY, *nightly(UNLIKE)])
def test_a_reduction_goes_with_the_wires_not_against_them(network):
    """Where they are not alike both ways it is no all-gather of the same network backwards, but of its mirror."""
    found = invent(network, 1_000_000)
    assert found.considered["invented"] <= min(found.considered.values()) * (1 + 1e-9)
    assert found.considered["invented"] < 1.2 * found.bound
    schedule = invent(network, 1001)
    check_allreduce(schedule, 4, 1001)
    if network is ONE_WAY:
        assert {f"{t.source} to {t.destination}" for step in schedule for t in step} <= {*network.links}


@pytest.mark.parametrize("network, n", [(torus(1), 100), (torus(2), 0), (STAR, 0), (torus(2, 2, 3), 1)])
def test_few_elements_or_devices(little, network, n):
    found = invent(network, n)
    check_allreduce(found, network.k, n)
    assert repr(found).startswith(f"<{found.name}: {len(found)} ")


def test_what_is_invented_is_right_also_where_it_is_not_the_best(little, monkeypatch):
    """The fastest is proved; here the known ones are away."""
    monkeypatch.setattr(INVENT, "known_on", lambda network: {})
    for network in (full_switch(4, 16e9, 1e-6), pcie_bus(3, 16e9), machines(6, 3), STAR, BROKEN):
        for n in (1, 7, 1000):
            found = invent(network, n)
            assert found.name == "invented"
            check_allreduce(found, network.k, n)


def test_invented_is_an_allreduce_like_those_with_a_name(little, rng):
    values = rng.integers(-9, 10, (8, 50)).astype(np.float32)
    data = [d2l.put(value, d2l.cpu(i)) for i, value in enumerate(values)]
    d2l.allreduce(data, invented(BROKEN))
    assert all((d2l.to_host(array) == values.sum(axis=0)).all() for array in data)
    with pytest.raises(ValueError, match="the number of devices on .* is 4; .* at least 8"):
        invented(BROKEN)(4, 50)


SCHEDULES = """
import sys
from d2lmgpu.collectives import invent
from d2lmgpu.collectives.network import machines, wired
sys.modules["d2lmgpu.collectives.wirings.invent"]._MESSAGES = 500
uneven = wired({("a", 0): 1e9, (1, "b"): 2e9, ("b", "a"): 1e9, (2, "a"): 3e9, (3, "b"): 1e9})
networks = machines(6, 3), uneven
found = [invent(network, 997) for network in networks]
said = repr([(each.name, each.seconds, list(each)) for each in found])
"""


def test_the_same_arguments_give_the_same_schedule(little):
    """In this process, and in one whose texts hash to other numbers."""
    here = {}
    exec(SCHEDULES, here)
    environment = os.environ | {"PYTHONHASHSEED": str(1 + (os.environ.get("PYTHONHASHSEED") == "1"))}
    there = subprocess.check_output([sys.executable, "-c", SCHEDULES + "print(said)"], text=True, env=environment)
    assert there.strip() == here["said"]


def narrowest(order, network):
    """Bandwidth of the narrowest wire on the circle; 0 where two neighbours have none."""
    cuts = cuts_of(network)
    ends = zip(cuts.sources.tolist(), cuts.destinations.tolist(), strict=True)
    wide = dict(zip(ends, cuts.slowest.tolist(), strict=True))
    return min(wide.get((a, b), 0) for a, b in zip(order, order[1:] + order[:1], strict=True))


FULL = {(a, b): 50e9 for a in range(8) for b in range(a)}


@pytest.mark.parametrize(
    "network, least",
    [
        *((torus(*sides), 50e9) for sides in [(4, 4), (2, 3, 4)]),
        (hypercube(5), 50e9),
        (nvlink_mesh(25e9), 50e9),  # of two NVLinks each
        (nvlink_ring(9, 1e9), 1e9),
        (full_switch(5, 1e9), 1e9),
        *((rewired(wired(FULL), {slow: 1e9}), 50e9) for slow in [(0, 1), (1, 3), (7, 0)]),
        *nightly((torus(7, 9), 50e9), (torus(16, 16), 50e9), (hypercube(8), 50e9)),
    ],
)
def test_a_circle_is_found_along_the_widest_wires(network, least):
    order = order_along(network)
    assert sorted(order) == [*range(network.k)] and order[0] == 0
    assert narrowest(order, network) == least


def test_where_there_is_no_circle_each_device_is_there_once(little):
    for k in (2, 3, 9):
        star, path = wired({(0, i): 1e9 for i in range(1, k)}), wired({(i, i + 1): 1e9 for i in range(k - 1)})
        for network in (star, path):
            order = order_along(network)
            assert sorted(order) == [*range(k)]
            invent(network, 2 * k + 1)
        assert sum(abs(a - b) == 1 for a, b in zip(order, order[1:], strict=False)) >= k // 2
    assert order_along(torus(1)) == [0]


def test_a_schedule_along_a_network_is_for_its_devices():
    with pytest.raises(ValueError, match="the ring along torus 2 × 2 is for 4 devices, not 5"):
        ring_along(torus(2, 2))(5, 10)
    pairs = {t[:2] for step in ring_along(torus(2, 2))(4, 8) for t in step}
    assert pairs in ({(0, 1), (1, 3), (3, 2), (2, 0)}, {(1, 0), (3, 1), (2, 3), (0, 2)})
