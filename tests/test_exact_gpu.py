"""Exact sums on GPUs, on the stand-in for CuPy: one result, kernel by kernel and in graphs; what does not fit is told.

The CPU runs the kernels, so granules here are of two images.
"""

import functools

import cuda_machines
import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import REAL_GPU, long, sampled, use_tiny_granules
from standin_nccl import install_nccl
from test_cuda_program import make
from test_gpu_rules import machine  # noqa: F401
from test_graphs_of_plans import NETWORK, NORMED, SPLITS, settings
from test_plan_execution import batch, start

import d2lmgpu as d2l
from d2lmgpu import exact
from d2lmgpu.exact import ExactSums, SumError, as_integers
from d2lmgpu.kernels.cuda import launch
from d2lmgpu.networks import Conv2d, Dense, Dropout, Flatten, ReLU, logits, loss_and_grads, sequential
from d2lmgpu.plans import PLANS, Execution
from d2lmgpu.training import Settings
from d2lmgpu.training.graph_step import GraphStep
from d2lmgpu.training.splits import plan_of

pytestmark = pytest.mark.threads


@pytest.fixture(autouse=True)
def tiny_granules(monkeypatch):
    use_tiny_granules(monkeypatch)


@pytest.fixture(params=["shim", REAL_GPU])
def runs(request):
    return cuda_machines.OnCPU() if request.param == "shim" else cuda_machines.OnGPU()


def gpus(k):
    return [d2l.gpu(i) for i in range(k)]


# Kernels:


@pytest.mark.parametrize("scale", [1, 4096])
def test_gradients_are_added_as_integers(runs, rng, scale):
    terms, total = rng.normal(size=(3, 300)).astype(np.float32) * scale, rng.integers(-(2**60), 2**60, 300)
    limit, unfit, expected = 8.0, np.zeros(1, np.int32), total + sum(as_integers(row, scale) for row in terms)
    numbers = np.float64(exact.GRADIENTS), np.float64(limit), np.int32(5), np.int32(3), np.int32(300)
    runs.run(launch.exact("add_gradients", 300), terms, total, np.full(1, scale, np.float32), unfit, *numbers)
    np.testing.assert_array_equal(total, expected)
    assert unfit == 0


@pytest.mark.parametrize("value", [8, -np.inf, np.nan])
@pytest.mark.parametrize("before, code", [(0, 5), (9, 9)])
def test_what_does_not_fit_is_noted_and_not_added(runs, value, before, code):
    terms, total, unfit = np.ones((2, 300), np.float32), np.zeros(300, np.int64), np.full(1, before, np.int32)
    terms[1, 299] = value
    numbers = np.float64(exact.GRADIENTS), np.float64(8), np.int32(5), np.int32(2), np.int32(300)
    runs.run(launch.exact("add_gradients", 300), terms, total, np.ones(1, np.float32), unfit, *numbers)
    assert unfit == code and total.tolist() == [2**41] * 299 + [2**40]


@pytest.mark.parametrize("granules", [1, 3, 70])
def test_losses(runs, rng, granules):
    losses, hits = rng.random(granules).astype(np.float32) * 300, rng.integers(0, 65, granules).astype(np.int32)
    sums, epoch, right, step = np.full(2, np.nan), np.full(1, 7.0), np.full(1, 5, np.int32), np.full(1, 2, np.int32)
    unfit, unit = np.zeros(1, np.int32), exact.LOSSES
    how = np.float64(unit), np.float64(400), np.int32(1), np.int32(granules)
    runs.run(launch.exact("add_losses"), losses, hits, sums, epoch, right, step, unfit, *how)
    expected = sum(np.rint(losses.astype(float) / unit)) * unit
    assert sums.tolist() == [expected, hits.sum()] and (epoch, right, step) == (7 + expected, 5 + hits.sum(), 3)
    assert unfit == 0
    losses[-1] = np.nan
    runs.run(launch.exact("add_losses"), losses, hits, sums, epoch, right, step, unfit, *how)
    assert unfit == 1


