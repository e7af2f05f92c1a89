"""Steps as CUDA graphs learn what virtual devices learn, however the run is set; which steps are none, and why."""

import gc

import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import few, long, sampled, use_tiny_granules
from gpus import (
    BEFORE_NORM,
    GRAPH_NETWORKS,
    TINY_NETWORK,
    TINY_WITH_NORM,
    alone,  # noqa: F401
    assert_as,
    assert_near,
    gpus,
    interrupted_at_step,
    learned,
    machine,  # noqa: F401
    make_gpus,  # noqa: F401
    small_data,
    train,
)
from standin_nccl import install_nccl

import d2lmgpu as d2l
from d2lmgpu.cluster import as_cluster
from d2lmgpu.networks import LENET, AvgPool2d, Dense, Dropout, Flatten, init_params, sequential
from d2lmgpu.parallel.step import Replica
from d2lmgpu.training.checks import check_precision
from d2lmgpu.training.graph_step import GraphStep, _changing
from d2lmgpu.training.make_runner import can_be_graph, why_not_one_graph

pytestmark = pytest.mark.threads

NETWORKS = {"tiny": TINY_NETWORK, "tiny with batch norm": TINY_WITH_NORM, **GRAPH_NETWORKS}
RATES = {"sgd": 0.02, "momentum": 0.01, "adam": 0.002}
SQUARE = [  # each network with each precision, and optimisers and ways to share out images in turn
    (
        network,
        [[1, 1], [1], [2, 0, 1]][(i + 2 * j) % 3],
        {"precision": precision, "optimizer": list(RATES)[(i + j) % 3]},
    )
    for i, network in enumerate(GRAPH_NETWORKS)
    for j, precision in enumerate(["float32", "mixed"])
]
SPLITS = [{"split": split} for split in ("data", "layers", "channels", "zero2", "zero3")]
RUNS = [
    ("tiny", [1], {"precision": "mixed", "optimizer": "adam", "algorithm": "naive"}),
    ("tiny", [1, 1], {"algorithm": "tree"}),
    ("tiny", [1, 1], {"precision": "mixed", "optimizer": "momentum", "drop_last": True}),
    ("tiny with batch norm", [2, 0, 1], {"optimizer": "momentum"}),
    ("tiny with batch norm", [1], {}),
    ("tiny with batch norm", [1, 1], {"precision": "mixed"}),
    ("tiny with batch norm", [2, 0, 1], {"graphs": False}),
    ("tiny with batch norm", [2, 0, 1], {"batch_statistics": "aggregated"}),
    ("tiny", [1, 1], {"overlap": True}),
    ("tiny", [1, 1], {"split": "layers", "pipeline": "gpipe", "micro_batches": 3}),
    *(("tiny", [1, 1], {"micro_batches": 2} | split) for split in SPLITS),
    *SQUARE,
]
NO_GRAPHS = {"graphs", "batch_statistics", "split", "overlap"}


@pytest.mark.parametrize("network, loads, settings", few(RUNS, *RUNS[:2], parts=3))
def test_as_virtual_devices(make_gpus, rng, capsys, network, loads, settings):  # noqa: F811
    """What was learned, not where it began. The last minibatch has one image, so that the second of two devices then
    has none. A sum of float32 may be rounded to the next factor, 2^-11 away."""
    made, k = NETWORKS[network], len(loads)
    settings = {"precision": "float32", "optimizer": "sgd", "network": made} | settings
    is_mixed, optimizer = settings["precision"] == "mixed", settings["optimizer"]
    settings |= {"lr": RATES[optimizer], "loads": loads if loads != [1] * k else None}
    data, in_graphs = small_data(rng, 9, made), not NO_GRAPHS & settings.keys()
    run = train(make_gpus(k), data, **settings)
    assert "CUDA graph" not in capsys.readouterr().err
    expected = train([d2l.cpu(i) for i in range(k)], data, **settings)
    history, other, tolerance = run.history, expected.history, 2e-3 if is_mixed else 1e-4
    assert (history.phases["step"] > 0) == (history.phases["forward"] == 0) == in_graphs
    assert history.train_loss == pytest.approx(other.train_loss, rel=tolerance / 5)
    # where two logits are nearly equal rounding decides
    assert history.train_accuracy == pytest.approx(other.train_accuracy, abs=is_mixed / 9 + 1e-9)
    before = init_params(0, init="he", network=made)
    for i, (param, value, start) in enumerate(zip(run.params, expected.params, before, strict=True)):
        if i not in BEFORE_NORM.get(network, ()):
            assert_near(d2l.to_host(param) - start, d2l.to_host(value) - start, tolerance)
    for i, (one, value) in enumerate(zip(run.statistics, expected.statistics, strict=True)):
        follows_bias = network in BEFORE_NORM and optimizer == "adam" and i % 2 == 0  # whose gradient is rounding
        assert_near(d2l.to_host(one), d2l.to_host(value), 2e-2 if follows_bias else tolerance)
    if in_graphs:  # a graph is everybody's work whose load is not 0
        shares = list(history.utilisation.values())
        assert [share > 0 for share in shares] == [load > 0 for load in loads] and len({*shares} - {0}) == 1


