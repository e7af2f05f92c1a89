"""No exchange at all, to measure what a step would cost if communication were free.

It is a bound to measure against, not an allreduce: every device keeps only its own gradients, so replicas would drift
apart. Training refuses it.
"""


def none(k, n):
    """The empty schedule."""
    return []
