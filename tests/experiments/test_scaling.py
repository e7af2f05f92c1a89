"""Scaling experiments: fair turns, the formulas by hand, predictions, and figures. No times are asserted."""

import collections
import itertools
import json
from types import SimpleNamespace

import pytest

import d2lmgpu as d2l
from d2lmgpu.base import measuring
from d2lmgpu.base.text import several
from d2lmgpu.collectives.network import full_switch
from d2lmgpu.experiments import (
    ComputeTimes,
    fit_messages,
    measure_scaling,
    plot_phases,
    plot_scaling,
    predict_scaling,
    predicted_scaling as predict,
    scaling as turns,
)
from d2lmgpu.experiments.scaling import Candidate, Sample, count_places, make_rows

QUICK = {"steps": 2, "repeats": 3, "batch_size": 6}


class FakeRunner:
    """A step takes two seconds of the clock, feeding the order half a second, waiting for the end five."""

    def __init__(self, clock):
        self.clock = clock

    def start_epoch(self, order, lr):
        assert sorted(order) == list(range(len(order)))
        self.clock["now"] += 0.5

    def launch(self, most):
        self.clock["now"] += 2

    def pause(self):
        self.clock["now"] += 5


@pytest.mark.parametrize("k", [1, 3])
def test_a_turn_is_timed_from_idle_devices_to_idle_devices(k, monkeypatch, small):
    clock, devices, idle = {"now": 100.0}, [d2l.cpu(i) for i in range(k)], []
    monkeypatch.setattr(turns, "make_runner", lambda *given: FakeRunner(clock))
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: clock["now"])
    monkeypatch.setattr(turns, "synchronize", lambda devices: idle.append((list(devices), clock["now"])))
    contender = Candidate([[device] for device in devices], d2l.networks.LENET, 5, 4, small)
    assert contender().seconds == k * (4 * 2 + 5)  # and not the half seconds before
    assert idle == [(devices, 100 + 0.5 * k), (devices, 100 + 0.5 * k + 13 * k)]


def test_trainings_beside_each_other_exchange_nothing(small):
    devices = [d2l.cpu(i) for i in range(3)]
    for groups, exchanged in (([[device] for device in devices], False), ([devices], True)):
        contender = Candidate(groups, d2l.networks.LENET, 7, 2, small)
        with d2l.record_transfers() as transfers:
            turn = contender()
        assert any("host" not in (t.source, t.destination) for t in transfers) is exchanged
        assert turn.seconds > 0 and turn.phases["forward"] > 0


def test_strong_scaling_by_hand():
    """100 examples an epoch, 2 steps of 10: five turns are an epoch."""
    found = {
        1: [Sample(4.0, {"forward": 3.0, "waiting": 1.0}), Sample(8.0, {}, 0.5), Sample(2.0, {}, 2.0)],
        2: [Sample(2.0, {}), Sample(2.0, {"forward": 1.5, "waiting": 0.5}), Sample(4.0, {})],
    }
    one, two = make_rows(found, {1: 10, 2: 10}, steps=2, epoch=100)
    assert (one.devices, one.batch_size) == (1, 10)
    assert (one.seconds_per_epoch, one.seconds_per_epoch_min, one.seconds_per_epoch_max) == (20, 10, 40)
    assert one.seconds_per_step == pytest.approx(2) and one.cores == 0.5
    assert (one.speedup, one.efficiency) == (1, 1) and one.phases == {"forward": 15, "waiting": 5}
    assert (two.seconds_per_epoch, two.seconds_per_epoch_min, two.seconds_per_epoch_max) == (10, 10, 20)
    assert (two.speedup, two.speedup_min, two.speedup_max) == (2, 0.5, 4)  # round by round: 4/2, 8/2, 2/4
    assert (two.efficiency, two.efficiency_min, two.efficiency_max) == (1, 0.25, 2)
    assert two.phases == {"forward": 7.5, "waiting": 2.5}


