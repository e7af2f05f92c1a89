"""What CuPy and CUDA demand, held by the stand-in; and how the library gets on where something does not work."""

import numpy as np
import pytest
import standin_cupy
import standin_driver
import standin_memory
from conftest import assert_close, forget_gpus
from test_cuda_program import TINY_NETWORK

import d2lmgpu as d2l
from d2lmgpu.cluster import as_cluster
from d2lmgpu.collectives.execute import are_connected
from d2lmgpu.data.minibatches import epoch_order
from d2lmgpu.devices.peers import connect
from d2lmgpu.devices.probes import probes
from d2lmgpu.kernels.cuda import add, graphs_work
from d2lmgpu.kernels.cuda.program import borrowed_program
from d2lmgpu.parallel.step import Replica
from d2lmgpu.training.graph_limits import why_not_one_graph
from d2lmgpu.training.graph_step import GraphStep
from d2lmgpu.training.plan_step import PlanStep
from d2lmgpu.training.runner import AHEAD

pytestmark = pytest.mark.threads

CUDARuntimeError = standin_driver.CUDARuntimeError


@pytest.fixture
def machine(monkeypatch):
    """A function that makes a machine of the stand-in, see `standin_driver.Machine`."""

    def make(cards=2, **properties):
        forget_gpus()
        return standin_cupy.install(monkeypatch, cards, **properties)

    yield make
    forget_gpus()


@pytest.fixture
def cupy(machine):
    machine()
    import cupy

    with cupy.cuda.Stream(non_blocking=True):
        yield cupy


