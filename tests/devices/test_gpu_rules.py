"""What CuPy and CUDA demand, held by the stand-in; and how the library gets on where something does not work."""

import numpy as np
import pytest
from conftest import long
from gpus import TINY_NETWORK, alone, assert_as, gpus, machine, small_data, train  # noqa: F401
from standin_driver import CUDARuntimeError
from standin_memory import RaceError

import d2lmgpu as d2l
from d2lmgpu.cluster import as_cluster
from d2lmgpu.collectives.execute import are_connected
from d2lmgpu.data.minibatches import epoch_order
from d2lmgpu.devices.peers import connect
from d2lmgpu.devices.probes import probes
from d2lmgpu.kernels.cuda.streams import add
from d2lmgpu.training.graph_step import GraphStep
from d2lmgpu.training.make_runner import why_not_one_graph
from d2lmgpu.training.plan_step import PlanStep
from d2lmgpu.training.runner import AHEAD

pytestmark = pytest.mark.threads


@pytest.fixture
def cupy(machine):  # noqa: F811
    machine()
    import cupy

    with cupy.cuda.Stream(non_blocking=True):
        yield cupy


# What the stand-in holds. CuPy's words are those of its upgrade notes and its test_mix_use_context.


def test_what_a_capture_does_not_permit(cupy):
    stream, x = cupy.cuda.get_current_stream(), cupy.zeros(5, np.float32)
    forbidden = {
        "to wait": stream.synchronize,
        "to take memory": lambda: cupy.zeros(3, np.float32),
        "a result in new memory": lambda: x + 1,
        "to look at numbers": x.get,
        "to copy from the host": lambda: x.set(np.ones(5, np.float32)),
        "to load code": lambda: cupy.RawModule(code="", options=()),
        "cuBLAS": lambda: cupy.matmul(x, x, out=x),
    }
    for do in forbidden.values():
        stream.begin_capture()
        with pytest.raises(CUDARuntimeError, match="not permitted when stream is capturing"):
            do()
        with pytest.raises(CUDARuntimeError, match="previous error during capture"):
            x.fill(1)
        with pytest.raises(CUDARuntimeError, match="previous error"):
            stream.end_capture()
    x.fill(2)  # the stream is free again
    assert x.get()[0] == 2


def test_who_uses_what_others_use_has_to_wait(cupy):
    stream, other, x = cupy.cuda.get_current_stream(), cupy.cuda.Stream(non_blocking=True), cupy.ones(5, np.float32)
    with other, pytest.raises(RaceError, match="reads memory that stream .* writes"):
        x + 1
    other.wait_event(stream.record())
    with other:
        x + 1
    with pytest.raises(RaceError, match="writes memory that stream .* reads"):
        x.fill(2)
    stream.wait_event(other.record())
    x.fill(2)
    assert (x.get() == 2).all()


def test_memory_is_poisoned_and_not_given_out_while_another_stream_uses_it(cupy):
    stream, other = cupy.cuda.get_current_stream(), cupy.cuda.Stream(non_blocking=True)
    x = cupy.ones(5, np.float32)
    values = x.values
    other.wait_event(stream.record())
    with other:
        x + 1
    del x
    assert np.isnan(values).all()
    with pytest.raises(RaceError, match="may still use"):
        cupy.empty(5, np.float32)


def test_the_hosts_memory_stays_as_it_is_until_a_copy_is_waited_for(cupy):
    stream, host, x = cupy.cuda.get_current_stream(), np.ones(5, np.float32), cupy.zeros(5, np.float32)
    x.set(host)
    host[0] = 2
    with pytest.raises(RaceError, match="changed before"):
        stream.synchronize()
    x.set(host[1:].repeat(2)[:5])  # nobody holds it
    with pytest.raises(RaceError, match="given back before"):
        stream.synchronize()


def test_another_cards_memory_needs_peer_access(cupy):
    x = cupy.zeros(5, np.float32)
    cupy.cuda.get_current_stream().synchronize()
    with cupy.cuda.Device(1), cupy.cuda.Stream(non_blocking=True):
        y = cupy.zeros(5, np.float32)
        with pytest.raises(CUDARuntimeError, match="illegal memory access"):
            add(y, x)
        cupy.cuda.runtime.deviceEnablePeerAccess(0)
        with pytest.raises(CUDARuntimeError, match="already enabled"):
            cupy.cuda.runtime.deviceEnablePeerAccess(0)
        add(y, x)


# How the library gets on.


@pytest.mark.parametrize("k, cards", [(2, 2), *long((1, 1), (2, 1), (3, 2), (5, 3))])
def test_nothing_goes_through_the_host_between_cards_with_access(machine, alone, k, cards):  # noqa: F811
    made = machine(cards)
    data, expected = alone
    run = train(gpus(k), data, algorithm="halving_doubling")
    assert run.history.phases["step"] > 0
    assert_as(run, expected)
    arrays = [d2l.put(np.full(1001, i, np.float32), d2l.gpu(i)) for i in range(k)]
    d2l.allreduce([*arrays], "ring")
    for array in arrays:
        np.testing.assert_array_equal(d2l.to_host(array), sum(range(k)))
    assert made.staged == []