@pytest.mark.parametrize(
    "network, precision, k, nodes, longest",
    [
        (TINY_NETWORK, "float32", 1, 11, 7),
        *long((LENET, "float32", 1, 16, 9), (LENET, "mixed", 1, 18, 11), (LENET, "float32", 2, 36, 11)),
    ],
)
def test_few_kernels_wait_for_one_another(standin, rng, network, precision, k, nodes, longest):
    """On the longest path through LeNet's step: three layers, the head, three gradients, a reduction, the update.

    Two devices also exchange halves of the gradients in two steps; mixed precision looks for overflow first, and
    adapts the scale.
    """
    X, y, *_ = small_data(rng, 2, network)
    runner = GraphStep.of(X, y, init_params(network=network), gpus(k), network, batch_size=2, precision=precision)
    runner.start_epoch(np.arange(2), 0.1)
    runner.launch(1)
    runner.pause()
    assert (len(runner.graphs[2].work), runner.graphs[2].depth) == (nodes, longest)


@pytest.mark.parametrize(
    "more, launches",
    [
        # the last minibatch is ragged: another graph
        *long(({"checkpoint_steps": 3}, [2, 1, 1, 1]), ({}, [2, 2, 1]), ({"callbacks": [d2l.Callback()]}, [1] * 5)),
    ],
)
def test_steps_in_one_launch_where_nobody_looks(make_gpus, rng, tmp_path, monkeypatch, more, launches):  # noqa: F811
    """Two at once: as one by one, bit for bit, also with a checkpoint between them."""
    data, given = small_data(rng, 9), {"batch_size": 2, "optimizer": "adam", "num_epochs": 1}
    expected = train(make_gpus(2), data, **given)
    seen, several = [], GraphStep.launch

    def counted(self, most):
        seen.append(several(self, most))
        return seen[-1]

    monkeypatch.setattr("d2lmgpu.training.graph_step.TOGETHER", 2)
    monkeypatch.setattr(GraphStep, "launch", counted)
    run = train(make_gpus(2), data, checkpoint=tmp_path / "file", **given, **more)
    assert [len(sizes) for sizes in seen] == launches and sum(map(sum, seen)) == 9
    assert learned(run) == learned(expected)


@pytest.mark.parametrize(
    "others, settings",
    [
        (2, {"optimizer": "adam", "num_epochs": 1}),
        *long((2, {"network": TINY_WITH_NORM, "optimizer": "adam", "lr": 0.01})),
        *sampled([(3, {}), (3, {"precision": "mixed"}), (0, {"optimizer": "momentum"})], 3),
    ],
)
def test_a_run_goes_on_from_a_checkpoint(make_gpus, rng, tmp_path, monkeypatch, others, settings):  # noqa: F811
    """In the middle of an epoch; on as many devices bit for bit, on others, or on a CPU, nearly."""
    data, file = small_data(rng), tmp_path / "file"
    whole = train(make_gpus(2), data, **settings)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(GraphStep, "launch", interrupted_at_step(3))  # of three an epoch
        train(make_gpus(2), data, checkpoint=file, checkpoint_steps=2, **settings)
    resumed = train(make_gpus(others) or [d2l.cpu(0)], data, resume=file, **settings)
    if others == 2:
        assert learned(resumed) == learned(whole)
    else:
        assert_as(resumed, whole, 1e-2 if "precision" in settings else 2e-5)


