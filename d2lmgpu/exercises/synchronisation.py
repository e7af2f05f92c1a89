"""Exercises for notebook 4, copies and synchronisation: splitting a minibatch, summing over devices, and a step."""

import numpy as np

from ..base.text import several
from ..collectives import ALGORITHMS
from ..collectives.phases import compile_algorithm
from ..devices import cpu, to_host
from ..parallel import get_params
from .exercise import (
    Empty,
    Exercise,
    call,
    call_recorded,
    close,
    compare_results,
    expect,
    in_case,
    read,
    returned,
    same_things,
)
from .places import vectors
from .spies import check_place, check_ways, row_of

TWO_LISTS = "return two lists: return X_shards, y_shards"
RAGGED = "n divided by k leaves a remainder r; give one extra example to r of the devices"


class split_batch(Exercise):
    """Write split_batch(X, y, devices): split n images X (n, ...) and their labels y (n,) over the list of devices;
    return two lists with a device array for each device. Sizes differ by one at most, and n may be less than the number
    of devices.

    every example is on one device, with its label, and shard sizes differ by at most one.
    """

    without = ("put_parts",)
    cases = ((8, 2), (7, 1), (9, 2), (38, 8), (3, 5), (0, 2))

    def words(self, n, k):
        return f"{several(n, 'example')} on {several(k, 'device')}"

    def test(self, answer, n, k):
        """Test that each example is there once, with its label, and that each shard has the right size and device."""
        devices = row_of(k)
        X, y = np.arange(6 * n, dtype=np.float32).reshape(n, 1, 2, 3), np.arange(n)
        result = returned(call(answer, X, y, list(devices), hint=RAGGED))
        X_shards, y_shards = read(result, ([object], [object]), TWO_LISTS)
        expect(len(X_shards) == len(y_shards) == k, "too few shards", "each device gets two, even if they are empty")
        for shard, device in zip(X_shards + y_shards, devices + devices, strict=True):
            check_place(shard, device, f"the shard for {device}", "put(part, device) copies a part there")
        sizes = [len(shard) for shard in X_shards]
        expect(sum(sizes) == n, f"shards of {sizes} examples, {sum(sizes)} in all", RAGGED)
        expect(max(sizes) - min(sizes) <= 1, f"shards of {sizes} examples; all devices wait for the largest", RAGGED)
        shapes = {shard.shape[1:] for shard in X_shards}
        expect(shapes == {X.shape[1:]}, f"images of {X.shape[1:]} have become {shapes}", "keep the other axes of X")
        images, labels = _flat(X_shards)[::6] / 6, _flat(y_shards)
        hint = "cut X and y at the same places, in the same order"
        expect(close(images, labels), "some images have another image's label", hint)
        expect(sorted(images) == [*range(n)], "some examples occur twice, others never", RAGGED)


REBOUND = "data[i] = ... puts another array into the list; data[i][:] = ... writes into the existing one"


