"""A whole network on the CUDA kernels: on the stand-in for CuPy, where the CPU runs them, and on a real GPU."""

import itertools

import numpy as np
import pytest
import standin_streams
from conftest import REAL_GPU, TOLERANCE, assert_close, few, long
from test_cpu_kernels import AVERAGE, FLATTEN, MAX, MINUS_HALF_MEAN, RELU, conv, dense, pool

import d2lmgpu as d2l
from d2lmgpu import layers
from d2lmgpu.cluster import as_cluster
from d2lmgpu.devices import array_module
from d2lmgpu.kernels import cuda
from d2lmgpu.kernels.cuda import PRECISIONS, Program, SideStreams, has_kernels
from d2lmgpu.kernels.cuda.stages import Convolution, WinogradConvolution
from d2lmgpu.networks import (
    LENET,
    AvgPool2d,
    Conv2d,
    Flatten,
    Network,
    ReLU,
    init_params,
    logits,
    logits_as_written,
    loss_and_grads,
    loss_and_grads_as_written,
    sequential,
)
from d2lmgpu.training.graph_limits import can_be_graph, check_precision, why_not_one_graph
from d2lmgpu.training.graph_step import GraphStep

pytestmark = pytest.mark.threads

NETWORKS = {
    "LeNet": ((1, 28, 28), LENET),
    "max pooling": ((2, 9, 8), [conv(3, 2, 3, 2), RELU, MAX, FLATTEN, dense(27, 5), RELU, dense(5, 4)]),
    "by themselves": ((3, 9, 8), [RELU, MAX, AVERAGE, RELU, FLATTEN, dense(12, 6), RELU, RELU]),
    "no ReLU": ((2, 7, 9), [conv(5, 2, 2, 3), conv(4, 5, 3, 3), AVERAGE, FLATTEN, dense(16, 3)]),
    "too large squares": (
        (1, 12, 11),
        [conv(3, 1, 2, 2), RELU, pool(layers.avg_pool2d, layers.avg_pool2d_grad, 5), FLATTEN, dense(12, 3)],
    ),
    "many classes": ((1, 6, 5), [conv(2, 1, 3, 2), RELU, FLATTEN, dense(32, 9), RELU, dense(9, 40)]),
    "ReLU at the end": ((1, 4, 4), [FLATTEN, dense(16, 6), RELU]),
    "only a head": ((1, 4, 4), [FLATTEN, dense(16, 6)]),
    "padding": (
        (2, 6, 5),
        [
            *sequential((2, 6, 5), Conv2d(4, 3, padding=1), ReLU(), Conv2d(5, 3, padding=2), AvgPool2d(), Flatten()),
            dense(60, 3),
        ],
    ),
    "a layer without a kernel": ((2, 6, 6), [conv(3, 2, 3, 3), MINUS_HALF_MEAN, RELU, FLATTEN, dense(48, 4)]),
}


ALWAYS = "LeNet", "max pooling"


@pytest.fixture(params=["standin", REAL_GPU])
def make_gpus(request):
    """A function: k GPU devices, on which the CUDA kernels are in use."""
    if request.param == "standin":
        request.getfixturevalue("standin")
    return lambda k: [d2l.gpu(i) for i in range(k)]


def make(rng, name, N):
    shape, network = NETWORKS[name]
    params = [p + rng.normal(0, 0.1, p.shape) for p in init_params(1, init="he", network=network, dtype=np.float64)]
    X, y = rng.normal(0, 1, (N, *shape)), rng.integers(0, params[-1].size, N)
    return X.astype(np.float32), y, [p.astype(np.float32) for p in params], network