def test_weak_scaling_by_hand():
    """The step takes a quarter longer with 3 times the examples: 3/1.25 times as fast, efficiency 1/1.25."""
    found = {1: [Sample(4.0, {})], 3: [Sample(5.0, {})]}
    one, three = make_rows(found, {1: 10, 3: 30}, steps=2, epoch=60)
    assert (one.seconds_per_epoch, three.seconds_per_epoch) == (12, 5)
    assert (one.seconds_per_step, three.seconds_per_step) == (2, 2.5)
    assert three.speedup == pytest.approx(2.4) and three.efficiency == pytest.approx(0.8)


def test_compute_is_straight_between_what_was_measured():
    compute = ComputeTimes([10, 20, 40], [1.0, 3.0, 4.0])
    assert [compute(n) for n in (10, 15, 20, 30, 40)] == [1, 2, 3, 3.5, 4]
    assert compute(60) == 6 and compute(8) == pytest.approx(0.8) and compute(0) == 0
    assert ComputeTimes([10], [5.0])(4) == 2


def test_predictions_by_hand():
    """A ring of k = 4: 2(k-1) steps, each latency and a quarter of the bytes."""
    compute = ComputeTimes([0, 100], [0.01, 0.11])  # 10 ms and 1 ms an example

    def network(k):
        return full_switch(k, bandwidth=1e6, latency=1e-3)

    exchange = 6 * (1e-3 + 4 * 1000 / 4 / 1e6)
    strong = predict_scaling(compute, [1, 4], 100, 1000, network)
    assert [(p.devices, p.batch_size) for p in strong] == [(1, 100), (4, 100)]
    assert strong[0].seconds_per_step == pytest.approx(0.11) and strong[0].allreduce_seconds == 0
    assert strong[1].compute_seconds == pytest.approx(0.035) and strong[1].allreduce_seconds == pytest.approx(exchange)
    assert strong[1].speedup == pytest.approx(0.11 / (0.035 + exchange))
    assert strong[1].efficiency == pytest.approx(strong[1].speedup / 4)
    (weak,) = predict_scaling(compute, [4], 100, 1000, network, mode="weak")
    assert weak.batch_size == 400 and weak.efficiency == pytest.approx(0.11 / (0.11 + exchange))
    (ragged,) = predict_scaling(compute, [3], 100, 1000, network)
    assert ragged.compute_seconds == pytest.approx(0.044)  # 34 examples: the fullest device decides
    (turns,) = predict_scaling(compute, [5], 100, 1000, network, places=2)
    assert turns.compute_seconds == pytest.approx(3 * 0.03)  # five devices on two cores: three turns


