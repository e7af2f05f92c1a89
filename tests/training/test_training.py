"""Minibatches, train and evaluate, on a small part of the data set."""

import numpy as np
import pytest
from conftest import LONG_ON_STANDIN, traced_memory
from one_device import PLAIN
from training_runs import cpus, quick, random_data

import d2lmgpu as d2l
from d2lmgpu.data.minibatches import epoch_size
from d2lmgpu.kernels.cpu.program import borrowed_programs
from d2lmgpu.networks import LENET
from d2lmgpu.training.plan_step import PlanStep
from d2lmgpu.training.textbook_steps import TextbookSteps


def test_the_size_of_an_epoch():
    """A minibatch of all examples leaves no rest."""
    sizes = [(10, True), (9, True), (5, True), (11, False), (3, False)]
    assert [epoch_size(10, batch_size, drop_last) for batch_size, drop_last in sizes] == [10, 9, 10, 10, 10]
    with pytest.raises(ValueError, match="drop_last leaves nothing of 10 examples with batch_size 11"):
        epoch_size(10, 11, drop_last=True)


@LONG_ON_STANDIN
def test_training_learns(make_devices, small):
    history, params = quick(make_devices(2), small, num_epochs=4, batch_size=40, graphs=False)
    assert history.train_loss[-1] < 0.6 * history.train_loss[0]
    assert history.test_accuracy[-1] > 0.5
    assert history.devices == [str(device) for device in make_devices(2)] and history.epochs == 4
    assert len(history.train_loss) == len(history.test_accuracy) == len(history.seconds_per_epoch) == 4
    names = ["data", "forward", "backward", "allreduce", "update", "step", "waiting", "evaluate"]
    assert list(history.phases) == names
    assert all(seconds > 0 for name, seconds in history.phases.items() if name != "step")
    assert history.examples_per_second == pytest.approx(4 * 600 / sum(history.seconds_per_epoch))
    assert history.interrupted is None
    assert d2l.evaluate(params, *small[2:], make_devices(1)) == history.test_accuracy[-1]


@pytest.mark.parametrize("k", [1, 3])
def test_the_same_seed_gives_the_same_history(k):
    data = random_data(PLAIN, 60, 20)
    runs = [quick(cpus(k), data, network=PLAIN, batch_size=7, seed=seed) for seed in (4, 4, 5)]
    for one, other in zip(runs[0].params, runs[1].params, strict=True):
        assert one.tobytes() == other.tobytes()
    assert runs[0].history.train_loss == runs[1].history.train_loss != runs[2].history.train_loss
    assert runs[0].history.test_accuracy == runs[1].history.test_accuracy


@pytest.mark.parametrize("k", [1, 2, 3, 8])
def test_evaluate_counts_every_example_once(make_devices, small, k):
    """Uneven shards: a mean of the shards' accuracies would be another number."""
    _, _, X, y = small
    devices = make_devices(k)
    params = d2l.init_params(1, init="he")
    logits = d2l.lenet(d2l.to_float(X), params)
    for n in (1, 2, 7, 100):
        expected = float(np.mean(logits[:n].argmax(axis=1) == y[:n]))
        assert d2l.evaluate(params, X[:n], y[:n], devices) == expected
        device_params = [d2l.get_params(params, device) for device in devices]
        assert d2l.evaluate(device_params, X[:n], y[:n], devices) == expected


def test_the_last_line_of_a_short_run_on_many_devices():
    history = d2l.History([f"cpu({i})" for i in range(64)], "cpu", d2l.Settings(num_epochs=1).recorded())
    assert repr(history) == "<History of 0 epochs of lenet>"
    history.add_epoch({"train_loss": 0.5, "train_accuracy": 0.8, "test_accuracy": 0.8449}, 0.0342, 600)
    line = "test acc: 0.84, 0.034 sec/epoch on 64 devices [cpu(0), cpu(1), ..., cpu(63)]"
    assert history.summary() == line and repr(history) == f"<History of 1 epoch of lenet, {line}>"
    history.utilisation = {device: 0.4 + 0.1 * (device == "cpu(9)") for device in history.devices}
    assert history.balance() == "devices worked 40% to 50% of the time, the busiest 25% more than the mean"


def test_a_result_is_printed_as_a_line():
    result = quick(cpus(2), random_data(PLAIN, 20, 5), network=PLAIN, num_epochs=1)
    assert repr(result) == f"<Result: {result.history!r}, 367 parameters>" and len(repr(result)) < 200
    history, params = result
    assert history is result.history and params is result.params


@pytest.mark.long
@pytest.mark.parametrize("settings", [{}, {"flat": False}, {"overlap": True}, {"prefetch": False}])
def test_no_step_allocates_and_memory_does_not_grow(small, settings):
    """Over five epochs on two devices: what a step needs was made by the first epoch."""
    X, y, _, _ = small
    devices = [d2l.cpu(0), d2l.cpu(1)]
    kind = PlanStep if "overlap" in settings else TextbookSteps
    runner = kind.of(X, y, d2l.init_params(), devices, batch_size=250, **settings)

    def epoch():
        runner.start_epoch(np.arange(len(X)), 0.1)
        for _ in range(runner.steps):  # 250, 250, 100 examples
            runner.launch(1)
        runner.pause()

    epoch()
    params = d2l.init_params()
    for n in (125, 50):  # programs for both devices, also if they never worked at the same time
        with (
            borrowed_programs(LENET, params, d2l.to_float(X[:n])),
            borrowed_programs(LENET, params, d2l.to_float(X[:n])),
        ):
            pass
    held, left = traced_memory(epoch, 5)
    # Tasks, views, NumPy's small buffers: 298 to 360 kB, with overlap, where more threads work at once, 384 to 451.
    # The gradients alone are 516 kB.
    assert held < (500_000 if "overlap" in settings else 400_000)
    assert left < 10_000