@pytest.mark.parametrize("scale", [1, 1024])
def test_units(runs, rng, scale):
    terms, total, unfit, unit = rng.normal(size=(3, 300)) * scale, np.full(300, np.nan), np.zeros(1, np.int32), 2.0**-20
    numbers = np.float64(unit), np.float64(8), np.int32(3), np.int32(3), np.int32(300)
    scales = np.full(1, scale, np.float32)
    runs.run(launch.exact("add_units", 300), terms, total, scales, unfit, *numbers)
    np.testing.assert_array_equal(total, sum(np.rint(terms / unit / scale) * unit * scale))
    assert unfit == 0
    terms[2, 7] = 8 * scale
    runs.run(launch.exact("add_units", 300), terms, total, scales, unfit, *numbers)
    assert unfit == 3


def test_the_first_step_is_noted(runs):
    unfit, step, first = np.zeros(1, np.int32), np.ones(1, np.int32), np.zeros(2, np.int32)
    for number, code, expected in [(1, 0, [0, 0]), (2, 6, [6, 2]), (3, 2, [6, 2])]:
        step[0], unfit[0] = number, code
        runs.run(launch.exact("note_unfit"), unfit, step, first)
        assert first.tolist() == expected and unfit == (code > 0)


@pytest.mark.parametrize("n, dst_start, src_start", [(1000, 0, 0), (1000, 1, 1), (999, 0, 1), (1, 1, 0), (5001, 1, 1)])
def test_integers_are_added_from_anywhere(runs, rng, n, dst_start, src_start):
    dst, src = (rng.integers(-(2**62), 2**62, n + 2)[first:][:n] for first in (dst_start, src_start))
    expected = dst + src
    runs.run(launch.add(n, "int64"), dst, src, np.int32(n))
    np.testing.assert_array_equal(dst, expected)


# Granules:


@pytest.mark.parametrize("name", ["max pooling", "a layer without a kernel", *long("LeNet", "padding", "many classes")])
def test_a_granules_bits_are_the_same_wherever_it_is_computed(standin, rng, name):
    X, y, params, network = make(rng, name, 7)

    def compute(i, part):
        device = d2l.gpu(i)
        here = [d2l.put(array, device).raw for array in (X[part], y[part])]
        own, grads = (
            [d2l.put(p, device).raw for p in params],
            [d2l.put(np.ones(p.shape, int), device).raw for p in params],
        )
        loss, _ = loss_and_grads(*here, own, network, grads, exact=ExactSums(len(y), "here"))
        return [loss.get() * 2.0**24, logits(here[0], own, network, exact=True).get(), *(grad.get() for grad in grads)]

    loss, outputs, *whole = d2l.gpu(0).submit(compute, 0, slice(None)).result()
    parts = slice(0, 2), slice(2, 6), slice(6, 7)
    found = [d2l.gpu(i).submit(compute, i, part).result() for i, part in enumerate(parts)]
    assert loss == sum(one for one, *_ in found)
    np.testing.assert_array_equal(outputs, np.concatenate([one for _, one, *_ in found]))
    for one, *others in zip(whole, *(grads for _, _, *grads in found), strict=True):
        np.testing.assert_array_equal(one, sum(others))


# Runs:

DROPPING = sequential((1, 9, 8), Conv2d(3, 3), ReLU(), Dropout(0.3), Flatten(), Dense(5), ReLU(), Dense(4))

RUNS = {
    "SGD": {},
    "Adam": {"optimizer": "adam", "lr": 0.01},
    "momentum": {"optimizer": "momentum"},
    "batch norm": {"network": NORMED, "batch_statistics": "synchronised"},
    "mixed": {"precision": "mixed", "lr": 0.02},
    "dropout": {"network": DROPPING},
    "another loss": {"loss": (lambda z, y: (((z - 1) ** 2).sum() / 2, z), lambda z: z - 1)},
}
ONE_BY_ONE = {"graphs": False}


