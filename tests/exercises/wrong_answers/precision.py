"""Wrong answers to the exercises of notebook 10b. A docstring is a part of what the check should say."""

import numpy as np


def to_bfloat16__cuts(x):
    """half of the numbers should go up"""
    return (x.view(np.uint32) & 0xFFFF0000).view(np.float32)


def to_bfloat16__half_up(x):
    """ties should go to even"""
    return ((x.view(np.uint32) + 0x8000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def to_bfloat16__half_down(x):
    """add 0x7FFF, and 1 more if the last kept bit is 1"""
    return ((x.view(np.uint32) + 0x7FFF) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def to_bfloat16__always_up(x):
    """add half a last bit, not a whole"""
    return ((x.view(np.uint32) + 0x10000) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def to_bfloat16__float16(x):
    """that is float16"""
    return x.astype(np.float16).astype(np.float32)


def to_bfloat16__bits(x):
    """look at the bits as numbers again"""
    return x.view(np.uint32) & 0xFFFF0000


def to_bfloat16__nothing_done(x):
    """nothing is rounded"""
    return x


def next_scale__only_the_scale(scale, good_steps, grads, interval):
    """return use, scale, good_steps"""
    return scale if all(np.isfinite(grad).all() for grad in grads) else scale / 2


def next_scale__uses_every_step(scale, good_steps, grads, interval):
    """a step is used only if all gradients are finite"""
    good = all(np.isfinite(grad).all() for grad in grads)
    if not good:
        return True, scale / 2, 0
    return (True, scale, good_steps + 1) if good_steps + 1 < interval else (True, 2 * scale, 0)


def next_scale__overlooks_nan(scale, good_steps, grads, interval):
    """an infinite value or NaN"""
    if any(np.isinf(grad).any() for grad in grads):
        return False, max(1, scale / 2), 0
    return (True, scale, good_steps + 1) if good_steps + 1 < interval else (True, 2 * scale, 0)


def next_scale__doubles_every_time(scale, good_steps, grads, interval):
    """doubles after `interval` good steps in a row"""
    good = all(np.isfinite(grad).all() for grad in grads)
    return (True, 2 * scale, good_steps + 1) if good else (False, scale / 2, 0)


def next_scale__below_one(scale, good_steps, grads, interval):
    """but never below 1"""
    if not all(np.isfinite(grad).all() for grad in grads):
        return False, scale / 2, 0
    return (True, scale, good_steps + 1) if good_steps + 1 < interval else (True, 2 * scale, 0)


def next_scale__counts_all_good_steps(scale, good_steps, grads, interval):
    """the count of good steps restarts from 0 after a change or a bad step"""
    if not all(np.isfinite(grad).all() for grad in grads):
        return False, max(1, scale / 2), good_steps
    return (True, scale, good_steps + 1) if good_steps + 1 < interval else (True, 2 * scale, 0)