def small_data(rng, n=11):
    X, y = rng.integers(0, 256, (n + 3, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, n + 3).astype(np.uint8)
    return X[:n], y[:n], X[n:], y[n:]


def train(data, k=2, **settings):
    defaults = {"batch_size": 4, "lr": 0.05, "num_epochs": 2, "init": "he", "network": TINY_NETWORK, "progress": False}
    return d2l.train([d2l.gpu(i) for i in range(k)], data=data, **(defaults | settings))


@pytest.fixture
def alone(rng):
    """Data, and the run of one virtual device with it."""
    data = small_data(rng)
    settings = {"batch_size": 4, "lr": 0.05, "num_epochs": 2, "init": "he", "network": TINY_NETWORK}
    return data, d2l.train([d2l.cpu(0)], data=data, progress=False, **settings)


def assert_as(run, expected, tolerance=2e-5):
    assert run.history.train_loss == pytest.approx(expected.history.train_loss, rel=tolerance)
    for param, other in zip(run.params, expected.params, strict=True):
        assert_close(param, other, 10 * tolerance)


# What the stand-in holds. CuPy's words are those of its upgrade notes and its test_mix_use_context.


FORBIDDEN = {
    "to wait": lambda cupy, x, stream: stream.synchronize(),
    "to take memory": lambda cupy, x, stream: cupy.zeros(3, np.float32),
    "a result in new memory": lambda cupy, x, stream: x + 1,
    "to look at numbers": lambda cupy, x, stream: x.get(),
    "to copy from the host": lambda cupy, x, stream: x.set(np.ones(5, np.float32)),
    "to load code": lambda cupy, x, stream: cupy.RawModule(code="", options=()),
    "cuBLAS": lambda cupy, x, stream: cupy.matmul(x, x, out=x),
    "memcpyPeerAsync": lambda cupy, x, stream: cupy.cuda.runtime.memcpyPeerAsync(
        x.data.ptr, 0, x.data.ptr, 0, 4, stream.ptr
    ),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_a_capture_does_not_permit(cupy, what):
    stream = cupy.cuda.get_current_stream()
    x = cupy.zeros(5, np.float32)
    stream.begin_capture()
    with pytest.raises(CUDARuntimeError, match="not permitted when stream is capturing"):
        FORBIDDEN[what](cupy, x, stream)
    with pytest.raises(CUDARuntimeError, match="previous error during capture"):
        x += 1
    with pytest.raises(CUDARuntimeError, match="previous error"):
        stream.end_capture()
    x += 1  # the stream is free again
    assert x.get()[0] == 1


def test_memory_is_poisoned_and_not_given_out_while_another_stream_uses_it(cupy):
    stream, other = cupy.cuda.get_current_stream(), cupy.cuda.Stream(non_blocking=True)
    x = cupy.ones(5, np.float32)
    values = x.values
    other.wait_event(stream.record())
    with other:
        x + 1
    del x
    assert np.isnan(values).all()
    with pytest.raises(standin_memory.RaceError, match="may still use"):
        cupy.empty(5, np.float32)
    x = cupy.ones(5, np.float32)
    with other:
        other.wait_event(stream.record())
        x + 1
    del x
    stream.wait_event(other.record())
    cupy.empty(5, np.float32)


def test_the_hosts_memory_stays_as_it_is_until_a_copy_is_waited_for(cupy):
    stream, host, x = cupy.cuda.get_current_stream(), np.ones(5, np.float32), cupy.zeros(5, np.float32)
    x.set(host)
    host[0] = 2
    with pytest.raises(standin_memory.RaceError, match="changed before"):
        stream.synchronize()
    x.set(host)
    stream.synchronize()
    host[0] = 3
    x.set(host[1:].repeat(2)[:5])  # nobody holds it
    with pytest.raises(standin_memory.RaceError, match="given back before"):
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


@pytest.mark.parametrize("k, cards", [(1, 1), (2, 1), (2, 2), (3, 2), (5, 3)])
def test_nothing_goes_through_the_host_between_cards_with_access(machine, alone, k, cards):
    made = machine(cards)
    data, expected = alone
    run = train(data, k, algorithm="halving_doubling")
    assert run.history.phases["step"] > 0 and made.staged == []
    assert_as(run, expected)
    arrays = [d2l.put(np.full(1001, i, np.float32), d2l.gpu(i)) for i in range(k)]
    d2l.allreduce([*arrays], "ring")
    for array in arrays:
        np.testing.assert_array_equal(d2l.to_host(array), sum(range(k)))
    d2l.put(arrays[0], d2l.gpu(k - 1))
    assert made.staged == []


def test_a_copy_goes_from_card_to_card_where_it_can(machine):
    """Also if it is the first thing that a program does."""
    made = machine(3, peers=[(0, 2)])
    x = d2l.put(np.arange(5.0), d2l.gpu(0))
    for i in (1, 2):
        np.testing.assert_array_equal(d2l.to_host(d2l.put(x, d2l.gpu(i))), np.arange(5))
    assert [copy for copy in made.staged if copy[2] == x.nbytes] == [(0, 1, x.nbytes)]


@pytest.mark.parametrize("k, peers", [(2, []), (3, [(0, 2)])])
@pytest.mark.parametrize("graphs", [True, False])
def test_without_access_copies_go_through_the_host(machine, alone, capsys, k, peers, graphs):
    made = machine(3, peers=peers)
    data, expected = alone
    run = train(data, k, graphs=graphs)
    assert run.history.phases["step"] == 0 < run.history.phases["forward"] and made.staged
    assert_as(run, expected)
    notes = [line for line in capsys.readouterr().err.splitlines() if "peer access" in line]
    assert notes[0].startswith("note: gpu(0) and gpu(1): peer access: does not work here (")
    assert notes[0].endswith("; copies between them go through the host")
    assert len(notes) == len({*notes})


BROKEN = {
    "graphInstantiate": ("a CUDA graph", "steps are launched kernel by kernel"),
    "graphLaunch": ("a CUDA graph", "steps are launched kernel by kernel"),
    "streamBeginCapture": ("a CUDA graph", "steps are launched kernel by kernel"),
    "moduleLoad": ("the kernels", "the layers compute as they are written, which is slow"),
    "deviceEnablePeerAccess": ("peer access", "copies between them go through the host"),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_does_not_work_is_named_and_something_slower_used(machine, alone, capsys, broken):
    machine(2, broken=[broken])
    data, expected = alone
    tried, instead = BROKEN[broken]
    run = train(data)
    assert run.history.phases["step"] == 0 < run.history.phases["forward"]
    assert_as(run, expected)
    notes = capsys.readouterr().err.splitlines()
    assert any(f": {tried}: does not work here" in note and note.endswith(instead) for note in notes)
    assert all(note.startswith("note: ") for note in notes)
    assert [trial.why for trial in probes() if trial.tried == tried][0]


def test_kernels_that_compute_something_else_are_found(machine, alone, monkeypatch, capsys):
    machine(1)
    data, expected = alone
    right = standin_cupy.RawModule.get_function

    def wrong(self, name):
        return right(self, name) if name != "dense_forward" else lambda *args: None

    monkeypatch.setattr(standin_cupy.RawModule, "get_function", wrong)
    assert_as(train(data, 1), expected)
    assert (
        "gpu(0): the kernels: does not work here (RuntimeError: gradients have a relative error of"
        in capsys.readouterr().err
    )


def test_a_graph_that_does_something_else_is_found(machine, monkeypatch):
    machine(1)
    monkeypatch.setattr(standin_cupy.standin_streams.Graph, "launch", lambda self, stream: None)
    assert not d2l.gpu(0).submit(graphs_work).result()
    assert [trial.why for trial in probes()] == ["RuntimeError: launched 3 times it gives 0.0 to 0.0 instead of 20"]


@pytest.mark.parametrize("card", [0, 1])
@pytest.mark.parametrize("what", ["copies", "kernels"])
def test_each_direction_between_two_cards_is_tried(machine, what, card):
    made = machine(2, garbled=[f"{what} on {card}"])
    assert connect(0, 1) == (what == "kernels") == bool(made.enabled) and not are_connected({0, 1})
    why = {
        "copies": f"a copy of 16396 bytes from card {1 - card} to card {card} arrives changed",
        "kernels": f"a kernel on gpu({card}) adds other numbers than those on gpu({1 - card})",
    }
    assert [trial.why for trial in probes() if not trial.works] == [f"RuntimeError: {why[what]}"]


@pytest.mark.parametrize(
    "property, wrong, why",
    [
        ("garbled", "graphs", "RuntimeError: launched 3 times it gives 3.0 to 3.0 instead of 129"),
        ("broken", "graphInstantiate over cards", "CUDARuntimeError: cudaErrorUnknown: unknown error"),
        ("broken", "nothing", None),
    ],
)
def test_a_step_on_several_cards_is_one_graph_where_such_a_graph_works(machine, property, wrong, why):
    machine(3, **{property: [wrong]})
    found = why_not_one_graph(as_cluster([d2l.gpu(i) for i in range(3)]))
    assert found == (why and "no graph spans its cards") and why_not_one_graph(as_cluster([d2l.gpu(0)])) is None
    tried = [trial for trial in probes() if trial.tried == "a CUDA graph over them"]
    assert [(trial.device, trial.why) for trial in tried] == [("gpu(0), gpu(1), gpu(2)", why)]


@pytest.mark.parametrize("kind", [GraphStep, PlanStep])
def test_the_program_is_not_more_and_more_steps_ahead(machine, rng, kind):
    """Of the devices: in a long epoch one step more than in one in which it may launch all before it waits."""

    def ahead(steps):
        """What was launched, and not waited for, at most, when all steps are launched."""
        made = machine(2)
        X, y, *_ = small_data(rng, 2 * steps)
        params = d2l.init_params(0, init="he", network=TINY_NETWORK)
        devices = [d2l.gpu(0), d2l.gpu(1)]
        runner = kind.of(X, y, params, devices, TINY_NETWORK, batch_size=2)
        made.ahead = 0
        runner.start_epoch(epoch_order(len(X), 0, 0), 0.05)
        for _ in range(runner.steps):
            runner.launch(1)
        for device in devices:
            device.record().wait()
        found = made.ahead
        runner.pause()
        assert made.times == 0  # events that only order work are cheaper without
        return found

    assert 0 < ahead(3 * AHEAD) <= ahead(AHEAD) / AHEAD * (AHEAD + 1)


def test_a_program_with_which_work_failed_is_not_used_again(cupy):
    """Its branches may still be under way, and what it should have written is not there."""
    params = [cupy.array(param) for param in d2l.init_params(0, init="he", network=TINY_NETWORK)]

    def borrow():
        return borrowed_program(TINY_NETWORK, params, cupy.zeros((2, 1, 9, 8), np.float32), True)

    with pytest.raises(ZeroDivisionError), borrow() as failed:
        raise ZeroDivisionError
    with borrow() as program:
        assert program is not failed
    with borrow() as again:
        assert again is program


@pytest.mark.long
def test_a_step_that_cannot_be_recorded_is_launched_by_hand(machine, alone, monkeypatch, capsys):
    """And a recording that fails leaves devices on which anything else works: here a graph by another allreduce."""
    machine(2)
    data, expected = alone
    update = Replica.update

    def fail_in_capture(self, *numbers):
        update(self, *numbers)
        if self.device.stream.is_capturing():
            self.device.stream.synchronize()

    with monkeypatch.context() as patch:
        patch.setattr(Replica, "update", fail_in_capture)
        for precision in ("float32", "mixed"):
            run = train(data, precision=precision)
            assert run.history.phases["step"] == 0
            assert_as(run, expected, 2e-5 if precision == "float32" else 1e-2)
        assert "the step cannot be a CUDA graph (cudaErrorStreamCaptureUnsupported" in capsys.readouterr().err
    run = train(data, algorithm="tree")
    assert run.history.phases["step"] > 0
    assert_as(run, expected)


def test_a_graph_outlives_larger_collectives_on_its_devices(machine, rng, alone):
    """Its staging buffers are its own. Those of devices are replaced when a larger one is asked for."""
    machine(1)
    data, expected = alone
    devices = [d2l.gpu(i) for i in range(3)]
    params = d2l.init_params(0, init="he", network=TINY_NETWORK)
    settings = {"batch_size": 4, "algorithm": "recursive_doubling"}
    runner = GraphStep.of(*data[:2], params, devices, TINY_NETWORK, **settings)
    losses = []
    for epoch in range(2):
        runner.start_epoch(epoch_order(len(data[0]), 0, epoch), 0.05)
        for _ in range(runner.steps):
            runner.launch(1)
            arrays = [d2l.put(np.ones(5001 * (epoch + 1), np.float32), device) for device in devices]
            d2l.allreduce(arrays, "recursive_doubling")
        losses.append(sum(runner.pause()[0]) / len(data[0]))
    assert losses == pytest.approx(expected.history.train_loss, rel=2e-5)


def test_a_failed_part_of_a_collective_is_no_secret(machine):
    made = machine(2)
    devices = [d2l.gpu(0), d2l.gpu(1)]
    arrays = [d2l.put(np.ones(100, np.float32), device) for device in devices]
    d2l.allreduce(arrays, "ring")  # everything is compiled
    d2l.synchronize(devices)
    made.broken.add("launchKernel")
    d2l.allreduce(arrays, "ring")
    for array in arrays:
        with pytest.raises(CUDARuntimeError):
            d2l.to_host(array)
    made.broken.clear()
    arrays = [d2l.put(np.ones(100, np.float32), device) for device in devices]
    d2l.allreduce(arrays, "ring")
    assert [d2l.to_host(array)[0] for array in arrays] == [2, 2]


@pytest.mark.parametrize("failing", ["eventCreate", "eventRecord", "the work itself"])
def test_who_waits_for_work_that_failed_waits_for_what_came_before(machine, failing):
    """Whatever was launched before it failed is still under way: on a GPU the others would be too early."""
    made = machine(2)
    one, other = d2l.gpu(0), d2l.gpu(1)
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
            made.broken.clear()

    task = other.submit(work)
    one.wait(task)
    one.submit(add, total.raw, x.raw).result()
    assert (d2l.to_host(total) == 5).all() and task.exception()


def test_a_card_too_old_is_told_what_to_install(machine):
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