@pytest.mark.parametrize("N", [3, *long(0, 1)])
@pytest.mark.parametrize("name", few(NETWORKS, *ALWAYS, parts=3))
def test_as_the_layers(make_gpus, rng, name, N):
    (device,) = make_gpus(1)
    X, y, params, network = make(rng, name, N)
    expected_loss, expected = loss_and_grads_as_written(X.astype(float), y, [p.astype(float) for p in params], network)
    device_params = d2l.get_params(params, device)
    for _ in range(2):  # the second time with everything made already
        loss, grads = loss_and_grads(d2l.put(X, device), d2l.put(y, device), device_params, network)
        assert loss.shape == () and loss.dtype == np.float32
        assert float(loss) == pytest.approx(float(expected_loss), rel=TOLERANCE[X.dtype])
        for grad, value in zip(grads, expected, strict=True):
            assert_close(grad, value, TOLERANCE[X.dtype])
    expected_logits = logits_as_written(X, params, network)
    if N:
        assert_close(logits(d2l.put(X, device), device_params, network), expected_logits, TOLERANCE[X.dtype])


@pytest.mark.parametrize("name", few((name for name in NETWORKS if has_kernels(NETWORKS[name][1])), *ALWAYS))
def test_branches_change_nothing(make_gpus, rng, name):
    """The same bits as in one stream, twice: the second time everything is written over."""
    (device,) = make_gpus(1)
    X, y, params, network = make(rng, name, 3)
    X, y, params = d2l.put(X, device), d2l.put(y, device), d2l.get_params(params, device)

    def compute():
        results, raws = [], [param.raw for param in params]
        for branches in (None, SideStreams(device.stream)):
            program = Program(network, raws, X.shape[1:], 3, branches=branches)
            grads = [raw.copy() for raw in raws]
            for _ in range(2):
                program.forward(raws, X.raw, y.raw)
                program.backward(raws, grads)
                if branches:
                    branches.join()
            results.append(
                [array.get() for array in (*grads, program.logits, program.epoch_loss, program.epoch_correct)]
            )
        return results

    plain, branched = device.submit(compute).result()
    for one, other in zip(plain, branched, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "LeNet"])
def test_a_part_forward_and_the_rest_at_once(make_gpus, rng, name):
    """The first layer goes forward, then all others forward and back, then it goes back, twice: as all layers do."""
    (device,) = make_gpus(1)
    X, y, params, network = make(rng, name, 3)
    expected_loss, expected = loss_and_grads_as_written(X.astype(float), y, [p.astype(float) for p in params], network)
    X, y, params = d2l.put(X, device), d2l.put(y, device), d2l.get_params(params, device)

    def compute():
        raws, n = [param.raw for param in params], len(network[0].shapes)
        grads = [raw.copy() for raw in raws]
        first = cuda.Pass(tuple(network[:1]), raws[:n], X.shape[1:], np.float32, 3, False, False, None, {})
        for _ in range(2):
            x = array_module(X.raw).moveaxis(first.forward(X.raw, raws[:n]), -1, 0)
            dx = x.copy()
            sums = cuda.loss_and_grads(x, y.raw, raws[n:], tuple(network[1:]), grads[n:], dx=dx)
            whole = cuda.Pass(tuple(network[1:]), raws[n:], x.shape[1:], np.float32, 3, True, True, None, {})
            assert whole.forward(x, raws[n:], y.raw).get().tolist() == sums.get().tolist()
            again = [raw.copy() for raw in raws[n:]]
            found = whole.backward(raws[n:], again)
            np.testing.assert_array_equal(found.get(), np.moveaxis(dx.get(), 0, -1))
            for one, other in zip(again, grads[n:], strict=True):
                np.testing.assert_array_equal(one.get(), other.get())
            if n:  # otherwise a first layer has nothing to do backward
                first.backward(raws[:n], grads[:n], dx)
        return sums.get(), [grad.get() for grad in grads]

    sums, grads = device.submit(compute).result()
    assert float(sums[0]) == pytest.approx(float(expected_loss), rel=TOLERANCE[X.dtype])
    for grad, value in zip(grads, expected, strict=True):
        assert_close(grad, value, TOLERANCE[X.dtype])


def test_winograds_method_is_in_use(make_gpus):
    """In every precision: only dense layers are multiplied on tensor cores."""
    (device,) = make_gpus(1)
    params = d2l.get_params(init_params(), device)

    def stages(precision):
        return [type(stage) for stage in Program(LENET, [p.raw for p in params], (1, 28, 28), 3, precision).stages[:2]]

    for precision in PRECISIONS:
        assert device.submit(stages, precision).result() == [Convolution, WinogradConvolution]


