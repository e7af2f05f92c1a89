"""Exercises for notebook 7, batch size and learning rate: updates per epoch, the rate of a step, and He's weights."""

import math

from .exercise import RUN_IT, Exercise


class updates_per_epoch(Exercise):
    """Write updates_per_epoch(n, b, k): return the number of parameter updates in an epoch of n examples on k devices,
    if each device gets b examples of a minibatch. A smaller last minibatch is used, too.

    the minibatch is k times as large, so the number of updates is divided by k, and rounded up.
    """

    cases = ((60_000, 256, 1), (60_000, 256, 8), (60_000, 250, 4), (1000, 64, 3), (100, 32, 5))
    hint = "how many minibatches of k·b examples are in n?"

    def right(self, n, b, k):
        return math.ceil(n / (k * b))

    def mistakes(self, _, right, n, b, k):
        yield n // (k * b), "the examples left over get no update", "the last minibatch may be smaller; round up"
        yield n / (k * b), "that is not a whole number", "the last minibatch may be smaller, but makes an update"
        yield math.ceil(n / b), "as many as on one device", "an update needs a shard of b examples from each device"
        yield k * math.ceil(n / b), "it grows with k", "all devices together make one update, with k·b examples"
        yield right + 1, "one too many", "if k·b divides n, there is no smaller last minibatch"


SCALED = "the minibatch grows with k: what does linear scaling say about the rate?"
RISE = "in the first warmup_steps steps the rate rises in equal parts, and no step has rate 0"


class learning_rate(Exercise):
    """Write learning_rate(step, lr, k, warmup_steps): return the rate of a step (counted from 0) on k devices, by
    linear scaling from the rate lr of one device. In the first warmup_steps steps the rate rises from 0 in equal parts,
    so that step warmup_steps - 1 is the first with the full rate.

    the rate rises in equal parts to k times the rate, which it reaches in the warm-up's last step.
    """

    without = ("learning_rates",)
    cases = [(step, *run) for run in ((0.1, 4, 5), (0.05, 8, 0), (0.2, 1, 3), (0.3, 2, 1)) for step in range(9)]
    hint = f"{SCALED}; {RISE}"
    raises = f"{RUN_IT}; warmup_steps may be 0: then there is no warm-up, and nothing to divide by"

    def right(self, step, lr, k, warmup):
        return k * lr * (min(1, (step + 1) / warmup) if warmup else 1)

    def mistakes(self, _, right, step, lr, k, warmup):
        """First the rates that are wrong during or after the warm-up, then those that are wrong in any step."""
        full, part = k * lr, (step + 1) / max(1, warmup)
        if step < warmup:
            yield full, "the full rate from the start", "during the warm-up the rate is still smaller"
            yield 0.0, "a step with rate 0 changes nothing", RISE
            yield full * (step + 1) / (warmup + 1), "one step late", f"{RISE}; step warmup_steps - 1 has the full rate"
        else:
            yield part * full, "it keeps rising", "after the warm-up the rate is constant"
        yield right / k, "one device's rate", SCALED
        yield right / math.sqrt(k), "scaled by the square root of k", SCALED


FAN = "the size of a unit's output depends on the number of inputs that it adds up"
_ORDER = "a dense layer's weight is (inputs, outputs), a convolution's (outputs, inputs, h, w)"


class he_std(Exercise):
    """Write he_std(shape): return the standard deviation of He's initial weights, for the shape of a convolution's
    weight, (outputs, inputs, h, w), or of a dense layer's, (inputs, outputs).

    with these weights a unit's outputs are about as large as its inputs.
    """

    cases = (((20, 1, 3, 3),), ((50, 20, 5, 5),), ((7, 3, 2, 5),), ((800, 128),), ((128, 10),))
    hint = "√(2 / number of inputs of a unit)"

    def right(self, shape):
        return math.sqrt(2 / (math.prod(shape[1:]) if len(shape) == 4 else shape[0]))

    def mistakes(self, _, right, shape):
        outputs, area = shape[0 if len(shape) == 4 else 1], math.prod(shape[2:])
        hint = "a convolution's unit adds up its whole window in every channel"
        yield math.sqrt(2 / outputs), "this counts the outputs", FAN if len(shape) == 4 else _ORDER
        yield math.sqrt(2 / outputs / area), "this counts the outputs", FAN
        yield math.sqrt(2 / shape[1]), "this counts only channels", hint
        yield right**2, "this is the variance", "the standard deviation is its square root"
        yield right / math.sqrt(2), "the 2 is missing", "ReLU sets half of the values to zero; the 2 makes up for it"
