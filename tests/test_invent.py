"""Invented schedules: proved, executed, beside those that are known."""

import functools
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from conftest import long
from wirings import random_wiring

import d2lmgpu as d2l
from d2lmgpu.collectives import execute, invent, invented, order_along, prove, ring_along
from d2lmgpu.collectives.bounds import cuts_of
from d2lmgpu.collectives.network import full_switch, machines, nvlink_mesh, nvlink_ring, pcie_bus
from d2lmgpu.collectives.wirings.wires import fat_tree, hypercube, read_wires, rewired, torus, wired

BROKEN = rewired(nvlink_mesh(25e9, 2e-6), {(0, 4): 0, (3, 2): 12.5e9})
STAR = wired({(i, "switch"): 25e9 / (1 + i % 2) for i in range(5)})


def executed(schedule, k, n):
    """What k virtual devices held before, (k, n) whole numbers in float64, and hold after it, (k, n)."""
    before = np.random.default_rng(0).integers(-1000, 1001, (k, n)).astype(float)
    arrays = [d2l.put(values, d2l.cpu(i)) for i, values in enumerate(before)]
    execute(schedule, arrays)
    return before, np.array([d2l.to_host(array) for array in arrays]).reshape(k, n)


def check_allreduce(schedule, k, n):
    """Run it, and compare with the sum."""
    before, after = executed(schedule, k, n)
    assert (after == before.sum(axis=0)).all()


@pytest.mark.parametrize("seed", [*range(8), *long(*range(8, 500))])
def test_random_wirings(seed, monkeypatch):
    """With a twentieth of the searching, which is quick; where that finds nothing as good as the rings, with all."""
    invent = sys.modules["d2lmgpu.collectives.wirings.invent"]
    little = functools.partial(monkeypatch.setattr, invent, "MESSAGES", 10_000)
    rng = random.Random(seed)
    network = random_wiring(rng)
    k = network.k
    short, long = rng.choice([k - 1, k, k + 1, 2 * rng.randint(20, 500) + 1]), rng.choice([129_068, 25_000_001])
    for n in (short, long):
        little()
        found = invent(network, n)
        prove(found, k, n)
        if n == short:
            check_allreduce(found, k, n)
        laid = min(found.considered["ring along"], found.considered["both rings along"]) * (1 + 1e-9)
        if n >= 100 * k and found.considered["invented"] > laid:  # of fewer elements the largest chunk counts
            monkeypatch.undo()
            assert invent(network, n).considered["invented"] <= laid
        assert found.bound <= found.seconds * (1 + 1e-9) and found.seconds == min(found.considered.values())


ONE_WAY = read_wires("0>1: 1 GB/s\n1>2: 1 GB/s\n2>3: 1 GB/s\n3>0: 1 GB/s")
UNLIKE = read_wires("0>1: 9 GB/s\n1>0: 1 GB/s\n1-2: 9 GB/s\n2>0: 1 GB/s\n0>2: 9 GB/s\n2-3: 9 GB/s")


def test_a_reduction_goes_with_the_wires_not_against_them():
    """Where they are not alike both ways it is no all-gather of the same network backwards, but of its mirror."""
    for network in (ONE_WAY, UNLIKE):
        found = invent(network, 1_000_000)
        assert found.considered["invented"] <= min(found.considered.values()) * (1 + 1e-9)
        assert found.considered["invented"] < 1.2 * found.bound
        check_allreduce(invent(network, 1001), 4, 1001)
    wires = {*ONE_WAY.links}
    for step in invent(ONE_WAY, 1000):
        assert all(f"{t.source} to {t.destination}" in wires for t in step)


def test_the_mirror_of_a_network():
    for network in (BROKEN, STAR, torus(3, 3), full_switch(4, 1e9), machines(6, 3), fat_tree(8, 4)):
        assert cuts_of(network).mirror is cuts_of(network)  # alike both ways: one search does for both
    cuts = cuts_of(ONE_WAY)
    assert {*zip(cuts.mirror.destinations, cuts.mirror.sources, strict=True)} == {
        *zip(cuts.sources, cuts.destinations, strict=True)
    }
    np.testing.assert_array_equal(cuts.mirror.mirror.ways, cuts.ways)


@pytest.mark.parametrize(
    "network", [torus(1), torus(2), nvlink_ring(3, 25e9, 1e-6), STAR, torus(2, 2, 3), pcie_bus(3, 16e9)]
)
def test_short_arrays(network):
    """Fewer elements than devices, and none; also what is invented where the known ones are away."""
    k = network.k
    for n in (0, 1, max(0, k - 1), 1000):
        found = invent(network, n)
        check_allreduce(found, k, n)
        assert found.bound <= found.seconds * (1 + 1e-9) and repr(found).startswith(f"<{found.name}: {len(found)} ")


