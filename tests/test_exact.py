"""Exact sums: whoever adds them, in whatever order, the bits are the same; what they cannot hold is an error."""

import functools
import random

import numpy as np
import pytest
import same_bits
from clusters_in_threads import in_each
from conftest import long, sampled
from test_plan_execution import batch, start

import d2lmgpu as d2l
from d2lmgpu.collectives import prove
from d2lmgpu.collectives.actions import Transfer
from d2lmgpu.layers.exact import GRANULE, ExactSums, SumError, as_floats, as_integers
from d2lmgpu.networks import LENET, LENET_BN
from d2lmgpu.networks.optimizers import init_optimizer
from d2lmgpu.parallel.computation import computation_for
from d2lmgpu.parallel.step import Replica
from d2lmgpu.training import Settings


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
    with pytest.raises(SumError, match=f"the gradient of parameter 1 is {said} for a granule on cpu.1. in step 3"):
        sums.add_gradients(totals, [np.ones(3, np.float32), np.array([1, value, 1], np.float32)])
    with pytest.raises(SumError, match="the loss is nan"):
        sums.losses(np.array([np.nan, 3]))


def test_losses_are_added_without_rounding(rng):
    sums = ExactSums(10**5, "here")
    terms = [sums.losses(rng.normal(size=5) * 200) for _ in range(sums.granules)]
    assert len({sum(random.sample(terms, len(terms))).tobytes() for _ in range(20)}) == 1


# Granules:


@pytest.mark.parametrize("network, dtype", [(LENET, np.float32), *long((LENET, np.float64))])
def test_a_granules_gradients_have_the_same_bits_wherever_they_are_computed(network, dtype):
    (X, y), params = batch(3 * GRANULE + 7, dtype, network), start(dtype, network)

    def grads_of(device, part):
        copies = [d2l.get_params(params, device)]
        computation = computation_for(network, sums="exact")(device, network)
        replica = Replica(device, copies[0], init_optimizer("sgd", copies)[0], computation)
        shard = d2l.put(X[part], device), d2l.put(y[part], device)
        loss, _ = d2l.to_host(device.run(replica.loss_and_grads, *shard, 199, None).result())
        return [np.asarray(loss * 2.0**24), *(d2l.to_host(grad).copy() for grad in replica.grads)]

    whole = grads_of(d2l.cpu(0), slice(None))
    parts = [slice(0, 64), slice(64, 192), slice(192, 199)]
    found = [grads_of(d2l.cpu(i), part) for i, part in enumerate(parts)]
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

WAYS = [(run, k, way) for run in same_bits.RUNS for k, way in same_bits.ways()]
EXAMPLES = 256 + 97


@functools.cache
def alone(run):
    return same_bits.train(run, cpus(1), {}, examples=EXAMPLES)


@pytest.mark.parametrize("run, k, way", [*random.Random(0).sample(WAYS, 25), *sampled(WAYS, 25)])
def test_every_way_gives_the_bits_of_one_device(run, k, way):
    assert same_bits.train(run, cpus(k), way, examples=EXAMPLES) == alone(run)


ACROSS = [("SGD", {}), ("SGD", {"algorithm": "hierarchical"}), ("dropout", {"flat": False})]


@pytest.mark.threads
@pytest.mark.parametrize("split", [(1, 1), (2, 1), (1, 1, 1)])
@pytest.mark.parametrize("run, way", ACROSS)
def test_processes_get_the_bits_of_one_device(run, way, split):
    found = in_each(split, lambda cluster: same_bits.train(run, cluster, way, examples=EXAMPLES))
    assert {*found} == {alone(run)}


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


# What goes wrong:


def test_a_bad_example_is_an_error_before_any_device_has_updated():
    (X, y), params = batch(200, np.float32), start(np.float32)
    device_params = [d2l.get_params(params, device) for device in cpus(2)]
    X[170] = np.nan
    with pytest.raises(SumError, match="the loss is nan for a granule on cpu.1."):
        d2l.train_batch(X, y, device_params, cpus(2), 0.1, sums="exact")
    for copy in device_params:
        for param, other in zip(copy, params, strict=True):
            np.testing.assert_array_equal(d2l.to_host(param), other)


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"split": "zero2"}, "which cannot be combined with"),
        ({"overlap": True}, "overlap is True"),
        ({"precision": "mixed"}, "which cannot be combined with exact sums"),
    ],
)
def test_settings_that_cannot_be_exact(settings, said):
    with pytest.raises(ValueError, match=said):
        Settings(sums="exact", **settings)


def test_batch_norm_cannot_be_exact(small):
    with pytest.raises(ValueError, match="sums are exact, but the network has batch norm"):
        d2l.train(cpus(2), data=small, network="lenet-bn", sums="exact", progress=False)


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
def test_a_run_goes_on_on_another_number_of_devices(tmp_path, small):
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
    in_each((1, 1, 1), lambda cluster: d2l.train(cluster, callbacks=[StopAfter(3)], **how))
    ended = d2l.train(cpus(1), **how).history
    assert ended.final_parameters_sha256 == whole.final_parameters_sha256
    assert (ended.train_loss, ended.train_accuracy) == (whole.train_loss, whole.train_accuracy)
    assert ended.test_accuracy == whole.test_accuracy
