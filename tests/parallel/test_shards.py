"""Which examples each device gets: laws, for any numbers of examples and devices, and any loads."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import d2lmgpu as d2l
from d2lmgpu.layers.exact import GRANULE
from d2lmgpu.parallel.shards import check_loads, shard_bounds
from d2lmgpu.training.graph_step import examples_of_epoch

LOADS = st.lists(st.one_of(st.just(0.0), st.floats(0.01, 100)), min_size=1, max_size=9).filter(any)


def assert_cover(bounds, n):
    """The parts are all n examples, one after the other."""
    assert [start for start, _ in bounds] == [0, *(stop for _, stop in bounds[:-1])] and bounds[-1][1] == n
    assert all(start <= stop for start, stop in bounds)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(st.integers(0, 300), st.integers(1, 9), st.sampled_from([1, 2, 7, 64]))
def test_even_parts(n, k, granule):
    """They differ by at most one granule, and begin at multiples of it."""
    bounds = shard_bounds(n, k, granule=granule)
    assert_cover(bounds, n)
    granules = [-(-(stop - start) // granule) for start, stop in bounds]
    assert max(granules) - min(granules) <= 1
    assert all(start % granule == 0 for start, stop in bounds if start < stop)


@settings(deadline=None, max_examples=200, derandomize=True)
@given(st.integers(0, 300), LOADS)
def test_parts_by_loads(n, loads):
    """Within one example of the exact share; none where the load is 0."""
    bounds = shard_bounds(n, len(loads), loads)
    assert_cover(bounds, n)
    for (start, stop), load in zip(bounds, loads, strict=True):
        assert abs(stop - start - n * load / sum(loads)) < 1 and (load or start == stop)


@settings(deadline=None, max_examples=100, derandomize=True)
@given(st.integers(1, 50), st.integers(1, 50), LOADS, st.booleans())
def test_an_epochs_shards_are_those_of_its_minibatches(count, batch_size, loads, even):
    """As a graph on GPUs finds them: the indices of each device's examples, and where each step's begin."""
    order, k = np.random.default_rng(count).permutation(count), len(loads)
    minibatches = [order[start : start + batch_size] for start in range(0, count, batch_size)]
    bounds = [shard_bounds(len(chosen), k, None if even else loads) for chosen in minibatches]
    sizes = np.array([[stop - start for start, stop in each] for each in bounds])
    for i in range(k):
        indices, starts = examples_of_epoch(order, sizes, i)
        shards = [chosen[slice(*each[i])] for chosen, each in zip(minibatches, bounds, strict=True)]
        edges = np.cumsum([0, *map(len, shards)]).tolist()
        assert starts.tolist() == [*edges, edges[-1]]
        assert indices.tolist() == np.concatenate(shards).tolist()
        assert indices.dtype == starts.dtype == np.int32


@pytest.mark.parametrize("n", [0, 1, 7, 256])
@pytest.mark.parametrize(
    "k, loads, sums",
    [(1, None, "float"), (2, None, "exact"), (3, [3, 0, 1], "float"), (3, [1, 0, 2], "exact"), (8, None, "float")],
)
def test_split_batch(make_devices, n, k, loads, sums):
    """Each shard is on its device; put together they are the minibatch."""
    devices = make_devices(k)
    X, y = np.arange(n * 2).reshape(n, 2), np.arange(n)
    X_shards, y_shards = d2l.split_batch(X, y, devices, loads, sums)
    assert [shard.device for shard in X_shards] == devices == [shard.device for shard in y_shards]
    np.testing.assert_array_equal(np.concatenate([d2l.to_host(shard) for shard in X_shards]), X)
    np.testing.assert_array_equal(np.concatenate([d2l.to_host(shard) for shard in y_shards]), y)
    bounds = shard_bounds(n, k, loads, GRANULE if sums == "exact" else 1)
    assert [len(shard) for shard in y_shards] == [len(shard) for shard in X_shards] == [b - a for a, b in bounds]


def test_get_params_are_independent_copies(make_devices):
    one, other = make_devices(2)
    params = d2l.init_params()
    copies = [d2l.get_params(params, one), d2l.get_params(params, other)]
    copies[0][1] += 1
    assert not d2l.to_host(copies[1][1]).any() and not params[1].any()
    assert [p.device for p in copies[1]] == [other] * 8


@pytest.mark.parametrize(
    "bad", [[1], [1, -1], [0, 0], [1, np.nan], [[1, 2]], [1, np.inf], [1e308, 1e308], ["a", 1], [1, [2]], "ab"]
)
def test_loads_that_make_no_sense(bad):
    with pytest.raises(ValueError, match="give 2 numbers, one for each device"):
        check_loads(bad, 2)


@pytest.mark.parametrize(
    ("loads", "sizes"), [([1e308, 2e307], [10, 2]), ([5e-324, 5e-324], [6, 6]), ([1e308, 1], [12, 0])]
)
def test_no_example_is_lost_to_large_or_small_loads(loads, sizes):
    _, shards = d2l.split_batch(np.zeros((12, 1)), np.arange(12), [d2l.cpu(0), d2l.cpu(1)], loads)
    assert [len(shard) for shard in shards] == sizes