@pytest.mark.long
@pytest.mark.parametrize("precision, optimizer", [("float32", "momentum"), ("mixed", "adam")])
def test_recording_changes_nothing(make_gpus, rng, precision, optimizer):  # noqa: F811
    """Also on devices that have a past, in the midst of an epoch. Each keeps the statistics of its own images."""
    X, y, *_ = small_data(rng)
    devices, params = make_gpus(2), init_params(1, init="he", network=TINY_WITH_NORM)
    given = {"batch_size": 4, "precision": precision, "optimizer": optimizer}
    runner = GraphStep.of(X, y, params, devices, TINY_WITH_NORM, **given)

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
    kept = {"kept": state, "statistics of 0": statistics, "statistics of 1": statistics}
    runner.set_state(runner.state()[0] | kept, 7)
    runner.start_epoch(rng.permutation(11), 0.05)
    runner.launch(1)
    before = states()
    for n in (4, 3):
        runner.record(n)
        assert states() == before
    runner.launch(1)
    assert states() != before
    (params, statistics), (same, others) = runner.copies()
    for one, other in zip(params, same, strict=True):
        assert d2l.to_host(one).tobytes() == d2l.to_host(other).tobytes()
    for one, other in zip(statistics, others, strict=True):
        assert d2l.to_host(one).tobytes() != d2l.to_host(other).tobytes()


def test_memory_of_a_graph_is_given_to_nobody_else(make_gpus, rng):  # noqa: F811
    """Between steps other arrays are made, as large as those that came and went while it was recorded, and larger
    collectives than the graph's take place, for which devices replace their buffers."""
    (X, y, *_), devices = small_data(rng), make_gpus(2)
    params, given = init_params(0, init="he", network=TINY_NETWORK), {"algorithm": "recursive_doubling"}
    found = []
    for meanwhile in (False, True):
        runner = GraphStep.of(X, y, params, devices, TINY_NETWORK, batch_size=4, **given)
        gc.collect()
        runner.start_epoch(np.arange(11), 0.05)
        for size in (5001, 10_001, 20_001) if meanwhile else (1, 1, 1):
            runner.launch(1)
            for n in range(1, 300) if meanwhile else ():
                d2l.put(np.full(n, np.nan, np.float32), devices[n % 2])
            d2l.allreduce([d2l.put(np.ones(size, np.float32), device) for device in devices], "recursive_doubling")
        found.append((runner.pause()[0], [d2l.to_host(array).tobytes() for array in runner.copies()[0][0]]))
    assert found[0] == found[1]


@pytest.mark.long
def test_an_overflow_is_skipped_and_the_scale_halved(make_gpus, rng, monkeypatch):  # noqa: F811
    """A loss scale beyond float16: no step changes anything until the scale has come down."""
    monkeypatch.setattr("d2lmgpu.networks.mixed.FIRST_SCALE", 2.0**18)
    X, y, *_ = small_data(rng, 8)
    params = init_params(1, init="he", network=TINY_NETWORK)
    runner = GraphStep.of(X, y, params, make_gpus(1), TINY_NETWORK, batch_size=2, precision="mixed")
    ((params, _),) = runner.copies()
    scale, changed = 2.0**18, []
    for _ in range(3):
        runner.start_epoch(np.arange(8), 0.05)
        for _ in range(runner.steps):
            before = [d2l.to_host(param) for param in params]
            runner.launch(1)
            changed.append(any((d2l.to_host(a) != b).any() for a, b in zip(params, before, strict=True)))
            scale /= 1 if changed[-1] else 2
            assert float(runner.replicas[0].computation.arrays()[0][0]) == scale
        runner.pause()
    assert not changed[0] and changed[-1]


# Steps that are none.


@pytest.mark.parametrize("precision", sampled(["float32", "mixed"], 2))
@pytest.mark.parametrize("when", ["tried", "recorded", "recorded, where it waits"])
def test_a_step_that_fails_is_launched_by_hand(standin, rng, monkeypatch, capsys, when, precision):
    """With work under way on branches. It leaves devices on which anything else works: here a graph."""
    data, given = small_data(rng), {"network": TINY_WITH_NORM, "precision": precision}
    expected, update, failed = train([d2l.cpu(0), d2l.cpu(1)], data, **given), Replica.update, []

    def fail(self, *numbers):
        if self.device.stream.is_capturing() == (when != "tried") and not failed:
            failed.append(self)
            if when == "recorded, where it waits":
                update(self, *numbers)
                self.device.stream.synchronize()
            raise RuntimeError("no more")
        update(self, *numbers)

    tolerance = 2e-5 if precision == "float32" else 1e-2
    with monkeypatch.context() as patch:
        patch.setattr(Replica, "update", fail)
        run = train(gpus(), data, **given)
    assert run.history.phases["step"] == 0 and failed
    assert_as(run, expected, tolerance)
    assert "the step cannot be a CUDA graph (" in capsys.readouterr().err
    run = train(gpus(), data, **given)
    assert run.history.phases["step"] > 0
    assert_as(run, expected, tolerance)


