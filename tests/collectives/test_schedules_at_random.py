"""Schedules at random: the known ones are right, proofs hold, and devices do what a schedule's definition says."""

import sys

import numpy as np
import pytest
from at_random import at_random
from hypothesis import strategies as st
from schedules import allreduces, any_schedules, by_definition, mutants
from wirings import wirings

import d2lmgpu as d2l
from d2lmgpu.collectives import ALGORITHMS, ScheduleError, bound, chunk_bounds, execute, prove, simulate
from d2lmgpu.collectives.network import full_switch, machines, nvlink_mesh, nvlink_ring, pcie_bus, shared_cores

EXECUTE = sys.modules["d2lmgpu.collectives.execute"]  # the module, whose name the function hides
DTYPES = st.sampled_from([np.float16, np.float32, np.float64])


def executed(schedule, values):
    """What virtual devices hold after a schedule: the same whether each does its own part, or one thread all."""
    results = []
    for short in (-1, 2**30):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EXECUTE, "SHORT", short)
            data = [d2l.put(value, d2l.cpu(i)) for i, value in enumerate(values)]
            execute(schedule, data)
            results.append(np.array([d2l.to_host(array) for array in data]))
    assert results[0].tobytes() == results[1].tobytes()
    return results[0]


@at_random(40, allreduces(devices=17), DTYPES, st.integers(0, 2**32))
def test_an_allreduce_is_proved_and_gives_every_device_the_sum(drawn, dtype, seed):
    """The same bits on all devices; of whole numbers the exact sum, of others up to what so many additions round."""
    _, k, n, schedule = drawn
    proof, rng = prove(schedule, k, n), np.random.default_rng(seed)
    assert proof.sent == [sum(t.size for step in schedule for t in step if t.source == i) for i in range(k)]
    whole = rng.integers(-60, 61, (k, n)).astype(dtype)
    assert (executed(schedule, whole) == whole.sum(axis=0, dtype=float)).all()
    values = rng.standard_normal((k, n)).astype(dtype)
    results, wide = executed(schedule, values), values.astype(float)
    assert results.dtype == dtype and (results == results[0]).all()
    error = np.abs(results[0] - wide.sum(axis=0))
    assert (error <= k * np.finfo(dtype).eps * np.abs(wide).sum(axis=0)).all()


def shares(k, n, seed):
    """Whole numbers whose sums with other counts than one are others, modulo 2⁶⁴, as good as surely."""
    return np.random.default_rng(seed).integers(0, 2**64, (k, n), np.uint64)


def check_proof(schedule, before):
    """It holds if and only if all have the sum; errors that begin with a step are of transfers that cannot be."""
    k, n = before.shape
    try:
        prove(schedule, k, n)
    except ScheduleError as error:
        assert str(error).startswith("step ") or (by_definition(schedule, before) != before.sum(axis=0)).any()
    else:
        assert (by_definition(schedule, before) == before.sum(axis=0)).all()


@at_random(150, mutants(), st.integers(0, 2**32))
def test_a_changed_schedule_is_refused_if_and_only_if_it_is_wrong(drawn, seed):
    k, n, schedule = drawn
    check_proof(schedule, shares(k, n, seed))


@at_random(40, any_schedules(), st.integers(0, 2**32))
def test_devices_do_what_the_definition_says(drawn, seed):
    """Any steps whatever, of which proofs also know what they bring about."""
    k, n, schedule = drawn
    values = shares(k, n, seed)
    assert (executed(schedule, values) == by_definition(schedule, values)).all()
    check_proof(schedule, values)


@at_random(100, st.integers(0, 10**6), st.integers(1, 100))
def test_chunks_cover_all_elements_and_differ_by_one_at_most(n, k):
    bounds = chunk_bounds(n, k)
    assert len(bounds) == k and [0, *(stop for _, stop in bounds)] == [*(start for start, _ in bounds), n]
    sizes = [stop - start for start, stop in bounds]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] - sizes[-1] <= 1


@st.composite
def networks(draw):
    """A network with a name, or one of wires at random."""
    k, latency = draw(st.integers(2, 12)), draw(st.sampled_from([0.0, 5e-6]))
    name = draw(st.sampled_from(["switch", "bus", "ring", "mesh", "machines", "cores", "wires"]))
    if name == "wires":
        return draw(wirings())
    return {
        "switch": full_switch(k, 16e9, latency),
        "bus": pcie_bus(k, 16e9, latency),
        "ring": nvlink_ring(k, 50e9, latency),
        "mesh": nvlink_mesh(),
        "machines": machines(k, 4),
        "cores": shared_cores(k, 2, 1e10, occupancy=latency),
    }[name]


@at_random(60, networks(), st.sampled_from(sorted(set(ALGORITHMS) - {"none"})), st.integers(0, 10**6))
def test_no_schedule_is_faster_than_the_bound_or_its_busiest_link(network, algorithm, n):
    """Whatever overlaps, also of different steps."""
    result = simulate(ALGORITHMS[algorithm](network.k, n), network)
    assert result.seconds >= (result.link_bytes / network.bandwidth).max() * (1 - 1e-9)
    assert result.seconds >= bound(network, n) * (1 - 1e-9)
    assert all((starts <= ends).all() for starts, ends in result.times)
