"""Minibatches, train and evaluate, on a small part of the data set."""

import os
import signal
import threading

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
from d2lmgpu.training.textbook_steps import Step, TextbookSteps


def test_minibatches_show_each_example_once():
    X, y = np.arange(100, dtype=np.float32).reshape(100, 1, 1, 1), np.arange(100)
    epochs = [[(X_part, y_part) for X_part, y_part in d2l.minibatches(X, y, 32, seed=1, epoch=e)] for e in (0, 1, 0)]
    for parts in epochs:
        assert [len(part) for part, _ in parts] == [32, 32, 32, 4]
        order = np.concatenate([part for _, part in parts])
        assert sorted(order) == list(range(100))
        np.testing.assert_array_equal(np.concatenate([part for part, _ in parts]).ravel(), order)
    first, second, again = (np.concatenate([part for _, part in parts]).tolist() for parts in epochs)
    assert first == again != second
    assert first != next(d2l.minibatches(X, y, 100, seed=2, epoch=0))[1].tolist()
    weights_stream = np.random.default_rng(1).permutation(100).tolist()
    assert weights_stream not in (first, second)  # or weights and order would be correlated


def test_the_size_of_an_epoch():
    """A minibatch of all examples leaves no rest."""
    sizes = [(10, True), (9, True), (5, True), (11, False), (3, False)]
    assert [epoch_size(10, batch_size, drop_last) for batch_size, drop_last in sizes] == [10, 9, 10, 10, 10]
    with pytest.raises(ValueError, match="drop_last leaves nothing of 10 examples with batch_size 11"):
        epoch_size(10, 11, drop_last=True)


def test_images_become_floats():
    images = np.array([[0, 51, 255]], np.uint8)
    np.testing.assert_array_equal(d2l.to_float(images), np.array([[0, 0.2, 1]], np.float32))
    assert d2l.to_float(images).dtype == np.float32
    assert d2l.to_float(images / 2.0).dtype == np.float64


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


def test_evaluate_in_several_parts(make_devices, small, monkeypatch):
    _, _, X, y = small
    params = d2l.init_params(1, init="he")
    whole = d2l.evaluate(params, X, y, make_devices(3))
    monkeypatch.setattr("d2lmgpu.training.accuracy.EVALUATION_BATCH", 17)
    assert d2l.evaluate(params, X, y, make_devices(3)) == whole


def test_evaluate_uses_all_devices(make_devices, small):
    devices = make_devices(3)
    with d2l.record_transfers() as transfers:
        d2l.evaluate(d2l.init_params(), *small[2:], devices)
    for device in devices:  # parameters, and a third of the images and labels
        received = sum(t.nbytes for t in transfers if t.destination == str(device))
        assert received >= 4 * 129_068 + 33 * (784 + 1)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 2.5}, "batch_size is 2.5"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"lr": float("inf")}, "lr is inf"),
        ({"lr": 0.0}, "above 0"),
        ({"num_epochs": 0}, "epochs is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"algorithm": "star"}, "choose from .*naive.*ring"),
        ({"algorithm": "none"}, "drift apart"),
        ({"init": "zeros"}, "normal, he"),
    ],
)
def test_settings_that_make_no_sense(small, settings, message):
    with pytest.raises(ValueError, match=message):
        quick([d2l.cpu(0)], small, **settings)


def test_data_that_make_no_sense(small):
    X, y, X_test, y_test = small
    for data, message in [
        ((X, y + 5, X_test, y_test), "labels from 5 to 14"),
        ((X, y[:-1], X_test, y_test), "600 images and 599 labels"),
        ((X[:0], y[:0], X_test, y_test), "0 images"),
    ]:
        with pytest.raises(ValueError, match=message):
            quick([d2l.cpu(0)], data)
    with pytest.raises(ValueError, match="0 images"):
        d2l.evaluate(d2l.init_params(), X[:0], y[:0], [d2l.cpu(0)])
    with pytest.raises(ValueError, match="empty"):
        quick([], small)


def test_an_interrupt_ends_after_a_step_and_keeps_what_was_learned(monkeypatch):
    """Ctrl-C in the middle of the second epoch."""
    calls, submit = [], Step.__init__

    def submit_step(*args, **options):
        calls.append(1)
        if len(calls) == 13:
            os.kill(os.getpid(), signal.SIGINT)
        return submit(*args, **options)

    monkeypatch.setattr(Step, "__init__", submit_step)
    handler = signal.getsignal(signal.SIGINT)
    data = random_data(PLAIN, 95, 20)
    history, params = quick(cpus(2), data, network=PLAIN, batch_size=10, num_epochs=5)
    assert len(calls) == 13 and len(history.train_loss) == 1
    assert (history.interrupted["epoch"], history.interrupted["steps"]) == (2, 3)
    assert history.interrupted["test_accuracy"] == d2l.evaluate(params, *data[2:], cpus(1), PLAIN)
    assert np.isfinite(history.interrupted["train_loss"])
    assert history.summary().startswith(f"test acc: {history.interrupted['test_accuracy']:.2f}, ")
    assert signal.getsignal(signal.SIGINT) is handler


def test_training_outside_the_main_thread():
    """There Python delivers no signals; training works all the same."""
    results, data = [], random_data(PLAIN, 20, 5)
    thread = threading.Thread(target=lambda: results.append(quick(cpus(1), data, network=PLAIN, num_epochs=1)))
    thread.start()
    thread.join()
    assert len(results[0].history.train_loss) == 1


def test_the_textbooks_last_line():
    history = d2l.History(["gpu(0)", "gpu(1)"], "gpu", d2l.Settings().recorded())
    history.add_epoch({"train_loss": 0.5, "train_accuracy": 0.8, "test_accuracy": 0.8449}, 2.0, 600)
    history.add_epoch({"train_loss": 0.4, "train_accuracy": 0.9, "test_accuracy": 0.8351}, 2.42, 600)
    assert history.summary() == "test acc: 0.84, 2.2 sec/epoch on [gpu(0), gpu(1)]"


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
