"""Exact sums: whoever adds them, in whatever order, the bits are the same; what they cannot hold is an error."""

import functools
import random
import time

import numpy as np
import pytest
import same_bits
from clusters_in_threads import in_each
from conftest import long, sampled
from test_plan_execution import GRADIENTS, assert_memory, batch, start

import d2lmgpu as d2l
from d2lmgpu.collectives import prove
from d2lmgpu.exact import GRANULE, ExactSums, SumError, as_floats, as_integers
from d2lmgpu.language.actions import Transfer
from d2lmgpu.networks import LENET, LENET_BN, loss_and_grads
from d2lmgpu.plans import PLANS, Execution
from d2lmgpu.training import Settings
from d2lmgpu.training.splits import plan_of


def cpus(k):
    return [d2l.cpu(i) for i in range(k)]


# Sums:


def test_integers_are_the_nearest_and_their_sum_is_that_of_all_orders(rng):
    terms = (rng.normal(size=(8, 1000)) * 10.0 ** rng.integers(-9, 3, (8, 1000))).astype(np.float32)
    whole = as_integers(terms)
    assert whole.dtype == np.int64
    assert np.abs(whole * 2.0**-40 - terms.astype(float)).max() <= 2.0**-41
    sums = {as_floats(sum(whole[order]), np.float32).tobytes() for order in map(rng.permutation, [8] * 20)}
    floats = {sum(terms[order]).tobytes() for order in map(rng.permutation, [8] * 20)}
    assert len(sums) == 1 and len(floats) > 1
    np.testing.assert_allclose(as_floats(sum(whole), np.float32), terms.sum(0, dtype=float), rtol=6e-8, atol=2.0**-37)


def test_a_scale_changes_nothing(rng):
    values = rng.normal(size=50).astype(np.float32)
    np.testing.assert_array_equal(as_integers(values * 4096, 4096), as_integers(values))


@pytest.mark.parametrize("examples", [1, 64, 65, 64 * 512])
def test_sums_of_the_largest_terms_do_not_wrap(examples):
    sums, total = ExactSums(examples, "here"), np.zeros(2, np.int64)
    largest = np.nextafter(np.float32(2.0**22 / sums.granules), np.float32(0))
    for _ in range(sums.granules):
        sums.add_gradients([total], [np.array([largest, -largest])])
    assert as_floats(total, np.float64).tolist() == [sums.granules * float(largest), -sums.granules * float(largest)]


@pytest.mark.parametrize("value, said", [(2.0**20, "1.05e[+]06"), (-np.inf, "inf"), (np.nan, "nan")])
def test_what_does_not_fit_is_an_error(value, said):
    sums, totals = ExactSums(4 * GRANULE, "on cpu(1) in step 3"), [np.zeros(3, np.int64) for _ in range(2)]
    sums.first = 4
    with pytest.raises(SumError, match=f"the gradient of parameter 7 is {said} for a granule on cpu.1. in step 3"):
        sums.add_gradients(totals, [np.ones(3, np.float32), np.array([1, value, 1], np.float32)], 2)
    with pytest.raises(SumError, match="the loss is nan"):
        sums.losses(np.array([np.nan, 3]))


def test_losses_and_moments_are_added_without_rounding(rng):
    sums = ExactSums(10**5, "here")
    for rounded, scale in (sums.losses, 200), (lambda terms: sums.moments(terms, 169), 6e4), (sums.norm_sums, 3):
        terms = [rounded(rng.normal(size=5) * scale) for _ in range(sums.granules)]
        assert len({sum(random.sample(terms, len(terms))).tobytes() for _ in range(20)}) == 1


# Granules:


@pytest.mark.parametrize("network, dtype", [(LENET, np.float32), *long((LENET, np.float64))])
def test_a_granules_gradients_have_the_same_bits_wherever_they_are_computed(network, dtype):
    (X, y), params = batch(3 * GRANULE + 7, dtype, network), start(dtype, network)

    def grads_of(part):
        grads = [np.zeros(param.shape, np.int64) for param in params]
        loss, _ = loss_and_grads(X[part], y[part], params, network, grads, exact=ExactSums(len(y), "here"))
        return [np.asarray(loss * 2.0**24), *grads]

    whole = d2l.cpu(0).submit(grads_of, slice(None)).result()
    parts = [slice(0, 64), slice(64, 192), slice(192, 199)]
    found = [d2l.cpu(i).submit(grads_of, part).result() for i, part in enumerate(parts)]
    for one, *others in zip(whole, *found, strict=True):
        np.testing.assert_array_equal(one, sum(others))