class allreduce(Exercise):
    """Write allreduce(data): data is a list of device arrays of one shape, one on each device; afterwards each holds
    the sum of all. Work in place, and return nothing.

    all devices hold the sum, in place, for 1, 2, 3, 5 and 8 devices.
    """

    without = "allreduce", *ALGORITHMS, "reduce_scatter", "all_gather"  # of repairs, too
    cases = ((2, 5), (1, 4), (3, 7), (5, 3), (8, 12))
    hint = "try it with vectors such as [1], [10], [100]: the digits show which were counted, and how often"

    def words(self, k, n):
        return f"{several(k, 'device')}, {several(n, 'number')}{'' if n % 2 else ' in two rows'}"

    def test(self, answer, k, n):
        """Test that every device holds the sum, in place. Returns the transfers."""
        compile_algorithm.cache_clear()  # it would hide whose schedule this is
        arrays, values = vectors(row_of(k), (n,) if n % 2 else (2, n // 2))
        data = list(arrays)
        _, transfers = call_recorded(answer, data)
        kept = same_things(data, arrays)
        if k > 1 and kept and all(map(close, arrays, values)):
            raise Empty("nothing has changed")
        total = np.sum(values, axis=0, dtype=float)
        said = "the list now has other arrays, and the given ones, the devices' gradients, do not hold the sum"
        expect(kept or close(arrays[-1], total), said, REBOUND)
        for i, array in enumerate(arrays):
            self.compare(array, total, values, i, what=str(array.device))
        check_ways(transfers, [array.device for array in arrays], n)
        return transfers

    def mistakes(self, array, total, values, i):
        equal = np.isclose(to_host(array), total, rtol=0, atol=1e-4 * np.abs(total).max(initial=1e-30))
        twice = np.where(equal, total, total + values[i])  # its own vector, in some chunks or in all
        yield values[i], "it still holds its own vector", "once the sum is on device 0, copy it to the others"
        yield total / len(values), "the mean", "the textbook's allreduce sums; sgd divides by the whole minibatch"
        yield twice, "the sum with its own vector counted twice", "copy the sum back with data[i][:] = ..., not with +="
        yield values[0] + values[-1], "only the first and the last vector", "k may be more than two: add all of them"


LISTS = "an allreduce takes a list with one array from each device, all of one shape: do your lists look like this?"


def check_steps(replicas, arrays, start, own, sizes, lr, transfers, tolerance=1e-4):
    """Check that all replicas take, in place, the step of a single device: the sum of all gradients, divided once.

    ``replicas``: for each device, the list of its parameters, which first held ``arrays`` with the values ``start``;
    ``own``: for each device, the gradients of its shard; ``sizes``: how many examples each shard has. An answer that
    made ``transfers`` has done something, even if no parameter has changed.
    """
    expect(same_things(replicas, arrays), "the lists now hold other arrays", "work in place, as sgd does")
    steps = [_flat(params) - _flat(start) for params in arrays]
    if not any(step.any() for step in steps):
        unchanged = "no parameter has changed"
        expect(not transfers, unchanged, IN_PLACE)
        raise Empty(unchanged)
    n, own = sum(sizes), [-lr * _flat(grads) for grads in own]  # each device's step, without a division
    total, means = np.sum(own, axis=0), [grads / max(1, size) for grads, size in zip(own, sizes, strict=True)]
    for i, step in enumerate(steps):
        mistakes = (
            (0 * total, "it has not changed", "every device updates its own copy, in place"),
            (own[i] / n, "it uses only its own gradient", ALL_FIRST),
            (means[i], "it uses only its own gradient", ALL_FIRST),
            *((total / size, f"the sum, divided by {size}", ALL_EXAMPLES) for size in sizes if size),
            (np.mean(means, axis=0), "it uses the mean of the shards' means", ONCE),
            (np.sum(means, axis=0), "it uses the sum of the shards' means", ONCE),
            (total / len(own) / n, "k times too short", "divide once, by the number of examples, not also by k"),
            (total, "the sum itself", "gradients are sums over examples: divide by their number, as sgd does"),
            (-total / n, "uphill", "SGD subtracts the gradient"),
            (not np.isfinite(step).all(), "do not divide by an empty shard's size"),
        )
        with in_case(f"the step of {arrays[i][0].device}"):
            compare_results(step, total / n, mistakes, _SAME, tolerance)


IN_PLACE = "update each parameter in place: p[:] = ... writes into its array, p = ... only makes p name another array"
ALL_FIRST = "the step needs the sum of all devices' gradients: first the allreduce, then the updates"
ALL_EXAMPLES = "on every device, divide by the size of the whole minibatch, not of the shard"
ONCE = "every example has the same weight, in a shard of any size: first sum over all shards, then divide once"
_SAME = "all replicas take the same step: the one that a single device would take with all examples"


def _flat(arrays):
    return np.concatenate([to_host(array).reshape(-1) for array in arrays])


class update_replicas(Exercise):
    """Write update_replicas(device_params, device_grads, lr, batch_size): for each device you get the list of its
    parameters and the list of its gradients, summed over its shard; let all replicas take the same step of SGD, in
    place. batch_size is the size of the whole minibatch.

    all replicas take the same step, in place: the sum of all gradients, divided by the whole minibatch.
    """

    cases = (((5, 5),), ((10,),), ((4, 3, 3),), ((7, 2),), ((1, 5, 0),), ((2, 1, 2, 2, 4),))

    def words(self, sizes):
        return f"{several(len(sizes), 'device')}, a minibatch of {sum(sizes)}"

    def test(self, answer, sizes):
        """Test that all replicas take the same step. ``sizes``: how many examples each device's shard has."""
        rng, shapes, lr = np.random.default_rng(1), ((2, 3), (4,)), 0.5
        devices = [cpu(i) for i in range(len(sizes))]
        start = [rng.normal(0, 1, shape).astype(np.float32) for shape in shapes]
        own = [[(size > 0) * rng.normal(0, 3, shape).astype(np.float32) for shape in shapes] for size in sizes]
        replicas = [get_params(start, device) for device in devices]
        grads = list(map(get_params, own, devices))
        arrays = [list(params) for params in replicas]
        _, transfers = call_recorded(answer, replicas, grads, lr, sum(sizes), hint=LISTS)
        check_steps(replicas, arrays, start, own, sizes, lr, transfers)
        check_ways(transfers, devices, sum(value.size for value in start))


EARLY = "round each term separately to a whole multiple of one unit, before you add it to anything"
_UNIT = "the unit must not depend on the number of devices: 2.0**-40, for example"
WRAP = "integers wrap: choose the unit for the largest sum, use int64, and convert back to floats with the same unit"
COARSE = "use a smaller unit, and round to the nearest: np.rint"
_ADDED = "add up each device's terms in one array, and pass the list of these arrays to allreduce once"


class associative_sum(Exercise):
    """Write associative_sum(device_terms, allreduce): for each device you get a list of float32 arrays, the gradients
    of some of the examples. Return the sum of all as float32, with the same bits for any distribution of the terms over
    any number of devices and for any order of additions. allreduce(arrays) adds one array from each device, in any
    order; afterwards each array holds the sum. Terms and sums are below 2**20.

    the sum has the same bits for any distribution, on any number of devices, in any order.
    """

    without = ("layers.exact.as_integers",)
    cases = ((8, 1.0), (11, 1e-3), (40, 300.0), (300, 2000.0))

    def words(self, n, largest):
        return f"{several(n, 'term')} of up to {largest:g}"

    def test(self, answer, n, largest):
        """Test that all shares, orders and numbers of devices give the same bits, and nearly the sum in float64."""
        rng, found = np.random.default_rng(3), {}
        terms = (largest * rng.uniform(-1, 1, (n, 2000))).astype(np.float32)
        half, pairs = terms[:, :1000], n // 4  # of which large terms cancel, so that rounding shows, in float64, too
        half[:pairs] = -half[pairs : 2 * pairs]
        half[2 * pairs :] *= np.float32(2.0**-28)
        right = terms.sum(axis=0, dtype=float)
        for k in (1, 2, 3, 5) * 3:
            shares = [list(map(np.copy, part)) for part in np.array_split(rng.permutation(terms), k)]
            calls = []

            def allreduce(arrays, calls=calls):
                calls.append(len(arrays))
                total = sum(arrays[i] for i in rng.permutation(len(arrays)))
                for array in arrays:
                    array[...] = total

            total = returned(call(answer, shares, allreduce))
            given = ", ".join(map(str, calls)) or "no"
            expect(calls == [k], f"on {several(k, 'device')}, allreduce received {given} arrays", _ADDED)
            (total,) = read((total,), (np.ndarray,), "return the sum, an array")
            expect(total.dtype == np.float32, f"it returned {total.dtype}", "return float32: .astype(np.float32)")
            found.setdefault(k, set()).add(total.tobytes())
        for k, bits in found.items():
            expect(len(bits) == 1, f"on {several(k, 'device')}, another order of the terms gives other bits", EARLY)
        expect(len(set().union(*found.values())) == 1, "another number of devices gives other bits", _UNIT)
        error = np.abs(total - right).max()
        expect(error < largest, "it returned something far from the sum", WRAP)
        far = error > 1e-7 * np.abs(right).max() + 3e-8
        expect(not far, f"the sum is off by {error:.2g}, for terms up to {largest:g}", COARSE)