def test_messages_are_fitted(monkeypatch):
    """Times as a known computer would give: what is fitted predicts them."""
    constants = {"startup": 1e-5, "occupancy": 2e-6, "beta": 1e-10, "gamma": 3e-10}
    known = predict.virtual_devices(constants, 2)

    def measure(devices, algorithms, sizes):
        for size in sizes:
            k = len(devices)
            seconds = predict.simulate(predict.ALGORITHMS["ring"](k, size // 4), known(k)).seconds
            yield SimpleNamespace(algorithm="ring", devices=k, bytes=size, seconds=seconds)

    monkeypatch.setattr(predict, "measure_allreduce", measure)
    network, _ = fit_messages(list(range(8)), [1, 2, 5], "ring", 2)
    for k in (2, 5, 8):
        schedule = predict.ALGORITHMS["ring"](k, 50_000)
        fitted, expected = (predict.simulate(schedule, each(k)).seconds for each in (network, known))
        assert fitted == pytest.approx(expected, rel=1e-3)


def test_a_prediction_from_turns_without_an_exchange(monkeypatch):
    """Three devices on two places take two turns in a step, of half of the 8 seconds of two steps; 100 steps."""
    monkeypatch.setattr(turns, "fit_messages", lambda *given: (lambda k: full_switch(k, 1e6, latency=1e-3), {}))
    rows = make_rows({k: [Sample(9.0, {})] for k in (1, 3)}, {1: 6, 3: 6}, steps=2, epoch=600)
    scaling = turns.Scaling("strong", "lenet", 1, 3000, 6, "ring", 1, 2, [], 2, "", "", rows)
    turns._predict(scaling, {3: (2, 2)}, {(2, 2): [Sample(8.0, {})]}, [], 600)
    assert rows[1].predicted_seconds_per_epoch == pytest.approx(100 * (2 * 4 + 4 * (1e-3 + 4 * 1000 / 1e6)))


@pytest.fixture(scope="module")
def strong(small):
    """An experiment on virtual devices, which several tests look at."""
    devices = [d2l.cpu(i) for i in range(5)]
    return measure_scaling(devices, (5, 1, 3), "strong", predict=True, data=small, **QUICK)


def check_experiment(scaling, devices, batches):
    rows = scaling.rows
    assert [(row.devices, row.batch_size) for row in rows] == batches
    assert (scaling.parameters, scaling.rounds) == (129_068, 3)
    assert scaling.devices == [str(device) for device in devices[: batches[-1][0]]]
    kind = "core" if devices[0].kind == "cpu" else "GPU"
    assert scaling.of_places() == several(count_places(devices), kind)
    for row in rows:
        assert row.seconds_per_epoch_min <= row.seconds_per_epoch <= row.seconds_per_epoch_max
    assert rows[0].speedup == 1 and rows[0].predicted_seconds_per_epoch is None
    assert all(row.predicted_seconds_per_epoch > 0 for row in rows[1:])
    json.dumps(scaling.as_dict())


def test_an_experiment(strong):
    check_experiment(strong, [d2l.cpu(i) for i in range(5)], [(1, 6), (3, 6), (5, 6)])


@pytest.mark.long
def test_an_experiment_with_weak_scaling_and_one_on_gpus(small, standin, monkeypatch):
    devices = [d2l.cpu(i) for i in range(5)]
    scaling = measure_scaling(devices, (5, 1, 3), "weak", predict=True, data=small, **QUICK)
    check_experiment(scaling, devices, [(1, 6), (3, 18), (5, 30)])
    monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)  # they would take minutes
    devices = [d2l.gpu(i) for i in range(5)]
    scaling = measure_scaling(devices, (3, 1), "strong", predict=True, data=small, **QUICK)
    check_experiment(scaling, devices, [(1, 6), (3, 6)])


def test_figures(strong):
    times, speedups, efficiencies, phases = plot_scaling(strong).axes
    measured = [line.get_ydata().tolist() for line in (axes.containers[0][0] for axes in (times, efficiencies))]
    assert measured == [[getattr(row, name) for row in strong.rows] for name in ("seconds_per_epoch", "efficiency")]
    assert "predicted" in times.get_legend_handles_labels()[1] and phases.get_ylabel() == "milliseconds per step"
    assert "ideal" in speedups.get_legend_handles_labels()[1] and efficiencies.get_ylim()[0] == 0


def test_the_bars_add_up_to_the_step():
    phases = {"forward": 1.0, "backward": 2.0, "waiting": 1.0, "data": 0.5}
    rows = make_rows({1: [Sample(4.0, phases)], 2: [Sample(3.0, {"forward": 3.0})]}, {1: 10, 2: 10}, 2, 100)
    axes, other = plot_phases(dict.fromkeys(("by hand", "again"), SimpleNamespace(rows=rows))).axes
    assert (axes.get_title(), other.get_title()) == ("by hand", "again")
    heights = collections.Counter()
    for bar in itertools.chain(*axes.containers):
        heights[round(bar.get_x() + bar.get_width() / 2, 2)] += bar.get_height()
    assert heights == pytest.approx({0: 2000, 1: 1500, 0.37: 250, 1.37: 0})  # the last two beside them
