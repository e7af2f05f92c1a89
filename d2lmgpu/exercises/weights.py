"""Exercises of notebook 8, evaluation and uneven loads: accuracy, shards by loads, and statistics put together."""

import math

import numpy as np

from ..collectives import chunk_bounds
from ..devices import cpu, put, record_transfers
from ..networks import init_params, lenet
from ..words import several
from .checking import (
    Exercise,
    Wrong,
    expect,
    expect_number,
    kind,
    list_of,
    number_of,
    random_numbers,
    result_of,
    with_hidden,
)

EVALUATIONS = ((11, 2, 4), (16, 3, 5), (7, 1, 3), (9, 5, 8))
"""Images, devices, images at a time: the last minibatch is ragged, and once smaller than the number of devices."""


def try_evaluate(answer):
    """Labels are chosen so that devices, and minibatches, have different accuracies."""
    params = init_params(0, init="he")
    for n, k, batch_size in with_hidden(EVALUATIONS, lambda rng: tuple(map(int, rng.integers(2, (20, 6, 8)))), 1):
        rng = random_numbers(n)
        X = rng.random((n, 1, 28, 28), np.float32)
        right = np.arange(n) % (k + 2) > 0
        right[-1] = not right[: batch_size * (n // batch_size)].mean() > 0.5
        y = (lenet(X, params).argmax(axis=1) + ~right) % 10
        devices = [cpu(i) for i in range(k)]
        device_params = [[put(param, device) for param in params] for device in devices]
        case = f"{several(n, 'image')} on {several(k, 'device')}, {batch_size} at a time"
        with record_transfers() as transfers:
            found = result_of(answer, device_params, X, y, list(devices), batch_size, case=case, hint=EMPTY)
        expect_number(found, right.mean(), _accuracies(right, k, batch_size), case, COUNT)
        used = {transfer.destination for transfer in transfers} & set(map(str, devices))
        expect(
            len(used) == k,
            f"{case}: right, but images went to {len(used)} of the devices",
            "split every minibatch, so that all devices work: d2l.split_batch",
        )
    return "every image counts once, wherever it was, and all devices work."


EMPTY = "the last minibatch may have fewer images than there are devices: a shard may be empty, and 0/0 is no number"
COUNT = "count the right answers, over all shards of all minibatches, and divide once, by the number of images"


def _accuracies(right, k, batch_size):
    """What usual mistakes make of images that are ``right`` or not."""
    n = len(right)
    batches = [right[start : start + batch_size] for start in range(0, n, batch_size)]
    shards = [[batch[start:stop] for start, stop in chunk_bounds(len(batch), k)] for batch in batches]
    full = [batch for batch in batches if len(batch) == batch_size]
    filled = [[shard for shard in parts if len(shard)] for parts in shards]
    firsts = [parts[0] for parts in shards]
    of_shards = [[shard.mean() for shard in parts] for parts in filled]
    return (
        (right.sum(), "this is a number of images", "accuracy is a part of all images: divide by their number"),
        (100 * right.mean(), "this is in percent", "accuracy is a part of all images, from 0 to 1"),
        (1 - right.mean(), "this is the part that is wrong", "count where the largest logit is that of the label"),
        (np.concatenate(full).mean(), "the last minibatch is missing", "the ragged rest is to be evaluated, too"),
        (np.concatenate(full).sum() / n, "the last minibatch is missing", "the ragged rest is to be evaluated, too"),
        (batches[-1].mean(), "it is that of the last minibatch", "add up over all minibatches before you divide"),
        (np.concatenate(firsts).mean(), "only device 0 counts", "every device's shard counts"),
        (np.concatenate(firsts).sum() / n, "only device 0 counts", "every device's shard counts"),
        (np.mean([batch.mean() for batch in batches]), "a mean of minibatches' accuracies", SMALL),
        (np.mean([np.mean(parts) for parts in of_shards]), "a mean of shards' accuracies", SMALL),
        (np.mean(np.concatenate(of_shards)), "a mean of shards' accuracies", SMALL),
        (sum(map(sum, of_shards)) / k / len(batches), "a mean of shards' accuracies", SMALL),
        (np.mean([sum(parts) for parts in of_shards]), "a sum of shards' accuracies", SMALL),
    )


SMALL = "an image in a small shard would weigh more than one in a large shard: add up counts, and divide once"

LOADS = (
    (10, [1, 1]),
    (3, [1, 1, 1, 1, 1]),
    (10, [1, 1, 1]),
    (96, [1, 1, 0.5]),
    (8, [3, 0, 2]),
    (38, [2, 1, 1, 1, 1, 1, 1, 1]),
    (5, [0.2, 0.2, 0.2, 0.2]),
    (0, [1, 2]),
    (64, [5]),
)
"""Examples and loads: shares that are whole numbers or not, idle devices, fewer examples than devices."""


def _draw_loads(rng):
    return int(rng.integers(1, 300)), [1.0, *rng.choice((0, 0.5, 1, 2.5, 3), int(rng.integers(1, 7))).tolist()]


def try_split_by_loads(answer):
    """Whole numbers, all examples, nobody a whole example away from the exact share, 0 for 0."""
    for n, loads in with_hidden(LOADS, _draw_loads):
        case = f"split_by_loads({n}, {loads})"
        sizes = _sizes(result_of(answer, n, list(loads), case=case), len(loads), case)
        shares = n * np.array(loads) / sum(loads)
        found = f"{case}: {sizes} instead of about [{', '.join(f'{share:.3g}' for share in shares)}]"
        idle = [size for size, load in zip(sizes, loads, strict=True) if load == 0]
        expect(not any(idle), f"{found}: a device with load 0 has work", "leftovers go to those that lost by rounding")
        if sum(sizes) != n:
            raise Wrong(f"{found}, which is {sum(sizes)} examples in all", _hint_for_sum(sizes, shares, loads, n))
        far = np.abs(np.array(sizes) - shares).max()
        expect(
            far < 1,
            f"{found}: one is {far:.3g} away from its share",
            "hand out what rounding down leaves over one by one, to different devices",
        )
    return "every example has a place, and no device is a whole example away from its share."


def _sizes(result, k, case):
    hint = "return a list of sizes, one a device"
    result = result.tolist() if isinstance(result, np.ndarray) else result
    sizes = [number_of(size, f"{case}, in the list", hint) for size in list_of(result, case, hint)]
    expect(len(sizes) == k, f"{case}: {len(sizes)} sizes for {several(k, 'device')}", hint)
    whole = all(size % 1 == 0 and size >= 0 for size in sizes)
    expect(whole, f"{case}: {sizes}", "there are no parts of an example: sizes are whole numbers, and none is negative")
    return [int(size) for size in sizes]


def _hint_for_sum(sizes, shares, loads, n):
    if sizes == [int(n * load) for load in loads]:
        return "loads are in any unit: a device's share is its load divided by the sum of the loads"
    if sizes == np.floor(shares).astype(int).tolist():
        return "rounding down leaves examples over: somebody must take them"
    return "shares rounded one by one need not add up to n: round all of them down, and hand out what is left"


STATISTICS = (
    ((4, 4), (0.0, 2.0), (1.0, 1.0)),
    ((30, 10), (1.0, 3.0), (4.0, 0.5)),
    ((5, 0, 7), (-1.0, 0.0, 2.0), (0.3, 0.0, 0.7)),
    ((6,), (2.0,), (3.0,)),
    ((1, 2, 3), (10.0, 20.0, 60.0), (0.0, 4.0, 9.0)),
)
"""How many numbers each shard has, their means, their variances; with an empty shard, and one alone."""


def _draw_statistics(rng):
    counts = tuple(map(int, rng.integers(1, 50, 4)))
    return counts, tuple(rng.normal(0, 5, 4).round(1).tolist()), tuple(rng.uniform(0, 9, 4).round(1).tolist())


def try_combine_statistics(answer):
    """Mean and variance of all numbers, from those of the shards."""
    for counts, means, variances in with_hidden(STATISTICS, _draw_statistics):
        case = f"combine_statistics({list(counts)}, {list(means)}, {list(variances)})"
        result = result_of(answer, list(counts), list(means), list(variances), case=case)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise Wrong(f"{case}: it returned {kind(result)}", "return two numbers: mean, variance")
        n, m, v = (np.array(values, float) for values in (counts, means, variances))
        part = n / n.sum()
        mean, within = (part * m).sum(), (part * v).sum()
        plain = m.mean()
        wrong_means = (
            (plain, "the mean of the means", "a shard's mean counts as often as the shard has numbers"),
            ((n * m).sum(), "the sum of all", "divide by how many numbers there are in all"),
        )
        expect_number(result[0], mean, wrong_means, f"{case}: the mean", "the sum of all numbers, divided by how many")
        between = (part * (m - mean) ** 2).sum()
        wrong_variances = (
            (within, "how far the means are apart is missing", BETWEEN),
            (v.mean(), "the mean of the variances", BETWEEN),
            (within + ((m - mean) ** 2).mean(), "every shard's mean counts the same", "weigh by the shard's numbers"),
            (v.mean() + ((m - mean) ** 2).mean(), "every shard counts the same", "weigh by the shard's numbers"),
            ((part**2 * v).sum(), "the variance of the mean", "we want that of the numbers, not that of their mean"),
            ((within + between) * n.sum() / max(1, n.sum() - 1), "n - 1 for n", "divide by the number of numbers"),
            (within + (part * m**2).sum(), "the mean square", "take away the square of the mean"),
            (math.sqrt(within + between), "the standard deviation", "the variance is its square"),
        )
        expect_number(result[1], within + between, wrong_variances, f"{case}: the variance", SQUARES)
    return "as if nobody had cut the numbers into shards."


BETWEEN = "numbers also differ because the shards' means differ: think of two shards without any variance, of 0s and 1s"
SQUARES = "variance + mean² is a shard's mean square, and mean squares can be averaged, by the shards' sizes"


EXERCISES = {
    "evaluate": Exercise(
        "Write evaluate(device_params, X, y, devices, batch_size): the accuracy of LeNet, from 0 to 1, on images X "
        "(n, 1, 28, 28) with labels y (n,), NumPy arrays. device_params has a copy of the parameters for each device. "
        "Take batch_size images at a time, the rest too, split them over the devices, and use d2l.lenet(X, params).",
        try_evaluate,
    ),
    "split_by_loads": Exercise(
        "Write split_by_loads(n, loads): how many of n examples each device gets, a list of whole numbers that add up "
        "to n, in proportion to the loads (in any unit; 0 means idle). None is a whole example away from its exact "
        "share.",
        try_split_by_loads,
    ),
    "combine_statistics": Exercise(
        "Write combine_statistics(counts, means, variances): lists with a number for each shard, how many numbers it "
        "has, their mean and their variance (the mean squared distance from it; 0 for an empty shard). Return (mean, "
        "variance) of all numbers together.",
        try_combine_statistics,
    ),
}
