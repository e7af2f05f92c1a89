"""Exercises for notebook 5, training on k devices: a step, its speed, and the batch size where k devices pay off."""

import math

import numpy as np

from ..base.text import several
from ..collectives import chunk_bounds
from ..networks import init_params, loss_and_grads
from ..parallel import get_params
from .exercise import Exercise, call_recorded, read
from .spies import check_at_once, check_ways, row_of, watch
from .synchronisation import check_steps

_LR = 0.5


class train_batch(Exercise):
    """Write train_batch(X, y, device_params, devices, lr): one step of data-parallel training. X (n, 1, 28, 28) and y
    (n,) are NumPy arrays; device_params has a list of LeNet's parameters on each device, to be updated in place. Return
    the loss, summed over all n examples.

    all replicas take the right step, all devices compute at the same time, and the loss is the sum over all examples.
    """

    cases = ((7, 3), (12, 2), (5, 1), (2, 3))
    hint = "add up the sums of the losses of all shards"
    returns = "return the loss, summed over examples"

    def words(self, n, k):
        return f"{several(n, 'example')} on {several(k, 'device')}"

    def test(self, answer, n, k):
        """Test that every replica takes the step of a single device, in place, even if shards are uneven or empty."""
        rng = np.random.default_rng(0)
        params = init_params(0, init="he")
        X, y = rng.random((n, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, n)
        devices, bounds = row_of(k), chunk_bounds(n, k)
        copies = [get_params(params, device) for device in devices]
        given = [list(copy) for copy in copies]
        with watch(devices) as seen:
            loss, transfers = call_recorded(answer, X, y, given, list(devices), _LR)
        own = [loss_and_grads(X[start:stop], y[start:stop], params)[1] for start, stop in bounds]
        check_steps(given, copies, params, own, [stop - start for start, stop in bounds], _LR, transfers, 1e-2)
        loss, total = read(loss, float, self.returns), float(loss_and_grads(X, y, params)[0])
        self.compare(loss, total, n, what="the loss")
        check_at_once(seen)
        check_ways(transfers, devices, sum(param.size for param in params))

    def mistakes(self, loss, total, n):
        yield total / n, "the mean", "return the sum over the examples; do not divide it"
        yield loss > 1.5 * total / n, "some examples are missing", "add up the losses of all devices, not just of one"


_ALL = "divide all examples by all seconds"


class examples_per_second(Exercise):
    """Write examples_per_second(seconds, sizes): lists with the seconds and the number of examples of each step of a
    run; return the examples per second, leaving out the first step, which warms up.

    all examples are divided by all seconds, without the first step.
    """

    cases = (([9.0, 4.0, 1.0, 1.0], [4, 4, 4, 4]), ([5.0, 1.0, 1.0, 0.5], [256, 256, 256, 96]), ([3.0, 2.0], [10, 5]))
    hint = f"{_ALL}, except for the first step"

    def right(self, seconds, sizes):
        return sum(sizes[1:]) / sum(seconds[1:])

    def mistakes(self, _, right, seconds, sizes):
        rates, time = np.divide(sizes[1:], seconds[1:]), sum(seconds[1:])
        yield sum(sizes) / sum(seconds), "this includes the first step, which warms up", "leave it out of both lists"
        yield 1 / right, "this is seconds per example", "divide examples by seconds"
        yield rates.mean(), "the mean of the steps' rates", f"{_ALL}: a short step should count less"
        yield sizes[0] * len(sizes[1:]) / time, "as if every minibatch were full", "the last minibatch is smaller"


class smallest_batch(Exercise):
    """Write smallest_batch(per_example, exchange, k): a device takes per_example ms for each of its examples, and k
    devices take exchange ms more for a step. Return the smallest number n of examples in a minibatch, a whole number,
    for which k devices are faster than one.

    from this size on, k devices are faster despite the exchange.
    """

    cases = ((1.0, 6.0, 4), (1.0, 3.5, 2), (2.0, 9.0, 4), (0.5, 0.1, 3), (1.0, 7.0, 8))
    hint = "write down the milliseconds for one device and for k devices, with the same n"

    def right(self, per_example, exchange, k, least=1e-9):
        """The first n for which per_example · ⌈n/k⌉ + exchange is less than per_example · n, by ``least`` or more."""
        return next(n for n in range(1000) if per_example * (n - math.ceil(n / k)) - exchange >= least)

    def mistakes(self, found, right, per_example, exchange, k):
        even = exchange / (per_example * (1 - 1 / k))
        yield isinstance(found, float) and found == even, "a minibatch has whole examples: try n = 1, 2, 3, …"
        yield self.right(per_example, exchange, k, 0), "equally fast is not faster: use < and not <="
        yield math.ceil(exchange / per_example), "k devices still have to compute, each on a k-th of the examples"
        yield math.floor(even) + 1, "the fullest device has n / k examples, rounded up: math.ceil(n / k)"
