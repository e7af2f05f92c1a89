"""Exact sums: whoever adds them, in whatever order, the bits are the same; what they cannot hold is an error."""

import random

import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import long, use_tiny_granules
from one_device import DROPPING, PLAIN, examples, first_params
from pairwise import pairwise
from training_runs import StopAfter, cpus, quick, random_data

import d2lmgpu as d2l
from d2lmgpu.collectives import ALGORITHMS
from d2lmgpu.layers.exact import GRANULE, ExactSums, SumError, as_floats, as_integers
from d2lmgpu.networks import LENET
from d2lmgpu.networks.optimizers import init_optimizer
from d2lmgpu.parallel.computation import computation_for
from d2lmgpu.parallel.step import Replica

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


@pytest.mark.parametrize("network, dtype", [(PLAIN, np.float32), *long((LENET, np.float32), (LENET, np.float64))])
def test_a_granules_gradients_have_the_same_bits_wherever_they_are_computed(network, dtype):
    (X, y), params = examples(network, 3 * GRANULE + 7, dtype), first_params(network, dtype)

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


# Steps, and runs:

COLUMNS = {
    "settings": ["SGD", "Adam", "dropout"],
    "k": [1, 2, 3, 5, 8],
    "algorithm": [name for name in ALGORITHMS if name != "none"],
    "loads": [False, True],
    "devices": ["cpus", "processes"],
    "flat": [True, False],
}
SETTINGS = {
    "SGD": {"network": PLAIN, "lr": 0.05},
    "Adam": {"network": PLAIN, "optimizer": "adam", "lr": 0.002},
    "dropout": {"network": DROPPING, "lr": 0.05},
}
LOADS = [1.0, 0.5, 2.0, 0.0, 1.0, 3.0, 1.0, 0.25]
PROCESSES = {1: (1,), 2: (1, 1), 3: (2, 1), 5: (1, 3, 1), 8: (3, 1, 4)}


def trained(devices, row):
    """The checksum of the parameters after an epoch, and the loss per example, train and test accuracy."""
    settings = SETTINGS[row["settings"]]
    options = {"algorithm": row["algorithm"], "flat": row["flat"], "loads": LOADS[: row["k"]] if row["loads"] else None}
    data = random_data(settings["network"], 61, 23)
    run = quick(devices, data, **settings, **options, batch_size=25, num_epochs=1, sums="exact")
    history = run.history
    return history.final_parameters_sha256, history.train_loss, history.train_accuracy, history.test_accuracy


@pytest.fixture(autouse=True)
def small_granules(request, monkeypatch):
    if "row" in request.fixturenames:
        use_tiny_granules(monkeypatch)


@pytest.mark.threads
@pytest.mark.parametrize("row", list(pairwise(COLUMNS, dict)), ids=lambda row: " ".join(map(str, row.values())))
def test_every_way_gives_the_bits_of_one_device(row):
    """With granules of two examples, whatever the devices are given."""
    expected = trained(cpus(1), row | {"k": 1, "algorithm": "naive", "loads": False, "flat": True})
    if row["devices"] == "processes":
        found = in_each(PROCESSES[row["k"]], lambda cluster: trained(cluster, row))
    else:
        found = [trained(cpus(row["k"]), row)]
    assert all(one == expected for one in found)


# What goes wrong:


def test_a_bad_example_is_an_error_before_any_device_has_updated():
    (X, y), params = examples(PLAIN, 200, np.float32), first_params(PLAIN, np.float32)
    device_params = [d2l.get_params(params, device) for device in cpus(2)]
    X[170] = np.nan
    with pytest.raises(SumError, match="the loss is nan for a granule on cpu.1."):
        d2l.train_batch(X, y, device_params, cpus(2), 0.1, network=PLAIN, sums="exact")
    for copy in device_params:
        for param, other in zip(copy, params, strict=True):
            np.testing.assert_array_equal(d2l.to_host(param), other)


# Evaluation:


def margin(outputs, y):
    return (outputs.max(1) - outputs.mean(1)).sum()


@pytest.mark.parametrize("k", [2, 3, 5])
def test_evaluation_has_the_bits_of_one_device(k):
    (X, y), params, options = examples(PLAIN, 700, np.float32), first_params(PLAIN, np.float32), {"sums": "exact"}
    options |= {"network": PLAIN, "metrics": {"margin": margin}}
    assert d2l.evaluate(params, X, y, cpus(k), **options) == d2l.evaluate(params, X, y, cpus(1), **options)


# Going on:


@pytest.mark.threads
def test_a_run_goes_on_on_another_number_of_devices(tmp_path, monkeypatch):
    """Two devices, then three processes, then one device."""
    use_tiny_granules(monkeypatch)
    data, settings = (
        random_data(PLAIN, 60, 11),
        {"network": PLAIN, "sums": "exact", "optimizer": "momentum", "lr": 0.02},
    )
    settings |= {"batch_size": 9, "num_epochs": 3}
    whole, file = quick(cpus(1), data, **settings).history, tmp_path / "run.npz"
    quick(cpus(2), data, checkpoint=file, callbacks=[StopAfter(4)], **settings)
    settings |= {"checkpoint": file, "resume": file}
    in_each((1, 1, 1), lambda cluster: quick(cluster, data, callbacks=[StopAfter(8)], **settings))
    ended = quick(cpus(1), data, **settings).history
    assert ended.final_parameters_sha256 == whole.final_parameters_sha256
    assert (ended.train_loss, ended.train_accuracy) == (whole.train_loss, whole.train_accuracy)
    assert ended.test_accuracy == whole.test_accuracy