def test_what_is_invented_is_right_also_where_it_is_not_the_best(monkeypatch):
    """The fastest is proved; here the known ones are away."""
    monkeypatch.setattr(sys.modules["d2lmgpu.collectives.wirings.invent"], "known_on", lambda network: {})
    for network in (full_switch(4, 16e9, 1e-6), pcie_bus(3, 16e9), machines(6, 3), STAR, BROKEN):
        for n in (1, 7, 1000):
            found = invent(network, n)
            assert found.name == "invented"
            check_allreduce(found, network.k, n)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((None, 5), "network is None; give one of collectives.network"),
        ((torus(3), -1), "n, the number of elements, is -1; it should be a whole number, at least 0"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        invent(*arguments)


def test_invented_is_an_allreduce_like_those_with_a_name(rng):
    values = rng.integers(-9, 10, (8, 50)).astype(np.float32)
    data = [d2l.put(value, d2l.cpu(i)) for i, value in enumerate(values)]
    d2l.allreduce(data, invented(BROKEN))
    assert all((d2l.to_host(array) == values.sum(axis=0)).all() for array in data)
    with pytest.raises(ValueError, match="the number of devices on .* is 4; .* at least 8"):
        invented(BROKEN)(4, 50)


SCHEDULES = """
from d2lmgpu.collectives import invent
from d2lmgpu.collectives.network import machines, nvlink_mesh
from d2lmgpu.collectives.wirings.wires import rewired, wired
uneven = wired({("a", 0): 1e9, (1, "b"): 2e9, ("b", "a"): 1e9, (2, "a"): 3e9, (3, "b"): 1e9})
networks = rewired(nvlink_mesh(25e9, 1e-6), {(0, 4): 0}), machines(6, 3), uneven
found = [invent(network, 997) for network in networks]
said = [(each.name, each.seconds, list(each)) for each in found]
"""


def test_the_same_arguments_give_the_same_schedule():
    """Twice in this process, and in one whose texts hash to other numbers."""
    here, again = {}, {}
    exec(SCHEDULES, here)
    exec(SCHEDULES, again)
    assert here["said"] == again["said"]
    command = [sys.executable, "-c", SCHEDULES + "print(repr(said))"]
    environment = os.environ | {"PYTHONHASHSEED": str(1 + (os.environ.get("PYTHONHASHSEED") == "1"))}
    there = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert there.stdout.strip() == repr(here["said"])


def narrowest(order, network):
    """Bandwidth of the narrowest wire on the circle; 0 where two neighbours have none."""
    cuts = cuts_of(network)
    wide = dict(
        zip(zip(cuts.sources.tolist(), cuts.destinations.tolist(), strict=True), cuts.slowest.tolist(), strict=True)
    )
    return min(wide.get((a, b), 0) for a, b in zip(order, order[1:] + order[:1], strict=True))


@pytest.mark.parametrize(
    "network, least",
    [
        (torus(4, 4), 50e9),
        (torus(3, 5), 50e9),
        (torus(2, 3, 4), 50e9),
        (hypercube(3), 50e9),
        (hypercube(4), 50e9),
        (hypercube(6), 50e9),
        (nvlink_mesh(25e9), 50e9),  # of two NVLinks each
        (nvlink_ring(9, 1e9), 1e9),
        (full_switch(5, 1e9), 1e9),
        *long((torus(7, 9), 50e9), (torus(16, 16), 50e9), (hypercube(8), 50e9)),
    ],
)
def test_a_circle_is_found_along_the_widest_wires(network, least):
    order = order_along(network)
    assert sorted(order) == [*range(network.k)] and order[0] == 0
    assert narrowest(order, network) == least


def test_a_slow_wire_is_avoided():
    for k in (4, 5, 8):
        for slow in [(0, 1), (1, 3), (k - 1, 0)]:
            wires = {(a, b): 50e9 for a in range(k) for b in range(a)}
            network = rewired(wired(wires), {slow: 1e9})
            order = order_along(network)
            assert sorted(order) == [*range(k)] and narrowest(order, network) == 50e9


@pytest.mark.parametrize("k", [1, 2, 3, 4, 9])
def test_where_there_is_no_circle_each_device_is_there_once(k):
    star = wired({(0, i): 1e9 for i in range(1, k)}) if k > 1 else torus(1)
    path = wired({(i, i + 1): 1e9 for i in range(k - 1)}) if k > 1 else torus(1)
    for network in (star, path):
        order = order_along(network)
        assert sorted(order) == [*range(k)]
        invent(network, 2 * k + 1)
    assert sum(abs(a - b) == 1 for a, b in zip(order, order[1:], strict=False)) >= k // 2


def test_a_schedule_along_a_network_is_for_its_devices():
    with pytest.raises(ValueError, match="the ring along torus 2 × 2 is for 4 devices, not 5"):
        ring_along(torus(2, 2))(5, 10)
    pairs = {t[:2] for step in ring_along(torus(2, 2))(4, 8) for t in step}
    assert pairs in ({(0, 1), (1, 3), (3, 2), (2, 0)}, {(1, 0), (3, 1), (2, 3), (0, 2)})