def can(run, way):
    waits = way != SPLITS["1f1b"] and way.get("pipeline") != "zero-bubble"
    return run != "batch norm" or waits


WAYS = [(2, {}), (2, ONE_BY_ONE), (3, {"loads": [2, 0, 1]}), (3, {"overlap": True, "algorithm": "tree"})]
WAYS += [
    (2, SPLITS["zero2"]),
    (2, SPLITS["zero3"] | ONE_BY_ONE),
    (2, SPLITS["gpipe"]),
    (2, SPLITS["gpipe"] | ONE_BY_ONE),
]
WAYS += [(2, SPLITS["1f1b"]), (2, {"split": "layers", "pipeline": "zero-bubble", "micro_batches": 2})]
WAYS += [(4, {"split": "data=2,layers=2", "pipeline": "gpipe"}), (1, ONE_BY_ONE), (2, {"flat": False, "split": "data"})]
CASES = [(run, k, way) for run in RUNS for k, way in WAYS if can(run, way)]
CHOSEN = [("SGD", *WAYS[i]) for i in (0, 1, 2, 4, 6, 7)] + [("Adam", *WAYS[i]) for i in (1, 3, 9)]
CHOSEN += [("batch norm", *WAYS[i]) for i in (0, 1, 4, 6)] + [("mixed", *WAYS[i]) for i in (2, 1, 6)]
CHOSEN += [("dropout", *WAYS[1]), ("another loss", *WAYS[5])]


def train(run, devices, **way):
    given = settings(np.random.default_rng(1), sums="exact", **(RUNS[run] | way))
    found = d2l.train(devices, **given)
    is_graph = found.history.phases["step"] > 0
    return is_graph, reached(found)


def reached(run):
    history = run.history
    return history.final_parameters_sha256, *history.train_loss, *history.train_accuracy, *history.test_accuracy


@functools.cache
def alone(run, graphs):
    return train(run, gpus(1), graphs=graphs)


@pytest.mark.parametrize("run, k, way", [*CHOSEN, *sampled([case for case in CASES if case not in CHOSEN], 8)])
def test_one_result(standin, run, k, way):
    """In mixed precision graphs have other kernels than layers that round: each has one result."""
    is_graph, found = train(run, gpus(k), **way)
    if run not in ("dropout", "another loss"):
        assert is_graph == (way.get("graphs", True) and way.get("split") in (None, "data") and run != "batch norm")
    assert found == alone(run, is_graph or run != "mixed")[1]


@pytest.mark.parametrize("run", ["SGD", "batch norm", *long("Adam", "mixed")])
def test_the_results_are_near_to_the_cpus(standin, run):
    (_, found), (_, expected) = alone(run, True), train(run, [d2l.cpu(0)])
    assert found[1:4] == pytest.approx(expected[1:4], rel=1e-4 if run != "mixed" else 1e-2)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_the_textbooks_step(standin, k):
    (X, y), params = batch(7, np.float32, NETWORK), start(np.float32, NETWORK)
    device_params = [d2l.get_params(params, device) for device in gpus(k)]
    loss = d2l.train_batch(X, y, device_params, gpus(k), 0.1, "ring", network=NETWORK, sums="exact")
    execution = Execution(PLANS["data"](2, network=NETWORK), params, gpus(2), exact=True)
    assert execution.step(X, y, 0.1) == loss
    for copy in device_params:
        for param, other in zip(copy, execution.params(), strict=True):
            np.testing.assert_array_equal(d2l.to_host(param), other)


def test_processes(machine):  # noqa: F811
    machine(3)
    found = in_each((2, 1), lambda cluster: train("SGD", cluster, **SPLITS["zero2"]), kinds=["gpu", "gpu"])
    assert {*found} == {(False, alone("SGD", True)[1])}


@pytest.mark.parametrize("way", [{}, *long(SPLITS["gpipe"])], ids=str)
def test_through_the_host(machine, way):  # noqa: F811
    made = machine(3, peers=[(1, 2)])
    assert train("SGD", gpus(3 if not way else 2), **way)[1] == alone("SGD", True)[1]
    assert made.staged


