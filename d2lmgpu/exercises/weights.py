"""Exercises of notebook 8, evaluation and uneven loads: accuracy, shards by loads, and combined statistics."""

import math

import numpy as np

from ..collectives import chunk_bounds
from ..devices import cpu, put, record_transfers
from ..networks import init_params, lenet
from ..words import several
from .checking import Exercise, random_numbers
from .results import close, compare, expect, read, result_of


def _try_evaluate(answer, n, k, batch_size):
    """The labels are such that the accuracy differs between devices, and between minibatches."""
    params = init_params(0, init="he")
    rng = random_numbers(n)
    X = rng.random((n, 1, 28, 28), np.float32)
    right = np.arange(n) % (k + 2) > 0
    right[-1] = not right[: batch_size * (n // batch_size)].mean() > 0.5  # unlike the full minibatches
    y = (lenet(X, params).argmax(axis=1) + ~right) % 10
    devices = [cpu(i) for i in range(k)]
    device_params = [[put(param, device) for param in params] for device in devices]
    case = f"{several(n, 'image')} on {several(k, 'device')}, {batch_size} at a time"
    with record_transfers() as transfers:
        found = result_of(answer, device_params, X, y, list(devices), batch_size, case=case, hint=EMPTY)
    compare(read(found, float, case, "return one number"), right.mean(), _accuracies(right, k, batch_size), case, COUNT)
    used = {transfer.destination for transfer in transfers} & set(map(str, devices))
    expect(
        len(used) == k,
        f"{case}: right, but images went to {len(used)} of the devices",
        "split every minibatch, so that all devices work: d2l.split_batch",
    )


EMPTY = "the last minibatch may have fewer images than there are devices: a shard may be empty, and 0/0 is NaN"
COUNT = "count the right answers, over all shards of all minibatches, and divide once, by the number of images"


def _accuracies(right, k, batch_size):
    """The usual mistakes, for images that are classified ``right`` or not."""
    n = len(right)
    batches = [right[start : start + batch_size] for start in range(0, n, batch_size)]
    shards = [[batch[start:stop] for start, stop in chunk_bounds(len(batch), k)] for batch in batches]
    full = [batch for batch in batches if len(batch) == batch_size]
    filled = [[shard for shard in parts if len(shard)] for parts in shards]
    firsts = [parts[0] for parts in shards]
    of_shards = [[shard.mean() for shard in parts] for parts in filled]
    return (
        (right.sum(), "this is a number of images", "accuracy is a fraction of all images: divide by their number"),
        (100 * right.mean(), "this is in percent", "accuracy is a fraction of all images, from 0 to 1"),
        (np.concatenate(full).mean(), "the last minibatch is missing", "the ragged rest is to be evaluated, too"),
        (np.concatenate(full).sum() / n, "the last minibatch is missing", "the ragged rest is to be evaluated, too"),
        (batches[-1].mean(), "it is that of the last minibatch", "add up over all minibatches before you divide"),
        (np.concatenate(firsts).mean(), "only device 0 counts", "every device's shard counts"),
        (np.concatenate(firsts).sum() / n, "only device 0 counts", "every device's shard counts"),
        (np.mean([batch.mean() for batch in batches]), "a mean of minibatches' accuracies", SMALL),
        (np.mean([np.mean(parts) for parts in of_shards]), "a mean of shards' accuracies", SMALL),
        (np.mean(np.concatenate(of_shards)), "a mean of shards' accuracies", SMALL),
        (sum(map(sum, of_shards)) / k / len(batches), "a mean of shards' accuracies", SMALL),
    )


SMALL = "an image in a small shard would weigh more than one in a large shard: add up counts, and divide once"


def _draw_loads(rng):
    return int(rng.integers(1, 300)), [1.0, *rng.choice((0, 0.5, 1, 2.5, 3), int(rng.integers(1, 7))).tolist()]


def _split_mistakes(sizes, _, n, loads):
    if len(sizes) != len(loads):
        return ((True, f"{len(sizes)} sizes for {several(len(loads), 'device')}", SIZES),)
    shares, total = n * np.array(loads) / sum(loads), sum(sizes)
    away = np.abs(np.array(sizes) - shares).max()
    about = f"it should be about [{', '.join(f'{share:.3g}' for share in shares)}]"
    sum_of = f"{about}, and is {total:g} examples in all"
    return (
        (any(size % 1 or size < 0 for size in sizes), PARTS),
        (any(np.array(sizes)[np.array(loads) == 0]), f"{about}: a device with load 0 has work", IDLE),
        (total != n and sizes == [int(n * load) for load in loads], sum_of, UNIT),
        (total != n and sizes == np.floor(shares).tolist(), sum_of, FLOORED),
        (total != n, sum_of, ROUNDED),
        (away >= 1, f"{about}: one size differs from its share by {away:.3g}", ONE_BY_ONE),
    )


SIZES = "return a list of sizes, one per device"
PARTS = "there are no parts of an example: sizes are whole numbers, and none is negative"
IDLE = "examples that rounding down leaves over go only to devices whose share was rounded down"
FLOORED = "rounding down leaves some examples over: give these to devices, too"
ROUNDED = "shares rounded one by one need not add up to n: round all of them down, and hand out what is left"
UNIT = "loads are in any unit: a device's share is its load divided by the sum of the loads"
ONE_BY_ONE = "round down, then give the examples that are left to different devices, one each"


def _draw_statistics(rng):
    means, variances = rng.normal(0, 5, 4).round(1), rng.uniform(0, 9, 4).round(1)
    return list(map(int, rng.integers(1, 50, 4))), means.tolist(), variances.tolist()


def _combined(counts, means, variances):
    """Mean and variance of all numbers, from those of the shards."""
    part, m = np.array(counts) / sum(counts), np.array(means)
    mean = (part * m).sum()
    return mean, (part * variances).sum() + (part * (m - mean) ** 2).sum()


def _combined_mistakes(found, right, counts, means, variances):
    n, m, v = (np.array(values, float) for values in (counts, means, variances))
    part, (mean, variance) = n / n.sum(), right
    within = (part * v).sum()
    wrong_means = (
        (m.mean(), "the mean of the means", "weight each mean by the shard's count"),
        ((n * m).sum(), "the sum of all", "divide by how many numbers there are in all"),
    )
    wrong_variances = (
        (within, "without the differences between the means", BETWEEN),
        (v.mean(), "the mean of the variances", BETWEEN),
        (within + ((m - mean) ** 2).mean(), "computed as if all shards' means had equal weight", WEIGH),
        (within + (part * m**2).sum(), "the mean square", "subtract the square of the mean"),
        (math.sqrt(variance), "the standard deviation", "the variance is its square"),
    )
    return (
        *(((wrong, ...), f"the mean is {what}", hint) for wrong, what, hint in wrong_means),
        *(((mean, wrong), f"the variance is {what}", hint) for wrong, what, hint in wrong_variances),
        (close(found[0], mean), SQUARES),
    )


BETWEEN = "numbers also differ because the shards' means differ: think of two shards without any variance, of 0s and 1s"
WEIGH = "weight by how many numbers the shard has"
SQUARES = "variance + mean² is a shard's mean square, and mean squares can be averaged, by the shards' sizes"


EXERCISES = {
    "evaluate": Exercise(
        "Write evaluate(device_params, X, y, devices, batch_size): the accuracy of LeNet, from 0 to 1, on images X "
        "(n, 1, 28, 28) with labels y (n,), NumPy arrays. device_params has a copy of the parameters for each device. "
        "Take batch_size images at a time, the rest too, split them over the devices, and use d2l.lenet(X, params).",
        "every image counts once, on whichever device it was, and all devices work.",
        _try_evaluate,
        cases=((11, 2, 4), (16, 3, 5), (7, 1, 3), (9, 5, 8)),  # twice fewer are left over than there are devices
        draw=lambda rng: tuple(map(int, rng.integers((8, 2, 2), (20, 6, 8)))),
    ),
    "split_by_loads": Exercise(
        "Write split_by_loads(n, loads): how many of n examples each device gets, a list of whole numbers that add up "
        "to n, in proportion to the loads (in any unit; 0 means idle). None is a whole example away from its exact "
        "share.",
        "every example is on a device, and each size differs from its share by less than one.",
        cases=(
            (10, [1, 1]),
            (3, [1, 1, 1, 1, 1]),
            (10, [1, 1, 1]),
            (96, [1, 1, 0.5]),
            (8, [3, 0, 2]),
            (38, [2, 1, 1, 1, 1, 1, 1, 1]),
            (5, [0.2, 0.2, 0.2, 0.2]),
            (0, [1, 2]),
            (64, [5]),
        ),
        draw=_draw_loads,
        mistakes=_split_mistakes,
        form=[float],
        returns=SIZES,
    ),
    "combine_statistics": Exercise(
        "Write combine_statistics(counts, means, variances): lists with a number for each shard, how many numbers it "
        "has, their mean and their variance (the mean squared distance from it; 0 for an empty shard). Return (mean, "
        "variance) of all numbers together.",
        "as if the numbers had never been cut into shards.",
        cases=(
            ([4, 4], [0.0, 2.0], [1.0, 1.0]),
            ([30, 10], [1.0, 3.0], [4.0, 0.5]),
            ([5, 0, 7], [-1.0, 0.0, 2.0], [0.3, 0.0, 0.7]),
            ([6], [2.0], [3.0]),
            ([1, 2, 3], [10.0, 20.0, 60.0], [0.0, 4.0, 9.0]),
        ),
        draw=_draw_statistics,
        right=_combined,
        mistakes=_combined_mistakes,
        hint="the sum of all numbers, divided by how many",
        form=(float, float),
        returns="return two numbers: mean, variance",
    ),
}
