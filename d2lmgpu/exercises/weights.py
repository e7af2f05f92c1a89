"""Exercises for notebook 8, evaluation and uneven loads: accuracy, shards by loads, and combined statistics."""

import numpy as np

from ..base.text import several
from ..collectives import chunk_bounds
from ..networks import init_params, lenet
from ..parallel import get_params
from .exercise import Exercise, call_recorded, expect, read, returned
from .spies import row_of

_EMPTY = "the last minibatch may have fewer images than there are devices: a shard may be empty, and 0/0 is NaN"
_SMALL = "this gives images in small shards more weight than images in large ones: add up counts, and divide once"


class evaluate(Exercise):
    """Write evaluate(device_params, X, y, devices, batch_size): the accuracy of LeNet, from 0 to 1, on images X (n, 1,
    28, 28) with labels y (n,), NumPy arrays. device_params has a copy of the parameters for each device. Take
    batch_size images at a time, including the rest, split them over the devices, and use d2l.lenet(X, params).

    every image counts once, on any device, and all devices work.
    """

    without = "predict", "confusion_matrix"
    cases = ((11, 2, 4), (16, 3, 5), (8, 1, 3), (9, 5, 8))  # in two, fewer images are left over than there are devices
    hint = "count the right answers over all shards of all minibatches, and divide once by the number of images"

    def words(self, n, k, batch_size):
        return f"{several(n, 'image')} on {several(k, 'device')}, {batch_size} at a time"

    def test(self, answer, n, k, batch_size):
        """Test with labels for which the accuracy differs between devices, and between minibatches."""
        params, devices = init_params(0, init="he"), row_of(k)
        X = np.random.default_rng(n).random((n, 1, 28, 28), np.float32)
        right = np.arange(n) % (k + 2) > 0
        right[-1] = not right[: batch_size * (n // batch_size)].mean() > 0.5  # unlike the full minibatches
        y = (lenet(X, params).argmax(axis=1) + ~right) % 10
        device_params = [get_params(params, device) for device in devices]
        found, transfers = call_recorded(answer, device_params, X, y, list(devices), batch_size, hint=_EMPTY)
        found = read(returned(found), self.form, self.returns)
        self.compare(found, right.mean(), right, k, batch_size)
        used = {transfer.destination for transfer in transfers} & set(map(str, devices))
        hint = "split every minibatch, so that all devices work: d2l.split_batch"
        expect(len(used) == k, f"right, but images went to {len(used)} of the devices", hint)

    def mistakes(self, _, mean, right, k, batch_size):
        """The usual mistakes; ``right`` says for each image whether it is classified correctly."""
        batches = [right[start : start + batch_size] for start in range(0, len(right), batch_size)]
        shards = [[batch[start:stop] for start, stop in chunk_bounds(len(batch), k)] for batch in batches]
        full = np.concatenate([batch for batch in batches if len(batch) == batch_size])
        firsts = np.concatenate([parts[0] for parts in shards])
        of_shards = [shard.mean() for parts in shards for shard in parts if len(shard)]
        yield right.sum(), "this is a number of images", "accuracy is a fraction: divide by the number of all images"
        yield 100 * mean, "this is in percent", "accuracy is a fraction of all images, from 0 to 1"
        yield full.mean(), "the last minibatch is missing", "evaluate the smaller last minibatch, too"
        yield batches[-1].mean(), "it is the last minibatch's", "add up over all minibatches before you divide"
        yield firsts.mean(), "only device 0 counts", "every device's shard counts"
        yield np.mean([batch.mean() for batch in batches]), "a mean of minibatches' accuracies", _SMALL
        yield np.mean(of_shards), "a mean of shards' accuracies", _SMALL


_SIZES = "return a list of sizes, one per device"
IDLE = "examples left over by rounding down go only to devices whose share was rounded down"
FLOORED = "rounding down leaves some examples over: give these to devices, too"
_UNIT = "loads are in any unit: a device's share is its load divided by the sum of the loads"
ONE_BY_ONE = "round down, then give the remaining examples to different devices, one each"


class split_by_loads(Exercise):
    """Write split_by_loads(n, loads): return how many of n examples each device gets, a list of whole numbers that add
    up to n, in proportion to the loads (in any unit; 0 means idle). Each number differs from its exact share by less
    than one.

    every example is on a device, and each size differs from its share by less than one.
    """

    without = "shard_bounds", "apportioned"
    cases = ((3, [1] * 5), (9, [1] * 7), (96, [1, 1, 0.5]), (5, [0, 1, 1]), (5, [4, 3, 3]), (8, [3, 0, 2]), (0, [1, 2]))
    form = [float]
    returns = _SIZES

    def mistakes(self, sizes, _, n, loads):
        yield len(sizes) != len(loads), f"{len(sizes)} sizes for {several(len(loads), 'device')}", _SIZES
        shares, total = n * np.array(loads) / sum(loads), sum(sizes)
        away = np.abs(np.array(sizes) - shares).max()
        about = f"it should be about [{', '.join(f'{share:.3g}' for share in shares)}]"
        sum_of = f"{about}, and has {total:g} examples in all"
        yield any(size % 1 or size < 0 for size in sizes), "an example cannot be divided: return whole numbers, from 0"
        yield any(np.array(sizes)[np.array(loads) == 0]), f"{about}: a device with load 0 has work", IDLE
        yield total != n and sizes == [int(n * load) for load in loads], sum_of, _UNIT
        yield total != n and sizes == np.floor(shares).tolist(), sum_of, FLOORED
        yield total != n, sum_of, "shares rounded one by one may not add up to n: round all down, and hand out the rest"
        yield away >= 1, f"{about}: one size differs from its share by {away:.3g}", ONE_BY_ONE


BETWEEN = "numbers also differ because the shards' means differ: think of a shard of 0s and a shard of 1s"


class combine_statistics(Exercise):
    """Write combine_statistics(counts, means, variances): three lists with a value for each shard: its count of
    numbers, their mean and their variance (the mean squared distance from the mean; 0 for an empty shard). Return
    (mean, variance) of all numbers together.

    the result is the same as if the numbers had never been split into shards.
    """

    without = ("mean_and_variance",)
    cases = (
        ([4, 4], [0.0, 2.0], [1.0, 1.0]),
        ([30, 10], [1.0, 3.0], [4.0, 0.5]),
        ([5, 0, 7], [-1.0, 0.0, 2.0], [0.3, 0.0, 0.7]),
        ([1, 2, 3], [10.0, 20.0, 60.0], [0.0, 4.0, 9.0]),
    )
    hint = "the sum of all numbers, divided by their count"
    form = (float, float)
    returns = "return two numbers: mean, variance"

    def right(self, counts, means, variances):
        """The mean and the variance of all numbers, computed from those of the shards."""
        part, m = np.array(counts) / sum(counts), np.array(means)
        mean = (part * m).sum()
        return mean, (part * variances).sum() + (part * (m - mean) ** 2).sum()

    def mistakes(self, found, right, counts, means, variances):
        n, m, v = (np.array(values, float) for values in (counts, means, variances))
        part, mean = n / n.sum(), right[0]
        within = (part * v).sum()
        yield (m.mean(), ...), "the mean is the mean of the means", "weight each mean by the shard's count"
        yield (mean, within), "the variance leaves out the differences between the means", BETWEEN
        yield (mean, within + (part * m**2).sum()), "the variance is the mean square", "subtract the square of the mean"