def test_the_last_layers_gradients_are_ready_first(make_gpus, rng):
    (device,) = make_gpus(1)
    X, y, params, network = make(rng, "max pooling", 2)
    seen = []
    X, y, params = d2l.put(X, device), d2l.put(y, device), d2l.get_params(params, device)

    def compute():
        raws = [param.raw for param in params]
        cuda.loss_and_grads(X.raw, y.raw, raws, network, [raw.copy() for raw in raws], seen.append)

    device.submit(compute).result()
    assert seen == [4, 2, 2, 0]


def test_steps_on_two_devices(make_gpus, rng):
    """Steps kernel by kernel, the gradients exchanged one by one and as one message, equal those of one CPU device."""
    X, y, params, _ = make(rng, "LeNet", 5)
    cpu_params = [d2l.get_params(params, d2l.cpu(0))]
    devices = make_gpus(2)
    gpu_params = [d2l.get_params(params, device) for device in devices]
    for flat in (False, True):
        expected = d2l.train_batch(X, y, cpu_params, [d2l.cpu(0)], 0.1)
        assert d2l.train_batch(X, y, gpu_params, devices, 0.1, "ring", flat) == pytest.approx(expected, rel=1e-5)
    d2l.synchronize(devices)
    for param, other, expected in zip(*gpu_params, cpu_params[0], strict=True):
        assert d2l.to_host(param).tobytes() == d2l.to_host(other).tobytes()
        assert_close(param, d2l.to_host(expected), 1e-5)


def test_the_standin_finds_missing_waits(standin):
    """The detector of standin_streams.py, on which the tests above rely, at work."""
    one, other = d2l.gpu(0), d2l.gpu(2)  # two streams of one card
    x = d2l.put(np.arange(4.0), one)

    def write(array):
        array += 1

    def read(raw):
        return raw + 1

    one.run(write, x).result()
    with pytest.raises(standin_streams.RaceError, match="reads memory that stream .* writes"):
        other.submit(read, x.raw).result()
    other.wait(one.record())
    other.submit(read, x.raw).result()
    with pytest.raises(standin_streams.RaceError, match="writes memory that stream .* reads"):
        one.run(write, x).result()
    one.wait(other.record())
    one.run(write, x).result()


TINY = [conv(3, 1, 2, 3), RELU, AVERAGE, FLATTEN, dense(36, 5), RELU, dense(5, 4)]
TINY_NETWORK = Network(TINY, (1, 9, 8), 4)


