"""The solution of notebook 10c's exercise."""

import numpy as np


def next_scale(scale, good_steps, grads, interval):
    """As d2lmgpu/parallel/loss_scale.py, without memory of its own."""
    if not all(np.isfinite(grad).all() for grad in grads):
        return False, max(1.0, scale / 2), 0
    good_steps += 1
    if good_steps == interval:
        return True, 2 * scale, 0
    return True, scale, good_steps
