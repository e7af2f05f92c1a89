"""Wrong answers to the exercises of notebook 7. A docstring is a part of what the check should say."""

import math


def updates_per_epoch__rounded_down(n, b, k):
    """the examples left over get no update"""
    return n // (k * b)


def updates_per_epoch__not_rounded(n, b, k):
    """234.4 instead of 235: that is not a whole number"""
    return n / (k * b)


def updates_per_epoch__forgets_k(n, b, k):
    """an update needs a shard of b examples from each device"""
    return math.ceil(n / b)


def updates_per_epoch__one_for_each_device(n, b, k):
    """all devices together make one update"""
    return k * math.ceil(n / b)


def updates_per_epoch__plus_one(n, b, k):
    """if k·b divides n, there is no smaller last minibatch"""
    return n // (k * b) + 1


def learning_rate__forgets_k(step, lr, k, warmup_steps):
    """one device's rate"""
    return lr * min(1, (step + 1) / max(1, warmup_steps))


def learning_rate__without_warmup(step, lr, k, warmup_steps):
    """the full rate from the start"""
    return k * lr


def learning_rate__begins_with_nothing(step, lr, k, warmup_steps):
    """a step with rate 0 changes nothing"""
    return k * lr * step / warmup_steps if step < warmup_steps else k * lr


def learning_rate__never_gets_there(step, lr, k, warmup_steps):
    """warmup_steps - 1 has the full rate"""
    return k * lr * min(step + 1, warmup_steps) / (warmup_steps + 1) if warmup_steps else k * lr


def learning_rate__goes_on_rising(step, lr, k, warmup_steps):
    """after the warm-up the rate is constant"""
    return k * lr * (step + 1) / warmup_steps if warmup_steps else k * lr


def learning_rate__divides_by_nothing(step, lr, k, warmup_steps):
    """warmup_steps may be 0: then there is no warm-up"""
    return k * lr * min(1, (step + 1) / warmup_steps)


def learning_rate__root_of_k(step, lr, k, warmup_steps):
    """scaled by the square root of k"""
    return math.sqrt(k) * lr * (min(1, (step + 1) / warmup_steps) if warmup_steps else 1)


def he_std__forgets_the_window(shape):
    """a convolution's unit adds up its whole window in every channel"""
    return math.sqrt(2 / shape[1])


def he_std__the_variance(shape):
    """the standard deviation is its square root"""
    return 2 / (math.prod(shape[1:]) if len(shape) == 4 else shape[0])


def he_std__counts_outputs(shape):
    """the size of a unit's output depends on the number of inputs that it adds up"""
    return math.sqrt(2 / (shape[0] * math.prod(shape[2:])))


def he_std__one_rule_for_all_shapes(shape):
    """a dense layer's weight is (inputs, outputs), a convolution's (outputs, inputs, h, w)"""
    return math.sqrt(2 / math.prod(shape[1:]))


def he_std__without_the_two(shape):
    """ReLU sets half of the values to zero"""
    return math.sqrt(1 / (math.prod(shape[1:]) if len(shape) == 4 else shape[0]))
