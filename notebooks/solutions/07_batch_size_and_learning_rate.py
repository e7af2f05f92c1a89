"""Solutions of notebook 7's exercises."""

import math


def updates_per_epoch(n, b, k):
    """One a minibatch of all devices; -(-a // b) rounds up."""
    return -(-n // (k * b))


def learning_rate(step, lr, k, warmup_steps):
    """The full rate times the part of the warm-up that is over with this step."""
    full = k * lr
    return full * (step + 1) / warmup_steps if step < warmup_steps else full


def he_std(shape):
    """The inputs of a unit: its window in all channels, or all inputs."""
    inputs = math.prod(shape[1:]) if len(shape) == 4 else shape[0]
    return math.sqrt(2 / inputs)