@pytest.mark.parametrize("algorithm", ["naive", "ring", *long("tree")])
@pytest.mark.parametrize("k", [1, 2, *long(3)])
def test_captured_steps(make_gpus, rng, k, algorithm):
    """Two epochs of graph launches, the last minibatch of one example: as one float64 device step by step."""
    X, y = rng.integers(0, 256, (9, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, 9).astype(np.uint8)
    params = [p + rng.normal(0, 0.1, p.shape).astype(np.float32) for p in init_params(1, init="he", network=TINY)]
    devices = make_gpus(k)
    assert can_be_graph(X, y, devices) and why_not_one_graph(as_cluster(devices), algorithm) is None
    runner = GraphStep.of(X, y, params, devices, TINY_NETWORK, batch_size=4, algorithm=algorithm)
    device_params = [params for params, _ in runner.copies()]
    expected = [p.astype(float) for p in params]
    for epoch in range(2):
        order, lr = rng.permutation(9), 0.05 / (1 + epoch)
        runner.start_epoch(order, lr)
        sizes = [runner.launch(1)[0] for _ in range(runner.steps)]
        total = sum(runner.pause()[0])
        expected_total = 0.0
        for start in (0, 4, 8):
            chosen = order[start : start + 4]
            loss, grads = loss_and_grads_as_written(X[chosen] / 255.0, y[chosen], expected, TINY)
            expected_total += float(loss)
            for param, grad in zip(expected, grads, strict=True):
                param -= lr / len(chosen) * grad
        assert sizes == [4, 4, 1] and total == pytest.approx(expected_total, rel=1e-5)
        for copy in device_params:
            for actual, first, param in zip(copy, device_params[0], expected, strict=True):
                assert d2l.to_host(actual).tobytes() == d2l.to_host(first).tobytes()
                assert_close(actual, param, 1e-5)


@pytest.mark.parametrize(
    "precision, k, nodes, longest", [("float32", 1, 16, 9), *long(("mixed", 1, 18, 11)), ("float32", 2, 36, 11)]
)
def test_few_kernels_wait_for_one_another(standin, rng, precision, k, nodes, longest):
    """On the longest path through LeNet's step: three layers, the head, three gradients, a reduction, the update.

    Two devices also exchange halves of the gradients in two steps; mixed precision looks for overflow first, and
    adapts the scale.
    """
    X, y = rng.integers(0, 256, (2, 1, 28, 28)).astype(np.uint8), rng.integers(0, 10, 2).astype(np.uint8)
    devices = [d2l.gpu(i) for i in range(k)]
    runner = GraphStep.of(X, y, init_params(), devices, batch_size=2, precision=precision)
    runner.start_epoch(np.arange(2), 0.1)
    runner.launch(1)
    runner.pause()
    assert (len(runner.graphs[2].work), runner.graphs[2].depth) == (nodes, longest)


@pytest.mark.parametrize(
    "more, launches",
    [
        ({"checkpoint_steps": 3}, [2, 1, 1, 1] * 2),  # the last minibatch is ragged: another graph
        *long(({}, [2, 2, 1] * 2), ({"callbacks": [d2l.Callback()]}, [1] * 10)),
    ],
)
def test_steps_in_one_launch_where_nobody_looks_in_between(make_gpus, rng, tmp_path, monkeypatch, more, launches):
    """Two at once: as one by one, bit for bit, also from a checkpoint between them on."""
    X, y = rng.integers(0, 256, (12, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, 12).astype(np.uint8)
    settings = {"batch_size": 2, "lr": 0.05, "num_epochs": 2, "init": "he", "data": (X[:9], y[:9], X[9:], y[9:])}
    settings |= {"network": TINY_NETWORK, "optimizer": "adam", "progress": False}
    expected = d2l.train(make_gpus(2), **settings).history
    seen, several = [], GraphStep.launch

    def counted(self, most):
        seen.append(several(self, most))
        return seen[-1]

    monkeypatch.setattr("d2lmgpu.training.graph_step.TOGETHER", 2)
    monkeypatch.setattr(GraphStep, "launch", counted)
    history = d2l.train(make_gpus(2), checkpoint=tmp_path / "file", **settings, **more).history
    assert [len(sizes) for sizes in seen] == launches and sum(map(sum, seen)) == 18
    assert history.final_parameters_sha256 == expected.final_parameters_sha256
    assert (history.train_loss, history.train_accuracy) == (expected.train_loss, expected.train_accuracy)


def interrupted_at_step(number, runner=GraphStep):
    """A function in place of ``runner.launch``, which is interrupted before the step of this number, from 1."""
    launch, count = runner.launch, itertools.count(1)

    def counted(self, most):
        if next(count) == number:
            raise KeyboardInterrupt
        return launch(self, most)

    return counted


@pytest.mark.parametrize("precision", ["float32", *long("mixed")])
@pytest.mark.parametrize("others, optimizer", [(2, "adam"), *long((2, "sgd"), (3, "sgd"))])
def test_graphs_go_on_from_a_checkpoint(make_gpus, rng, tmp_path, monkeypatch, precision, others, optimizer):
    """In the middle of an epoch; on as many devices bit for bit, on others nearly."""
    X, y = rng.integers(0, 256, (14, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, 14).astype(np.uint8)
    settings = {"batch_size": 3, "lr": 0.05, "num_epochs": 2, "init": "he", "data": (X[:11], y[:11], X[11:], y[11:])}
    settings |= {"network": TINY_NETWORK, "precision": precision, "optimizer": optimizer, "progress": False}
    whole = d2l.train(make_gpus(2), **settings).history
    file = tmp_path / "file"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(GraphStep, "launch", interrupted_at_step(8))  # of four an epoch
        d2l.train(make_gpus(2), checkpoint=file, checkpoint_steps=2, **settings)
    resumed = d2l.train(make_gpus(others), resume=file, **settings).history
    if others == 2:
        assert resumed.final_parameters_sha256 == whole.final_parameters_sha256
        assert (resumed.train_loss, resumed.train_accuracy) == (whole.train_loss, whole.train_accuracy)
    else:
        assert resumed.train_loss == pytest.approx(whole.train_loss, rel=1e-5 if precision == "float32" else 1e-2)


@pytest.mark.parametrize("precision", ["float32", *long("mixed")])
@pytest.mark.parametrize("optimizer", ["adam", *long("momentum")])
def test_graphs_with_other_optimizers(make_gpus, rng, tmp_path, optimizer, precision):
    """As eager steps on a CPU, also when the run goes on from a checkpoint in the other's hands."""
    X, y = rng.integers(0, 256, (14, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, 14).astype(np.uint8)
    settings = {"batch_size": 4, "lr": 0.02, "init": "he", "data": (X[:11], y[:11], X[11:], y[11:])}
    settings |= {"network": TINY_NETWORK, "optimizer": optimizer, "precision": precision, "progress": False}
    file = tmp_path / "file"
    gpus = d2l.train(make_gpus(2), num_epochs=3, checkpoint=file, **settings)
    assert gpus.history.phases["step"] > 0
    expected = d2l.train([d2l.cpu(0)], num_epochs=3, **settings)
    tolerance = 2e-5 if precision == "float32" else 5e-3
    assert gpus.history.train_loss == pytest.approx(expected.history.train_loss, rel=tolerance)
    for param, other in zip(gpus.params, expected.params, strict=True):
        assert_close(param, other, 10 * tolerance)
    longer = d2l.train([d2l.cpu(0)], num_epochs=5, resume=file, **settings)
    again = d2l.train(make_gpus(3), num_epochs=5, resume=file, **settings)
    whole = d2l.train([d2l.cpu(0)], num_epochs=5, **settings)
    for run in (longer, again):
        assert run.history.train_loss == pytest.approx(whole.history.train_loss, rel=10 * tolerance)


def test_graphs_follow_loads(make_gpus, rng):
    X, y = rng.integers(0, 256, (14, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, 14).astype(np.uint8)
    settings = {"batch_size": 5, "lr": 0.05, "num_epochs": 2, "init": "he", "data": (X[:11], y[:11], X[11:], y[11:])}
    settings |= {"network": TINY_NETWORK, "progress": False}
    even, uneven = (d2l.train(make_gpus(3), loads=loads, **settings) for loads in (None, [2, 0, 1]))
    assert uneven.history.train_loss == pytest.approx(even.history.train_loss, rel=1e-5)
    shares = list(uneven.history.utilisation.values())  # a graph is everybody's work whose load is not 0
    assert shares[0] == shares[2] > 0 == shares[1]
    assert sum(shares) / 3 * sum(uneven.history.seconds_per_epoch) == pytest.approx(uneven.history.phases["step"])
    for param, expected in zip(uneven.params, even.params, strict=True):
        assert_close(param, expected, 1e-5)


def test_graphs_drop_the_rest(make_gpus, rng):
    """Two epochs of two steps, of other four out of five images; steps one by one do the same."""
    X, y = rng.integers(0, 256, (8, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, 8).astype(np.uint8)
    settings = {"batch_size": 2, "lr": 0.05, "num_epochs": 2, "init": "he", "data": (X[:5], y[:5], X[5:], y[5:])}
    settings |= {"network": TINY_NETWORK, "drop_last": True, "progress": False}
    graphs, eager = (d2l.train(make_gpus(2), graphs=graphs, **settings) for graphs in (True, False))
    assert graphs.history.phases["step"] > 0 == eager.history.phases["step"]
    assert graphs.history.train_loss == pytest.approx(eager.history.train_loss, rel=1e-5)
    for one, other in zip(graphs.params, eager.params, strict=True):
        assert_close(one, other, 1e-5)


def test_what_is_preprocessed_is_not_captured(make_gpus, rng):
    X, y = rng.integers(0, 256, (8, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, 8).astype(np.uint8)
    settings = {"batch_size": 2, "num_epochs": 1, "data": (X[:5], y[:5], X[5:], y[5:]), "network": TINY_NETWORK}
    settings |= {"preprocess": lambda X, y, rng: (1 - X, y), "progress": False}
    history, _ = d2l.train(make_gpus(2), **settings)
    assert history.phases["step"] == 0 < history.phases["forward"] and history.preprocess == "<lambda>"


def test_what_cannot_be_captured(standin, rng):
    X, y = np.zeros((4, 2, 6, 6), np.uint8), np.zeros(4, np.uint8)
    devices = [d2l.gpu(0)]
    assert not can_be_graph(X.astype(np.float32), y, devices)
    assert not can_be_graph(X, y, [d2l.cpu(0)])
    assert why_not_one_graph(as_cluster(devices), "nccl") == "allreduce 'nccl' cannot be recorded; 'ring' can"
    assert not can_be_graph(X, y, devices, NETWORKS["too large squares"][1])
    network = NETWORKS["a layer without a kernel"][1]
    assert not can_be_graph(X, y, devices, network)
    with pytest.raises(RuntimeError, match="a layer without kernels"):
        GraphStep.of(X, y, init_params(network=network), devices, Network(network, (2, 6, 6), 4), batch_size=2)


@pytest.mark.long
def test_an_overflow_is_skipped_and_the_scale_halved(make_gpus, rng, monkeypatch):
    """A loss scale beyond float16: no step changes anything until the scale has come down."""
    monkeypatch.setattr("d2lmgpu.networks.mixed.FIRST_SCALE", 2.0**18)
    X, y = rng.integers(0, 256, (8, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, 8).astype(np.uint8)
    params = init_params(1, init="he", network=TINY)
    (device,) = make_gpus(1)
    runner = GraphStep.of(X, y, params, [device], TINY_NETWORK, batch_size=2, precision="mixed")
    device_params = [params for params, _ in runner.copies()]
    scales, changed = [], []
    for _ in range(3):
        runner.start_epoch(np.arange(8), 0.05)
        for _ in range(runner.steps):
            before = [d2l.to_host(param) for param in device_params[0]]
            runner.launch(1)
            after = [d2l.to_host(param) for param in device_params[0]]
            changed.append(not all(np.array_equal(a, b) for a, b in zip(before, after, strict=True)))
            scales.append(float(runner.replicas[0].computation.arrays()[0][0]))
        runner.pause()
    assert not changed[0] and scales[0] == 2.0**17 and changed[-1] and scales[-1] < 2.0**17
    for step in range(1, 12):  # halved when nothing changed, and only then
        assert scales[step] == scales[step - 1] / (1 if changed[step] else 2)


def test_precisions_that_cannot_be(standin, monkeypatch):
    with pytest.raises(ValueError, match="'tf32' is unknown; choose from float32, mixed"):
        check_precision("tf32", [d2l.gpu(0)])
    monkeypatch.setattr(type(d2l.gpu(0)), "compute_capability", 75)
    check_precision("mixed", [d2l.gpu(0)])
    monkeypatch.setattr(type(d2l.gpu(0)), "compute_capability", 70)
    with pytest.raises(d2l.DeviceError, match=r"needs compute capability 7.5; gpu\(0\) has 7.0"):
        check_precision("mixed", [d2l.gpu(0)])


def test_results_are_arrays_of_their_own(make_gpus, rng):
    """Not views of a program's memory, which the next call writes to, and of which nobody knows how old they are."""
    (gpu,) = make_gpus(1)
    X, y = rng.random((3, 1, 9, 8), np.float32), rng.integers(0, 4, 3)
    arrays = d2l.put(X, gpu), d2l.put(y, gpu), d2l.get_params(init_params(1, network=TINY_NETWORK), gpu)
    outputs = logits(arrays[0], arrays[2], TINY_NETWORK)
    assert outputs.shape == (3, TINY_NETWORK.classes) and outputs.raw.base is None
    loss, _ = loss_and_grads(*arrays, TINY_NETWORK)
    assert loss.shape == () and loss.raw.base is None