WHY = {
    "nccl": "allreduce 'nccl' cannot be recorded; 'ring' can",
    "peers": "its cards cannot use each other's memory",
    "processes": "its devices belong to several processes",
}


@pytest.mark.parametrize("what", ["nccl", "peers", *long("processes")])
def test_a_note_says_what_prevents_a_graph(machine, alone, monkeypatch, capsys, what):  # noqa: F811
    machine(2, peers=[] if what == "peers" else None)
    install_nccl(monkeypatch)
    data, expected = alone
    if what == "processes":
        run, _ = in_each((1, 1), lambda cluster: train(cluster, data), kinds=["gpu"] * 2)
    else:
        run = train(gpus(), data, algorithm="nccl" if what == "nccl" else "ring")
    assert run.history.phases["step"] == 0
    assert capsys.readouterr().err.count(f"note: the step cannot be a CUDA graph ({WHY[what]})") == 1
    assert_as(run, expected)


def test_what_cannot_be_captured(make_gpus, rng):  # noqa: F811
    X, y = np.zeros((4, 2, 6, 6), np.uint8), np.zeros(4, np.uint8)
    devices, network = make_gpus(1), sequential((2, 6, 6), Flatten(), Dense(4))
    assert can_be_graph(X, y, devices, network) and why_not_one_graph(as_cluster(devices), "ring") is None
    assert not can_be_graph(X.astype(np.float32), y, devices, network)
    assert not can_be_graph(X, y + 0.5, devices, network)
    assert not can_be_graph(X, y, [d2l.cpu(0)], network)
    for without in (AvgPool2d(5), Dropout(0.1)):
        network = sequential((2, 6, 6), without, Flatten(), Dense(4))
        assert not can_be_graph(X, y, devices, network)
        with pytest.raises(RuntimeError, match="a layer without kernels"):
            GraphStep.of(X, y, init_params(network=network), devices, network, batch_size=2)
    history, _ = train(devices, small_data(rng), num_epochs=1, preprocess=lambda X, y, rng: (1 - X, y))
    assert history.phases["step"] == 0 < history.phases["forward"]
    devices[0].limit_memory(2**24)
    assert train(devices, small_data(rng), num_epochs=1).history.phases["step"] == 0


def test_precisions_that_cannot_be(standin, monkeypatch):
    with pytest.raises(ValueError, match="'tf32' is unknown"):
        check_precision("tf32", gpus(1))
    monkeypatch.setattr(type(d2l.gpu(0)), "compute_capability", 75)
    check_precision("mixed", gpus(1))
    monkeypatch.setattr(type(d2l.gpu(0)), "compute_capability", 70)
    with pytest.raises(d2l.DeviceError, match=r"needs compute capability 7.5; gpu\(0\) has 7.0"):
        check_precision("mixed", gpus(1))


@pytest.mark.long
def test_exact_sums(machine, rng, monkeypatch):  # noqa: F811
    """Any number of GPUs gives the same bits, through the host, too, and in processes; NCCL adds integers."""
    use_tiny_granules(monkeypatch)
    machine(3, peers=[(1, 2)])
    calls, data = install_nccl(monkeypatch), small_data(rng)

    def learned_by(devices, **way):
        return learned(train(devices, data, sums="exact", optimizer="adam", lr=0.01, **way))

    one = learned_by(gpus(1))
    for k, way in (2, {"algorithm": "nccl"}), (3, {"loads": [2, 0, 1], "flat": False, "algorithm": "tree"}):
        assert learned_by(gpus(k), **way) == one
    assert {call.kind for call in calls} == {"int64"}
    assert {*map(repr, in_each((2, 1), learned_by, kinds=["gpu", "gpu"]))} == {repr(one)}
