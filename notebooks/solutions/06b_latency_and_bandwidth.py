"""Solutions of notebook 6b's exercises."""

import math


def ring_seconds(k, nbytes, latency, bandwidth):
    """Steps, times the time of one."""
    return 2 * (k - 1) * (latency + nbytes / k / bandwidth)


def crossover_bytes(k, latency, bandwidth):
    """From 2(k-1)(α + n/kB) = 2r(α + n/B), with r = ⌈log₂ k⌉."""
    rounds = math.ceil(math.log2(k))
    return latency * bandwidth * (k - 1 - rounds) / (rounds - (k - 1) / k)