@pytest.mark.parametrize(
    "n, k, loads", [(256, 3, None), (256, 8, None), (97, 2, None), (300, 3, [1, 0, 2]), (5, 2, None)]
)
def test_shards_are_whole_granules(n, k, loads):
    X, y = batch(n, np.float32)
    X_shards, y_shards = d2l.split_batch(X, y, cpus(k), loads, sums="exact")
    np.testing.assert_array_equal(np.concatenate([d2l.to_host(shard) for shard in X_shards]), X)
    ends = np.cumsum([len(shard) for shard in y_shards])
    assert all(end % GRANULE == 0 or end == n for end in ends) and ends[-1] == n
    granules = [-(-len(shard) // GRANULE) for shard in y_shards]
    assert loads or max(granules) - min(granules) <= 1


def test_sums_by_another_name(rng):
    X, y = batch(5, np.float32)
    with pytest.raises(ValueError, match="sums 'exakt' is unknown"):
        d2l.split_batch(X, y, cpus(2), sums="exakt")
    with pytest.raises(ValueError, match="batch norm"):
        device_params = [d2l.get_params(start(np.float32, LENET_BN), device) for device in cpus(2)]
        d2l.train_batch(X, y, device_params, cpus(2), 0.1, network=LENET_BN, sums="exact")


# Steps, and runs:

WAYS = [(run, k, way) for run in same_bits.RUNS for k, way in same_bits.ways(run)]
EXAMPLES = 256 + 97


@functools.cache
def alone(run):
    return same_bits.train(run, cpus(1), {}, examples=EXAMPLES)


@pytest.mark.parametrize("run, k, way", [*random.Random(0).sample(WAYS, 25), *sampled(WAYS, 25)])
def test_every_way_gives_the_bits_of_one_device(run, k, way):
    assert same_bits.train(run, cpus(k), way, examples=EXAMPLES) == alone(run)


@pytest.mark.parametrize("run", same_bits.RUNS)
def test_exact_sums_are_near_to_float_sums(run):
    checksum, loss, *_ = same_bits.train(run, cpus(2), {}, "float", examples=EXAMPLES)
    assert checksum != alone(run)[0]
    assert loss == pytest.approx(alone(run)[1], rel=1e-3)


ACROSS = [("SGD", {}), ("SGD", {"algorithm": "hierarchical", "split": "data"}), ("mixed", {"split": "zero3"})]
ACROSS += [("lenet-bn", {"split": "zero2"}), ("dropout", {"split": "layers", "pipeline": "1f1b", "micro_batches": 3})]


@pytest.mark.threads
@pytest.mark.parametrize("split", [(1, 1), (2, 1), (1, 1, 1)])
@pytest.mark.parametrize("run, way", ACROSS)
def test_processes_get_the_bits_of_one_device(run, way, split):
    found = in_each(split, lambda cluster: same_bits.train(run, cluster, way, examples=EXAMPLES))
    assert {*found} == {alone(run)}


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("flat", [False, True])
def test_the_textbooks_step_is_the_plan_data(k, flat):
    (X, y), params = batch(150, np.float32), start(np.float32)
    device_params = [d2l.get_params(params, device) for device in cpus(k)]
    loss = d2l.train_batch(X, y, device_params, cpus(k), 0.1, "tree", flat, sums="exact")
    execution = Execution(PLANS["data"](3), params, cpus(3), exact=True)
    assert execution.step(X, y, 0.1) == loss
    for copy in device_params:
        for param, other in zip(copy, execution.params(), strict=True):
            np.testing.assert_array_equal(d2l.to_host(param), other)


def one_lost(X_shards, y_shards):
    """A bug: the last example of the first device is not there."""
    return [X_shards[0][:-1], *X_shards[1:]], [y_shards[0][:-1], *y_shards[1:]]


def test_what_close_does_not_see(monkeypatch):
    """One example of 2,048 lost: within the tolerance of a comparison that allows for rounding, but other bits."""
    (X, y), params = batch(2048, np.float32), start(np.float32)
    changes, split = {}, d2l.split_batch
    for name, wrong in ("right", lambda *shards: shards), ("wrong", one_lost):
        monkeypatch.setattr("d2lmgpu.parallel.data.split_batch", lambda *a, w=wrong, **more: w(*split(*a, **more)))
        device_params = [d2l.get_params(params, device) for device in cpus(2)]
        d2l.train_batch(X, y, device_params, cpus(2), 0.1, "ring", sums="exact")
        monkeypatch.undo()
        changes[name] = np.concatenate([d2l.to_host(param).ravel() for param in device_params[0]])
    assert not np.array_equal(changes["right"], changes["wrong"])
    np.testing.assert_allclose(changes["right"], changes["wrong"], rtol=0, atol=1e-3)


def random_schedule(number, k, n):
    """Summed along a random tree, in a random order, piece by piece, and told along another."""
    rng, steps = random.Random(number), []
    bounds = sorted([0, n, *rng.sample(range(1, n), min(n - 1, rng.randrange(4)))])
    for first, stop in zip(bounds, bounds[1:], strict=False):
        order = rng.sample(range(k), k)
        for op, devices in ("add", order), ("copy", [order[-1], *rng.sample(order[:-1], k - 1)]):
            for place, device in enumerate(devices[:-1] if op == "add" else devices[1:]):
                other = rng.choice(devices[place + 1 :] if op == "add" else devices[: place + 1])
                ends = (device, other) if op == "add" else (other, device)
                steps.append((Transfer(*ends, first, stop, op),))
    return tuple(steps)


@pytest.mark.parametrize("numbers", [range(60), *long(range(60, 1060))], ids=str)
def test_random_schedules(numbers, rng):
    """Whatever `prove` accepts."""
    seen, floats = {}, {}
    for number in numbers:
        k, n = 2 + number % 7, 500
        grads = np.random.default_rng(k).normal(size=(k, n)).astype(np.float32)
        schedule = random_schedule(number, k, n)
        prove(schedule, k, n)
        for found, arrays in (seen, as_integers(grads)), (floats, grads):
            data = [d2l.put(array, device) for array, device in zip(arrays, cpus(k), strict=True)]
            d2l.allreduce(data, lambda k, n, schedule=schedule: schedule)
            assert len({d2l.to_host(array).tobytes() for array in data}) == 1
            found.setdefault(k, set()).add(d2l.to_host(data[0]).tobytes())
    assert all(len(found) == 1 for found in seen.values())
    assert any(len(found) > 1 for found in floats.values())


@pytest.mark.parametrize("name", ["data", "zero2", "zero3", "gpipe", "zero-bubble"])
def test_memory_is_what_was_predicted(name):
    assert_memory(PLANS[name](2, 2), 200, "adam", np.float32, exact=True)


# What goes wrong:

SPLITS = [
    {},
    {"split": "zero2"},
    {"split": "layers", "pipeline": "1f1b"},
    {"split": "layers", "pipeline": "zero-bubble"},
]


def too_large_in_the_first_layer():
    """Images and parameters of which all gradients are as usual, but the first."""
    (X, y), params = batch(200, np.float32), start(np.float32)
    return X * np.float32(1e8), y, [params[0] / np.float32(1e8), *params[1:]]


def unchanged(stores, params):
    flat = np.concatenate([param.ravel() for param in params])
    return all(np.isin(store.flat, flat).all() for store in stores)


@pytest.mark.parametrize("way", SPLITS, ids=str)
def test_a_gradient_that_is_too_large_is_an_error_before_any_device_has_updated(way):
    X, y, params = too_large_in_the_first_layer()
    execution = Execution(plan_of(Settings(sums="exact", **way), 2, LENET), params, cpus(2), exact=True)
    with pytest.raises(SumError, match="the gradient of parameter 0 is .* for a granule on cpu.[01]. in step 1"):
        execution.step(X, y, 0.1)
    assert unchanged(execution.stores, params)


@pytest.mark.parametrize("way", SPLITS, ids=str)
def test_a_bad_example_is_an_error_before_any_device_has_updated(way):
    (X, y), params = batch(200, np.float32), start(np.float32)
    plan = plan_of(Settings(sums="exact", **way), 2, LENET)
    execution = Execution(plan, params, cpus(2), exact=True)
    execution.step(X, y, 0.0)
    X[170] = np.nan
    with pytest.raises(SumError, match="the loss is nan for a granule on cpu.1. in step 2"):
        execution.step(X, y, 0.1)
    assert unchanged(execution.stores, params)


@pytest.mark.threads
@pytest.mark.parametrize("split", [(1, 1), (2, 1)])
def test_no_process_updates_where_another_has_a_bad_example(split):
    (X, y, params), executions = too_large_in_the_first_layer(), {}

    def run(cluster):
        executions[cluster.rank] = Execution(plan_of(settings, len(cluster), LENET), params, cluster, exact=True)
        executions[cluster.rank].step(X, y, 0.1)

    settings = Settings(sums="exact", split="layers", pipeline="1f1b")
    with pytest.raises(SumError, match="on cpu.0. in step 1"):
        in_each(split, run)  # the others wait for the first, which would end them if it were a process
    time.sleep(0.2)
    assert unchanged([store for execution in executions.values() for store in execution.stores], params)


@pytest.mark.parametrize("k, way", [(1, {}), (2, {}), (3, {"split": "zero2"}), (2, {"split": "layers"})], ids=str)
def test_in_mixed_precision_what_does_not_fit_halves_the_scale(k, way):
    (X, y), params = batch(200, np.float32), start(np.float32)
    plan = plan_of(Settings(sums="exact", precision="mixed", **way), k, LENET)
    execution = Execution(plan, params, cpus(k), exact=True, mixed=True)
    for store in execution.stores:
        store.precision.scale = 2.0**24
    X[:70] *= 60
    before = execution.stores[0].precision.scale
    execution.step(X, y, 0.1)
    scales = {store.precision.scale for store in execution.stores}
    assert scales == {before / 2}
    for param, other in zip(execution.params(), params, strict=True):
        np.testing.assert_array_equal(param, other)


def test_settings_that_cannot_be_exact():
    for split in "channels", "channel-pairs", "data=2,channels=2":
        with pytest.raises(ValueError, match="sums are exact, but split"):
            Settings(sums="exact", split=split)
    for kind in "local", "aggregated":
        with pytest.raises(ValueError, match="give batch_statistics='synchronised'"):
            plan_of(Settings(sums="exact", batch_statistics=kind), 2, LENET_BN)


def test_devices_without_granules(small, capsys):
    d2l.train(cpus(5), num_epochs=1, data=small, sums="exact", progress=True)
    assert "256 examples are 4 granules of at most 64, fewer than the 5 devices" in capsys.readouterr().out


# Evaluation:


def margin(outputs, y):
    return (outputs.max(1) - outputs.mean(1)).sum()


@pytest.mark.parametrize("k", [2, 3, 5])
def test_evaluation_has_the_bits_of_one_device(k, small):
    X, y = np.concatenate([small[0], small[2]]), np.concatenate([small[1], small[3]])
    params, how = start(np.float32), {"metrics": {"margin": margin}, "sums": "exact"}
    assert d2l.evaluate(params, X, y, cpus(k), **how) == d2l.evaluate(params, X, y, cpus(1), **how)


# Going on:


@pytest.mark.threads
def test_a_run_goes_on_on_another_number_of_devices_and_another_split(tmp_path, small):
    """Two devices, then three processes, then one device."""
    how = {"data": small, "init": "he", "lr": 0.1, "sums": "exact", "optimizer": "momentum", "progress": False}
    how |= {"checkpoint": tmp_path / "run.npz"}
    whole = d2l.train(cpus(1), num_epochs=3, **(how | {"checkpoint": None})).history
    how["num_epochs"] = 3

    class StopAfter(d2l.monitor.Callback):
        def __init__(self, steps):
            self.left = steps

        def on_step(self, *_):
            self.left -= 1
            return self.left == 0

    d2l.train(cpus(2), callbacks=[StopAfter(2)], **how)
    how["resume"] = how["checkpoint"]
    in_each((1, 1, 1), lambda cluster: d2l.train(cluster, split="layers", callbacks=[StopAfter(3)], **how))
    ended = d2l.train(cpus(1), split="zero2", **how).history
    assert ended.final_parameters_sha256 == whole.final_parameters_sha256
    assert (ended.train_loss, ended.train_accuracy) == (whole.train_loss, whole.train_accuracy)
    assert ended.test_accuracy == whole.test_accuracy


def test_gradients_of_the_reference_are_those_of_the_layers():
    """Against float64, computed as it is written."""
    (X, y), params = batch(150, np.float64), start(np.float64)
    execution = Execution(PLANS["data"](2), [p.astype(np.float32) for p in params], cpus(2), GRADIENTS, exact=True)
    loss = execution.step(X.astype(np.float32), y, 0.1)
    expected_loss, expected = d2l.networks.plain.loss_and_grads_as_written(X, y, params)
    assert loss == pytest.approx(float(expected_loss), rel=1e-5)
    for grad, other in zip(execution.params(), expected, strict=True):
        assert np.abs(grad - other).max() < 2e-5 * np.abs(other).max()