def test_a_copy_goes_from_card_to_card_where_it_can(machine):  # noqa: F811
    """Also if it is the first thing that a program does."""
    made = machine(3, peers=[(0, 2)])
    x = d2l.put(np.arange(5.0), d2l.gpu(0))
    for i in (1, 2):
        np.testing.assert_array_equal(d2l.to_host(d2l.put(x, d2l.gpu(i))), np.arange(5))
    assert [copy for copy in made.staged if copy[2] == x.nbytes] == [(0, 1, x.nbytes)]


@pytest.mark.parametrize("card", [0, 1])
@pytest.mark.parametrize("what", ["copies", "kernels"])
def test_each_direction_between_two_cards_is_tried(machine, what, card):  # noqa: F811
    made = machine(2, garbled=[f"{what} on {card}"])
    assert connect(0, 1) == (what == "kernels") == bool(made.enabled) and not are_connected({0, 1})
    why = {"copies": f"to card {card} arrives changed", "kernels": f"a kernel on gpu({card}) adds other numbers"}
    (failed,) = [trial.why for trial in probes() if not trial.works]
    assert why[what] in failed


@pytest.mark.parametrize("machine_with", [{"garbled": ["graphs"]}, {"broken": ["graphInstantiate over cards"]}, {}])
def test_a_step_on_several_cards_is_one_graph_where_such_a_graph_works(machine, machine_with):  # noqa: F811
    machine(3, **machine_with)
    found = why_not_one_graph(as_cluster(gpus(3)))
    assert found == ("no graph spans its cards" if machine_with else None)
    assert why_not_one_graph(as_cluster(gpus(1))) is None
    (tried,) = [trial for trial in probes() if trial.tried == "a CUDA graph over them"]
    assert tried.device == "gpu(0), gpu(1), gpu(2)" and tried.works == (not machine_with)
    if "garbled" in machine_with:
        assert "launched 3 times it gives 3.0 to 3.0 instead of 42" in tried.why


@pytest.mark.long
@pytest.mark.parametrize("kind", [GraphStep, PlanStep])
def test_the_program_is_not_more_and_more_steps_ahead(machine, rng, kind):  # noqa: F811
    """Of the devices: in a long epoch one step more than in one in which it may launch all before it waits."""

    def ahead(steps):
        """What was launched, and not waited for, at most, when all steps are launched."""
        made = machine(2)
        X, y, *_ = small_data(rng, 2 * steps)
        params = d2l.init_params(0, init="he", network=TINY_NETWORK)
        runner = kind.of(X, y, params, gpus(), TINY_NETWORK, batch_size=2)
        made.ahead = 0
        runner.start_epoch(epoch_order(len(X), 0, 0), 0.05)
        for _ in range(runner.steps):
            runner.launch(1)
        for device in gpus():
            device.record().wait()
        found = made.ahead
        runner.pause()
        assert made.times == 0  # events that only order work are cheaper without
        return found

    assert 0 < ahead(3 * AHEAD) <= ahead(AHEAD) / AHEAD * (AHEAD + 1)


def test_a_failed_part_of_a_collective_is_no_secret(machine):  # noqa: F811
    made = machine(2)

    def summed():
        arrays = [d2l.put(np.ones(100, np.float32), device) for device in gpus()]
        d2l.allreduce(arrays, "ring")
        return arrays

    summed()  # everything is compiled
    d2l.synchronize(gpus())
    made.broken.add("launchKernel")
    for array in summed():
        with pytest.raises(CUDARuntimeError):
            d2l.to_host(array)
    made.broken.clear()
    assert [d2l.to_host(array)[0] for array in summed()] == [2, 2]


@pytest.mark.parametrize("failing", ["eventCreate", "eventRecord", "streamWaitEvent", "the work itself"])
def test_who_waits_for_work_that_failed_waits_for_what_came_before(machine, failing):  # noqa: F811
    """Whatever was launched before it failed is still under way: on a GPU the others would be too early."""
    made = machine(2)
    one, other = gpus()
    x = d2l.put(np.ones(100, np.float32), other)
    total = d2l.put(np.zeros(100, np.float32), one)
    d2l.allreduce([d2l.put(x, one), x], "ring")  # everything is compiled
    d2l.synchronize([one, other])

    def work():
        x.raw[...] = 5
        if failing == "the work itself":
            raise RuntimeError("no more")
        made.broken.add(failing)
        try:
            return other.mark()
        finally:
            made.broken.discard("eventCreate"), made.broken.discard("eventRecord")

    task = other.submit(work)
    one.wait(task)
    one.submit(made.broken.clear)
    one.submit(add, total.raw, x.raw).result()
    assert task.exception() or one.failures.take()
    assert (d2l.to_host(total) == 5).all()


def test_a_card_too_old_is_told_what_to_install(machine):  # noqa: F811
    machine(1, capability=(7, 0))
    with pytest.raises(d2l.DeviceError, match=r"gpu\(0\) has compute capability 7.0, .*'\.\[gpu-cuda12\]'"):
        d2l.gpu(0)
    machine(1, capability=(7, 0), version=12090)
    d2l.gpu(0).synchronize()


def test_each_piece_of_work_begins_on_its_own_card(cupy):
    """Also when the one before has left another card current."""
    card = cupy.cuda.runtime
    d2l.gpu(0).run(card.setDevice, 1).result()
    assert d2l.gpu(0).run(card.getDevice).result() == 0