def test_nccl_adds_integers(machine, monkeypatch):  # noqa: F811
    machine(2)
    calls = install_nccl(monkeypatch)
    assert train("SGD", gpus(2), algorithm="nccl")[1] == alone("SGD", True)[1]
    assert {call.kind for call in calls} == {"int64"}


def test_going_on_on_other_devices(standin, tmp_path):
    file, given = tmp_path / "file", {"sums": "exact", "optimizer": "momentum"}
    d2l.train(gpus(2), checkpoint=file, **settings(np.random.default_rng(1), **given, num_epochs=2))
    run = d2l.train(gpus(1), resume=file, split="zero2", **settings(np.random.default_rng(1), **given))
    assert reached(run) == alone("momentum", True)[1]


# What goes wrong:


@pytest.fixture
def too_large(rng):
    """Images and parameters of which all gradients are as usual, but that of the second layer's weights."""
    (X, y), params = batch(11, np.float32, NETWORK), start(np.float32, NETWORK)
    factor = np.float32(1e8)
    params[:3] = params[0] * factor, params[1] * factor, params[2] / factor
    return np.rint(X * 255).astype(np.uint8), y, params


def unchanged(execution, params):
    return all(np.array_equal(*pair) for pair in zip(execution.params(), params, strict=True))


SPLIT = [{}, {"split": "zero2"}, {"split": "layers", "pipeline": "1f1b"}]
SAID = "the gradient of parameter 2 is too large for exact sums, or no number, for a granule on gpu.[01].*in step 1"


@pytest.mark.parametrize("way", SPLIT, ids=str)
def test_one_by_one_it_is_an_error_before_any_device_has_updated(standin, too_large, way):
    X, y, params = too_large
    execution = Execution(plan_of(Settings(sums="exact", **way), 2, NETWORK), params, gpus(2), exact=True)
    with pytest.raises(SumError, match=SAID):
        execution.step(X / np.float32(255), y, 0.1)
    assert unchanged(execution, params)


def test_in_graphs_nothing_is_updated_and_the_first_step_is_told(standin, too_large):
    X, y, params = too_large
    runner = GraphStep.of(X, y, params, gpus(2), NETWORK, batch_size=4, sums="exact")
    runner.start_epoch(np.arange(11), 0.1)
    for _ in range(runner.steps):
        runner.step()
    with pytest.raises(SumError, match=SAID + " of the epoch"):
        runner.pause()
    assert unchanged(runner.execution, params)


@pytest.mark.parametrize("graphs", [True, False])
def test_in_mixed_precision_it_halves_the_scale(standin, rng, monkeypatch, graphs):
    monkeypatch.setattr("d2lmgpu.parallel.loss_scale.FIRST_SCALE", 2.0**120)
    params = start(np.float32, NETWORK)
    how = settings(rng, num_epochs=1, precision="mixed", sums="exact", graphs=graphs) | {"init": params}
    run = d2l.train(gpus(2), **how)
    assert (run.history.phases["step"] > 0) == graphs
    for param, other in zip(run.params, params, strict=True):
        np.testing.assert_array_equal(param, other)


def test_without_kernels_sums_cannot_be_exact(standin, monkeypatch):
    (X, y), params = batch(7, np.float64, NETWORK), start(np.float64, NETWORK)
    how = {"network": NETWORK, "sums": "exact"}
    with pytest.raises(ValueError, match="exact sums need kernels, which are not in use here for float64"):
        d2l.train_batch(X, y, [d2l.get_params(params, d2l.gpu(0))], gpus(1), 0.1, **how)
    monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)
    with pytest.raises(ValueError, match="exact sums need kernels"):
        d2l.train(gpus(2), **settings(np.random.default_rng(1), sums="exact"))
    with pytest.raises(ValueError, match="exact sums need kernels"):
        d2l.evaluate(start(np.float32, NETWORK), X.astype(np.float32), y, gpus(2), **how)
