"""Networks with batch norm as CUDA graphs: they do what CPU devices do step by step, over each device's own images."""

import numpy as np
import pytest
from conftest import long
from test_cpu_kernels import AVERAGE, FLATTEN, MAX, RELU, conv, dense, norm
from test_cuda_program import interrupted_at_step, make_gpus  # noqa: F401

import d2lmgpu as d2l
from d2lmgpu.networks import Network, init_params
from d2lmgpu.parallel.step import Replica
from d2lmgpu.training.graph_limits import can_be_graph
from d2lmgpu.training.graph_step import GraphStep, _changing

pytestmark = pytest.mark.threads

# No bias comes right before batch norm: its gradient would be rounding alone, which Adam makes steps of.
NETWORK = Network(
    [norm(1), conv(3, 1, 2, 3), RELU, norm(3), RELU, AVERAGE, FLATTEN, dense(36, 5), RELU, dense(5, 4)], (1, 9, 8), 4
)
AS_IN_LENET = Network(
    [conv(3, 1, 2, 3), norm(3), RELU, MAX, FLATTEN, dense(36, 5), norm(5), RELU, dense(5, 4)], (1, 9, 8), 4
)


def settings(rng, **more):
    """Of a run of two epochs, whose last minibatch has three images."""
    X, y = rng.integers(0, 256, (14, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, 14).astype(np.uint8)
    data = X[:11], y[:11], X[11:], y[11:]
    more = {"batch_size": 4, "lr": 0.05, "num_epochs": 2, "network": NETWORK} | more
    return {"init": "he", "data": data, "progress": False} | more


def same(run, expected, tolerance):
    assert run.history.train_loss == pytest.approx(expected.history.train_loss, rel=tolerance)
    assert len(run.statistics) == len(expected.statistics)
    for one, other in zip([*run.params, *run.statistics], [*expected.params, *expected.statistics], strict=True):
        value = np.asarray(d2l.to_host(other))
        largest = max(0.1, np.abs(value).max())  # biases before batch norm have but rounding
        np.testing.assert_allclose(d2l.to_host(one), value, rtol=0, atol=10 * tolerance * largest)


@pytest.mark.parametrize("k, loads", [(3, [2, 0, 1]), *long((1, None), (2, None), (3, None))])
def test_as_step_by_step(make_gpus, rng, k, loads):  # noqa: F811
    """As on CPU devices; with load 0 a device sees no image at all."""
    given = settings(rng, loads=loads)
    run = d2l.train(make_gpus(k), **given)
    assert run.history.phases["step"] > 0 == run.history.phases["forward"]
    same(run, d2l.train([d2l.cpu(i) for i in range(k)], **given), 2e-5)


def test_every_device_keeps_the_statistics_of_its_images(make_gpus, rng):  # noqa: F811
    """Not the same on all devices; and the recording has changed nothing."""
    X, y = rng.integers(0, 256, (12, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, 12).astype(np.uint8)
    devices = make_gpus(2)
    params = init_params(1, init="he", network=NETWORK)
    assert can_be_graph(X, y, devices, NETWORK)
    runner = GraphStep.of(X, y, params, devices, NETWORK, batch_size=4)
    params, statistics = zip(*runner.copies(), strict=True)
    for own in statistics:
        for mean, variance in zip(own[::2], own[1::2], strict=True):
            assert not d2l.to_host(mean).any() and (d2l.to_host(variance) == 1).all()
    runner.start_epoch(rng.permutation(12), 0.05)
    for _ in range(runner.steps):
        runner.launch(1)
    runner.pause()
    arrays = [[d2l.to_host(array) for array in own] for own in statistics]
    for one, other in zip(*arrays, strict=True):
        assert one.tobytes() != other.tobytes()
    for one, other in zip(*params, strict=True):
        assert d2l.to_host(one).tobytes() == d2l.to_host(other).tobytes()


@pytest.mark.parametrize("precision, optimizer", [("float32", "momentum"), *long(("mixed", "adam"))])
def test_recording_changes_nothing(make_gpus, rng, precision, optimizer):  # noqa: F811
    """Also on devices that have a past, in the midst of an epoch."""
    X, y = rng.integers(0, 256, (11, 1, 9, 8)).astype(np.uint8), rng.integers(0, 4, 11).astype(np.uint8)
    devices, params = make_gpus(2), init_params(1, init="he", network=NETWORK)
    given = {"batch_size": 4, "precision": precision, "optimizer": optimizer}
    runner = GraphStep.of(X, y, params, devices, NETWORK, **given)

    def states():
        runner.pause()
        d2l.synchronize(devices)
        found = []
        for replica in runner.replicas:
            arrays = _changing(replica)
            found += replica.device.submit(lambda arrays=arrays: [array.get() for array in arrays]).result()
        return [array.tobytes() for array in found]

    for replica in runner.replicas:
        for array, expected in zip(replica.params, params, strict=True):
            assert d2l.to_host(array).tobytes() == expected.tobytes()
        assert not any(d2l.to_host(array).any() for array in replica.optimizer.flat_state)
    state = [rng.random(array.shape).astype(np.float32) for array in runner.replicas[0].optimizer.flat_state]
    statistics = [rng.random(array.shape).astype(np.float32) for array in runner.copies()[0][1]]
    runner.set_state(
        runner.state()[0] | {"kept": state, "statistics of 0": statistics, "statistics of 1": statistics}, 7
    )
    runner.start_epoch(rng.permutation(11), 0.05)
    runner.launch(1)
    before = states()
    for n in (4, 3):
        runner.record(n)
        assert states() == before
    runner.launch(1)
    assert states() != before


def test_going_on_from_a_checkpoint(make_gpus, rng, tmp_path, monkeypatch):  # noqa: F811
    """In the middle of an epoch, with the running statistics, bit for bit."""
    given = settings(rng, optimizer="adam", lr=0.01)
    whole = d2l.train(make_gpus(2), **given)
    file = tmp_path / "file"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(GraphStep, "launch", interrupted_at_step(6))  # of three an epoch
        d2l.train(make_gpus(2), checkpoint=file, checkpoint_steps=2, **given)
    resumed = d2l.train(make_gpus(2), resume=file, **given)
    assert resumed.history.final_parameters_sha256 == whole.history.final_parameters_sha256
    for one, other in zip(resumed.statistics, whole.statistics, strict=True):
        assert d2l.to_host(one).tobytes() == d2l.to_host(other).tobytes()


@pytest.mark.long
def test_a_step_that_fails_is_launched_by_hand(standin, rng, monkeypatch, capsys):
    """When it is tried, with work under way on branches, or when it is recorded."""
    given = settings(rng)
    expected, update = d2l.train([d2l.cpu(i) for i in range(2)], **given), Replica.update
    for while_captured in (False, True):
        count = [0]

        def fail(self, *numbers, while_captured=while_captured, count=count):
            if self.device.stream.is_capturing() == while_captured:
                count[0] += 1
                if count[0] == 1:
                    raise RuntimeError("no more")
            update(self, *numbers)

        with monkeypatch.context() as patch:
            patch.setattr(Replica, "update", fail)
            run = d2l.train([d2l.gpu(i) for i in range(2)], **given)
        assert run.history.phases["step"] == 0
        same(run, expected, 2e-5)
        assert "the step cannot be a CUDA graph (no more)" in capsys.readouterr().err
    run = d2l.train([d2l.gpu(i) for i in range(2)], **given)
    assert run.history.phases["step"] > 0
    same(run, expected, 2e-5)
