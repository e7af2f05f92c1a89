"""Solutions of notebook 4b's exercises."""

import numpy as np

import d2lmgpu as d2l


def update_replicas(device_params, device_grads, lr, batch_size):
    """Sum each parameter's gradients over the devices; then every device steps its own copy."""
    for grads in zip(*device_grads, strict=True):
        d2l.allreduce(list(grads))
    for params, grads in zip(device_params, device_grads, strict=True):
        d2l.sgd(params, grads, lr, batch_size)


UNIT = 2.0**-40  # sums of less than 2**20, with two bits to spare below int64's 2**63


def associative_sum(device_terms, allreduce):
    """Round each term, once, to a whole number of units; integers are added without rounding."""
    arrays = [sum(np.rint(term / UNIT).astype(np.int64) for term in terms) for terms in device_terms]
    allreduce(arrays)
    return (arrays[0] * UNIT).astype(np.float32)
