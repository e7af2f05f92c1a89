"""How many training examples were right when their step computed them: counted by the steps, and here in NumPy."""

import json

import numpy as np
import pytest
from conftest import LONG_ON_STANDIN, few, long
from plan_steps import execution_of, step
from test_cuda_program import TINY_NETWORK, make_gpus  # noqa: F401
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.networks import NETWORKS, half_weights, in_half, init_params, logits_as_written
from d2lmgpu.parallel.shards import shard_bounds
from d2lmgpu.training.graph_step import GraphStep
from d2lmgpu.training.textbook_steps import TextbookSteps

SIZES = [96, 37, 7, 1, 3]  # a full minibatch, ragged ones, fewer than 8 devices
LOADS = {1: [1], 2: [1, 0], 3: [3, 0, 1], 5: [1, 2, 0, 1, 1], 8: [1, 2, 3, 0, 1, 1, 0, 2]}


def minibatches(dtype):
    """Random images, with labels that the network begins to learn."""
    rng = np.random.default_rng(12)
    return [(rng.random((n, 1, 28, 28)).astype(dtype), rng.integers(0, 3, n)) for n in SIZES]


def count(X, y, params, network, precision="float32"):
    """By the layers as they are written, in float64."""
    if precision == "mixed":
        params, network = half_weights(params), in_half(network)
    exact = X.astype(float), [param.astype(float) for param in params], network
    scores = logits_as_written(*exact) if len(X) else X[:, 0, 0, :3]
    return int((np.argmax(scores, axis=1) == y).sum())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("sums, network", [("float", "lenet"), ("float", "lenet-bn"), ("exact", "lenet")])
def test_only_rows_that_are_not_finite_are_wrong(make_devices, sums, network):
    """In steps, `evaluate` and `predict`, on any number of devices; all labels are 0, the place of the first NaN."""
    (X, _), *_ = minibatches(np.float32)
    params, y, made = init_params(1, init="he", network=NETWORKS[network]), np.zeros(len(X), int), NETWORKS[network]
    statistics = [np.full(C, fill, np.float32) for C in d2l.networks.channels(made) for fill in (0, 1)]
    logits = logits_as_written(X, params, made, statistics)
    params[-1][0] += np.median(logits[:, 1:].max(axis=1) - logits[:, 0])  # now half of the images are taken for 0
    right = logits_as_written(X, params, made, statistics).argmax(axis=1) == 0
    X[::5, 0, 3, 4] = np.nan
    for k in (1, 3):
        devices = make_devices(k)
        found = d2l.evaluate(params, X, y, devices, made, statistics, sums=sums)
        assert found == pytest.approx(np.delete(right, np.s_[::5]).sum() / len(X)) and 0 < found < right.mean()
        probabilities = d2l.predict(params, X, devices, made, statistics)
        assert np.isnan(probabilities[::5]).all() and np.isfinite(np.delete(probabilities, np.s_[::5], 0)).all()


EAGER = [  # network, precision, loads, settings of the step
    ("lenet", "float32", None, {}),
    ("lenet", "float32", LOADS, {"flat": True}),
    ("lenet", "mixed", None, {"flat": True}),
    ("lenet-bn", "float32", None, {"batch_statistics": "aggregated"}),
]


@LONG_ON_STANDIN
@pytest.mark.parametrize("dtype", [np.float32, *long(np.float64)])
@pytest.mark.parametrize("network, precision, loads, settings", EAGER)
@pytest.mark.parametrize("k", few([1, 2, 3, 5, 8], 1, 3, 8))
def test_steps_count_before_they_update(make_devices, k, network, precision, loads, settings, dtype):
    made, devices = NETWORKS[network], make_devices(k)
    params = init_params(1, init="he", network=made, dtype=dtype)
    execution = execution_of(params, devices, made, precision=precision, **settings)
    counts, expected = [], []
    for X, y in minibatches(dtype):
        own = loads and loads[k]
        params = execution.params()
        alone = [(X, y)]  # batch norm takes the statistics of whatever images it is given
        if settings.get("batch_statistics") == "aggregated":
            alone = [(X[start:stop], y[start:stop]) for start, stop in shard_bounds(len(y), k, own)]
        expected.append(sum(count(*images, params, made, precision) for images in alone))
        step(execution, X, y, 0.1, own)
        counts.append(execution.correct)
    assert counts == expected and 0 < sum(counts) < sum(SIZES) and all(type(number) is int for number in counts)


def test_float64_counts_too():
    test_steps_count_before_they_update(lambda k: [d2l.cpu(i) for i in range(k)], 2, *EAGER[0], np.float64)


def tiny_data(rng):
    X, y = rng.integers(0, 256, (25, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, 25).astype(np.uint8)
    return X[:19], y[:19], X[19:], y[19:]


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("k, loads", [(2, [0, 1]), *long((1, None), (3, [2, 0, 1]), (5, None), (8, None))])
def test_an_epoch_on_gpus(make_gpus, rng, monkeypatch, graphs, k, loads):  # noqa: F811
    """With a learning rate too small to change a bit, every epoch counts what the initial parameters get right."""
    data = tiny_data(rng)
    settings = {"num_epochs": 2, "batch_size": 4, "lr": 1e-30, "init": "he", "network": TINY_NETWORK, "progress": False}
    runner, seen = (GraphStep if graphs else TextbookSteps), []
    pause = runner.pause
    monkeypatch.setattr(runner, "pause", lambda self: seen.append(self) or pause(self))
    history, _ = d2l.train(make_gpus(k), data=data, graphs=graphs, loads=loads, **settings)
    expected = count(data[0] / 255, data[1], init_params(0, init="he", network=TINY_NETWORK), TINY_NETWORK)
    assert seen and history.train_accuracy == [expected / 19] * 2 and 0 < expected < 19


@pytest.mark.parametrize("settings", [{}, {"prefetch": False}, {"drop_last": True}, {"loads": [2, 0, 1]}])
def test_an_epoch_of_steps(small, settings):
    """As above, on virtual devices; what is left out of an epoch is not counted."""
    order = d2l.data.epoch_order(600, 0, 0)[: 500 if "drop_last" in settings else 600]
    history, _ = quick([d2l.cpu(i) for i in range(3)], small, num_epochs=1, batch_size=250, lr=1e-30, **settings)
    X, y = d2l.data.to_float(small[0][order]), small[1][order]
    assert history.train_accuracy == [count(X, y, init_params(0, init="he"), NETWORKS["lenet"]) / len(order)]


def test_what_is_said_and_kept(small, tmp_path, capsys):
    result = tmp_path / "result.json"
    command = "train --environment cpu --devices 2 --limit 500 --epochs 2 --init he --batch-size 100".split()
    assert cli.main([*command, "--json", str(result)]) == 0
    history = json.loads(result.read_text())
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("epoch")]
    for i, line in enumerate(lines):
        loss, trained, tested = (history[name][i] for name in ("train_loss", "train_accuracy", "test_accuracy"))
        assert line.startswith(f"epoch {i + 1}/2: loss {loss:.3f}, train acc {trained:.3f}, test acc {tested:.3f}, ")
    assert len(lines) == 2 and 0.1 < history["train_accuracy"][0] < history["train_accuracy"][1] <= 1


class Until(d2l.Callback):
    def __init__(self, steps):
        self.left = steps

    def on_step(self, epoch, step, loss):
        self.left -= 1
        return self.left == 0
