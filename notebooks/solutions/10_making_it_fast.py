"""Solutions of notebook 10's exercises."""

import numpy as np


def count_products(x_shape, weight_shape, input_grad):
    """Three matrix products of the same size: y, dweight, dx."""
    N, _, H, W = x_shape
    O, C, kh, kw = weight_shape
    forward = N * O * (H - kh + 1) * (W - kw + 1) * C * kh * kw
    return (3 if input_grad else 2) * forward


def accumulate_grads(grads_of, X, y, most):
    """The first part's gradients are copied, the others' added."""
    total = None
    for start in range(0, len(X), most):
        grads = grads_of(X[start : start + most], y[start : start + most])
        if total is None:
            total = [grad.copy() for grad in grads]
        else:
            for sum_so_far, grad in zip(total, grads, strict=True):
                sum_so_far += grad
    return total


def next_scale(scale, good_steps, grads, interval):
    """As d2lmgpu/parallel/loss_scale.py, without memory of its own."""
    if not all(np.isfinite(grad).all() for grad in grads):
        return False, max(1.0, scale / 2), 0
    good_steps += 1
    if good_steps == interval:
        return True, 2 * scale, 0
    return True, scale, good_steps
