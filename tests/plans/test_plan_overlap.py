"""Plans that exchange gradients while others are being computed: the same bits, earlier."""

import sys
import threading

import numpy as np
import pytest
from conftest import long
from one_device import DEEP, NORMED, examples, first_params
from training_runs import cpus

import d2lmgpu as d2l
from d2lmgpu.kernels.cpu import loss_and_grads
from d2lmgpu.networks import LENET
from d2lmgpu.plans import PLANS, Execution, data as make_data
from d2lmgpu.plans.execution import compute
from d2lmgpu.plans.execution.queues import Overlap
from d2lmgpu.plans.stages import in_buckets


def learned(plan, devices, overlap, sizes=(31, 9, 2), optimizer="momentum", **options):
    """Losses and parameters after some steps."""
    execution = Execution(plan, first_params(plan.network, np.float32), devices, optimizer, overlap=overlap, **options)
    losses = [execution.step(*examples(plan.network, n, np.float32, seed=seed), 0.05) for seed, n in enumerate(sizes)]
    return losses, execution.params()


def assert_same(one, other):
    assert one[0] == other[0]
    for param, same in zip(one[1], other[1], strict=True):
        np.testing.assert_array_equal(param, same)


def plans(k, micro_batches):
    """Those that overlap, and others, whose exchanges have nothing beside them."""
    yield make_data(k, micro_batches, DEEP, buckets=True)
    yield PLANS["zero1"](k, micro_batches, DEEP, buckets=True)
    yield make_data(k, micro_batches, NORMED, buckets=True)
    yield from (PLANS[name](k, micro_batches, DEEP) for name in ("channels", "zero2", "zero3"))


def test_buckets():
    assert [stage.params for stage in in_buckets(LENET)] == [25_250, 103_818]


@pytest.mark.parametrize("k, micro_batches", [(2, 1), (3, 2), *long((1, 2), (5, 1))])
def test_overlap_changes_no_bit(k, micro_batches, monkeypatch):
    monkeypatch.setattr(sys.modules["d2lmgpu.plans.stages"], "BUCKET", 100)
    assert len(in_buckets(DEEP)) > 3 and len(in_buckets(NORMED)) == 2
    devices = cpus(k)
    for plan in plans(k, micro_batches):
        assert_same(learned(plan, devices, True), learned(plan, devices, False))


@pytest.mark.threads
def test_the_last_layers_gradients_are_exchanged_before_the_first_ones_are_there(monkeypatch):
    """Backward waits for the exchange in the midst of its way: if that came later, it would wait for ever."""
    done, teller, note, waited = threading.Event(), compute._teller, Overlap.note_exchange, []

    def note_and_tell(self, action, queues):
        note(self, action, queues)
        if action.value == ("grads", 1):
            for key, task in self.exchanged.items():
                if key == (1, ("grads", 1)):
                    task.add_done_callback(lambda _: done.set())

    def waiting(store, stages, final):
        ready = teller(store, stages, final)

        def ready_and_wait(number):
            ready(number)
            if store.device is d2l.cpu(1) and final[1].done() and not final[0].done():
                waited.append(done.wait(20))

        return ready_and_wait

    monkeypatch.setattr(Overlap, "note_exchange", note_and_tell)
    monkeypatch.setattr(compute, "_teller", waiting)
    learned(make_data(2, 1, buckets=True), cpus(2), True, sizes=(24,))
    assert waited and all(waited)


@pytest.mark.parametrize("k", [2, 3])
def test_an_error_lets_nobody_wait(k):
    def failing(outputs, y):
        raise RuntimeError("no loss today")

    devices = cpus(k)
    with pytest.raises(RuntimeError, match="no loss today"):
        learned(make_data(k, 1, buckets=True), devices, True, loss=(failing, lambda cache: cache))
    learned(make_data(k, 1, buckets=True), devices, True)


def test_the_last_layers_gradients_are_ready_first(rng):
    """`ready` may only be called when the gradients have their final values."""
    X, y, params = rng.random((70, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, 70), d2l.init_params(0, init="he")
    grads = [np.empty_like(p) for p in params]
    seen = []
    loss_and_grads(X, y, params, LENET, grads, lambda first: seen.append((first, [g.copy() for g in grads])))
    assert [first for first, _ in seen][-1] == 0 and {6, 4, 2, 0} <= {first for first, _ in seen}
    for first, snapshot in seen:
        assert all(np.array_equal(a, b) for a, b in zip(snapshot[first:], grads[first:], strict=True))
