"""Simulated times against the closed forms of the literature and the textbook's arithmetic."""

import math

import numpy as np
import pytest
from at_random import nightly

from d2lmgpu.collectives import ALGORITHMS, Transfer, simulate
from d2lmgpu.collectives.benchmark import Measurement, fit_virtual_devices, virtual_devices
from d2lmgpu.collectives.network import full_switch, machines, nvlink_mesh, pcie_bus, shared_cores
from d2lmgpu.collectives.wirings.wires import MESH_WIRES

ALPHA, BETA, GAMMA = 3e-6, 1 / 5e9, 1 / 20e9

CLOSED_FORMS = {  # p devices, n bytes; see the files of the algorithms for the sources
    # what device 0 sends waits for nothing in between
    "naive": lambda p, n: p * ALPHA + (p - 1) * n * (2 * BETA + GAMMA),
    "sharded": lambda p, n: 2 * (p - 1) * (ALPHA + n * BETA / p) + (p - 1) * n * GAMMA / p,
    "tree": lambda p, n: math.log2(p) * (2 * ALPHA + 2 * n * BETA + n * GAMMA),
    "recursive_doubling": lambda p, n: math.log2(p) * (ALPHA + n * BETA + n * GAMMA),
    "halving_doubling": lambda p, n: 2 * math.log2(p) * ALPHA + (p - 1) / p * n * (2 * BETA + GAMMA),
    "ring": lambda p, n: 2 * (p - 1) * ALPHA + (p - 1) / p * n * (2 * BETA + GAMMA),
}
POWERS_ONLY = {"tree", "recursive_doubling", "halving_doubling"}


@pytest.mark.parametrize("algorithm", CLOSED_FORMS)
@pytest.mark.parametrize("n", [0, 1024, *nightly(10**6)])
def test_closed_forms(algorithm, n):
    for k in [2, 4, 8, 16, 64] if algorithm in POWERS_ONLY else [2, 3, 5, 8, 13, 33]:
        elements = n // 4 // k * k  # divisible into chunks, as the closed forms assume
        network = full_switch(k, 1 / BETA, ALPHA)
        network.reduce_seconds_per_byte = GAMMA
        seconds = simulate(ALGORITHMS[algorithm](k, elements), network).seconds
        assert seconds == pytest.approx(CLOSED_FORMS[algorithm](k, 4 * elements) if elements else 0, rel=0.01)


def milliseconds(algorithm, k, network):
    """For 160 MB of float32."""
    return 1000 * simulate(ALGORITHMS[algorithm](k, 40_000_000), network).seconds


def test_the_textbooks_arithmetic():
    """ "Parameter Servers": 160 MB of gradients, 4 GPUs, PCIe of 16 GB/s."""
    through_the_cpu = milliseconds("naive", 5, pcie_bus(5, 16e9))  # device 0 is the CPU, the others the GPUs
    assert through_the_cpu == pytest.approx(80, rel=0.01)
    assert milliseconds("naive", 4, pcie_bus(4, 16e9)) == pytest.approx(60, rel=0.01)
    assert milliseconds("sharded", 4, full_switch(4, 16e9)) == pytest.approx(15, rel=0.01)


def test_a_step_need_not_wait_for_all_of_the_one_before():
    """Device 3 has to do with nobody who is still busy in step 1."""
    chain = [[Transfer(0, 1, 0, 1000, "copy")], [Transfer(2, 3, 0, 1000, "copy")], [Transfer(1, 2, 0, 1000, "copy")]]
    result = simulate(chain, full_switch(4, 1e9))
    assert [ends.tolist() for _, ends in result.times] == [[4e-6], [4e-6], [8e-6]]
    same_wire = [[Transfer(0, 1, 0, 1000, "copy")], [Transfer(0, 2, 0, 1000, "copy")]]
    assert simulate(same_wire, full_switch(3, 1e9)).seconds == pytest.approx(8e-6)


def test_messages_of_a_step_share_their_links():
    both = [[Transfer(0, 2, 0, 1000, "copy"), Transfer(1, 2, 0, 1000, "copy")]]
    apart = [[Transfer(0, 2, 0, 1000, "copy"), Transfer(1, 3, 0, 1000, "copy")]]
    for schedule, factor in ((both, 2), (apart, 1)):
        assert simulate(schedule, full_switch(4, 1e9)).seconds == pytest.approx(factor * 4e-6)
        assert simulate(schedule, pcie_bus(4, 1e9)).seconds == pytest.approx(8e-6)


def test_bytes_on_links():
    result = simulate(ALGORITHMS["ring"](3, 6), full_switch(3, 1e9))
    np.testing.assert_array_equal(result.link_bytes, [4 * 2 * 2 * 2] * 6)  # 2(k-1) chunks of 2 elements, in and out
    assert len(result.step_seconds) == 4 and result.seconds == pytest.approx(result.step_seconds.sum())
    star = simulate(ALGORITHMS["naive"](3, 6), full_switch(3, 1e9)).link_bytes
    np.testing.assert_array_equal(star, [48, 24, 24, 48, 24, 24])


def test_nvlink_mesh_is_a_dgx1():
    links = [sum(count for a, b, count in MESH_WIRES if device in (a, b)) for device in range(8)]
    assert links == [6] * 8
    network = nvlink_mesh(25e9)
    far = [[Transfer(0, 7, 0, 1000, "copy")]]  # no direct wire: two hops
    used = [network.links[i] for i in np.flatnonzero(simulate(far, network).link_bytes)]
    assert used in (["0 to 3", "3 to 7"], ["0 to 4", "4 to 7"], ["0 to 1", "1 to 7"])


def test_virtual_devices_share_their_cores():
    step = [[Transfer(i, i ^ 1, 0, 1000, "copy") for i in range(8)]]
    assert simulate(step, shared_cores(8, 2, 1e9, occupancy=1e-5)).seconds == pytest.approx(8 * (4e-6 / 2 + 1e-5))
    assert simulate(step, shared_cores(8, 8, 1e9)).seconds == pytest.approx(4e-6)


def test_a_message_between_machines_takes_the_cards_of_both():
    network = machines(6, 2)
    used = {network.links[i] for i in np.flatnonzero(simulate([[Transfer(1, 4, 0, 1000, "copy")]], network).link_bytes)}
    assert used == {"out of 1", "card out of machine 0", "card into machine 2", "into 4"}


def fake_measurements(constants, cores, sizes):
    """Rows that a computer with these constants would measure."""
    rows = []
    for k in (2, 4):
        for name in ("naive", "ring", "recursive_doubling"):
            for nbytes in sizes:
                seconds = simulate(ALGORITHMS[name](k, nbytes // 4), virtual_devices(constants, cores)(k)).seconds
                rows.append(Measurement(name, k, nbytes, seconds, 0, 0, [], 0, True))
    return rows


@pytest.mark.parametrize("gamma", [0.0, 2e-10])
def test_constants_are_found_again(gamma):
    truth = {"startup": 2e-5, "occupancy": 3e-6, "beta": 1e-10, "gamma": gamma}
    found = fit_virtual_devices(fake_measurements(truth, 2, [4096, 2**16, 2**20, 2**24]), ALGORITHMS, 2)
    assert found == pytest.approx(truth, rel=1e-6, abs=1e-16)
