"""Plans that exchange gradients while others are being computed: the same bits, earlier."""

import sys
import threading

import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import LONG_ON_STANDIN, long
from test_plan_execution import batch, start

import d2lmgpu as d2l
from d2lmgpu.kernels.cpu import loss_and_grads
from d2lmgpu.networks import LENET, LENET_BN
from d2lmgpu.plans import PLANS, Execution, data as make_data, prove
from d2lmgpu.plans.execution import compute
from d2lmgpu.plans.execution.overlap import Overlap
from d2lmgpu.plans.stages import in_buckets


def learned(plan, devices, overlap, sizes=(130, 29, 2), optimizer="momentum", **how):
    """Losses, and parameters after some steps."""
    execution = Execution(plan, start(np.float32, plan.network), devices, optimizer, overlap=overlap, **how)
    losses = [execution.step(*batch(n, np.float32, plan.network, seed), 0.05) for seed, n in enumerate(sizes)]
    return losses, execution.params()


def assert_same(one, other):
    assert one[0] == other[0]
    for param, same in zip(one[1], other[1], strict=True):
        np.testing.assert_array_equal(param, same)


def plans(k, micro_batches):
    """Those that overlap, and others, whose exchanges have nothing beside them."""
    yield make_data(k, micro_batches, buckets=True)
    yield PLANS["zero1"](k, micro_batches, buckets=True)
    yield make_data(k, micro_batches, LENET_BN, buckets=True)
    yield from (PLANS[name](k, micro_batches) for name in ("channels", "zero2", "zero3"))


def test_buckets():
    assert [stage.params for stage in in_buckets(LENET)] == [25_250, 103_818]
    assert prove(make_data(3, 2, buckets=True)).wasted == []


@pytest.mark.parametrize("k, micro_batches", [(2, 1), (3, 2), *long((1, 2), (5, 1))])
def test_overlap_changes_no_bit(k, micro_batches, monkeypatch):
    monkeypatch.setattr(sys.modules["d2lmgpu.plans.stages"], "BUCKET", 1000)
    assert len(in_buckets(LENET)) == 4
    devices = [d2l.cpu(i) for i in range(k)]
    for plan in plans(k, micro_batches):
        assert_same(learned(plan, devices, True), learned(plan, devices, False))


def test_overlap_in_mixed_precision(monkeypatch):
    from d2lmgpu.networks import in_half
    from d2lmgpu.training.splits import updates_last

    plan, devices = updates_last(make_data(2, 1, in_half(LENET), buckets=True)), [d2l.cpu(0), d2l.cpu(1)]
    assert_same(learned(plan, devices, True, mixed=True), learned(plan, devices, False, mixed=True))


def test_on_stand_ins_for_gpus(standin, monkeypatch):
    """With the layers as they are written, whose gradients are final where a device has come to the exchange."""
    monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)
    plan, devices = make_data(2, 1, buckets=True), [d2l.gpu(0), d2l.gpu(1)]
    assert_same(learned(plan, devices, True, (5, 2)), learned(plan, devices, False, (5, 2)))


def test_the_kernels_of_gpus(standin):
    plan, devices = make_data(2, 1, buckets=True), [d2l.gpu(0), d2l.gpu(1)]
    assert_same(learned(plan, devices, True, (3, 2)), learned(plan, devices, False, (3, 2)))


@pytest.mark.threads
def test_processes():
    plan = make_data(3, 1, buckets=True)
    expected = learned(plan, [d2l.cpu(i) for i in range(3)], False)
    for found in in_each((2, 1), lambda cluster: learned(plan, cluster, True)):
        assert_same(found, expected)


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
    learned(make_data(2, 1, buckets=True), [d2l.cpu(0), d2l.cpu(1)], True, sizes=(24,))
    assert waited and all(waited)


@pytest.mark.parametrize("k", [2, 3])
def test_an_error_lets_nobody_wait(k):
    def failing(outputs, y):
        raise RuntimeError("no loss today")

    devices = [d2l.cpu(i) for i in range(k)]
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


@LONG_ON_STANDIN
def test_overlap_and_prefetch_change_nothing_that_is_learned(make_devices):
    X_train, y_train, X_test, y_test = d2l.load_fashion_mnist()
    data = X_train[:300], y_train[:300], X_test[:50], y_test[:50]
    runs = [
        d2l.train(make_devices(2), 64, 0.1, 2, init="he", data=data, progress=False, overlap=overlap, prefetch=prefetch)
        for overlap, prefetch in [(False, True), (False, False), (True, True)]
    ]
    assert runs[0].history.train_loss == runs[1].history.train_loss
    expected = pytest.approx(runs[2].history.train_loss, rel=1e-4)  # other chunks, other rounding
    assert runs[0].history.train_loss == expected
    for one, other in zip(runs[0].params, runs[1].params, strict=True):
        assert one.tobytes() == other.tobytes()
