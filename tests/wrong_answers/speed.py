"""Wrong answers to the exercises of notebook 10. A docstring is a part of what the check should say."""

import numpy as np


def count_products__no_answer(x_shape, weight_shape, input_grad):
    """it returned nothing. Write count_products"""


def count_products__forward_only(x_shape, weight_shape, input_grad):
    """that is the forward pass alone; backward needs products, too"""
    (N, _, H, W), (O, C, kh, kw) = x_shape, weight_shape
    return N * O * (H - kh + 1) * (W - kw + 1) * C * kh * kw


def count_products__always_three(x_shape, weight_shape, input_grad):
    """one of the three is not computed"""
    return 3 * count_products__forward_only(x_shape, weight_shape, input_grad)


def count_products__an_output_for_each_pixel(x_shape, weight_shape, input_grad):
    """there are fewer outputs than pixels"""
    (N, _, H, W), (O, C, kh, kw) = x_shape, weight_shape
    return (2 + input_grad) * N * O * H * W * C * kh * kw


def count_products__one_image(x_shape, weight_shape, input_grad):
    """that is for one image; there are N"""
    (_, _, H, W), (O, C, kh, kw) = x_shape, weight_shape
    return (2 + input_grad) * O * (H - kh + 1) * (W - kw + 1) * C * kh * kw


def count_products__operations(x_shape, weight_shape, input_grad):
    """a multiplication and its addition count once here"""
    return 2 * (2 + input_grad) * count_products__forward_only(x_shape, weight_shape, input_grad)


def count_products__sides_swapped(x_shape, weight_shape, input_grad):
    """kh goes along H, and kw along W"""
    (N, _, H, W), (O, C, kh, kw) = x_shape, weight_shape
    return (2 + input_grad) * N * O * (H - kw + 1) * (W - kh + 1) * C * kh * kw


def count_products__outputs_only(x_shape, weight_shape, input_grad):
    """each output is a sum of C·kh·kw products"""
    (N, _, H, W), (O, _, kh, kw) = x_shape, weight_shape
    return N * O * (H - kh + 1) * (W - kw + 1)


def accumulate_grads__no_answer(grads_of, X, y, most):
    """it returned nothing. Write accumulate_grads"""


def accumulate_grads__all_at_once(grads_of, X, y, most):
    """range(0, len(X), most) gives the index at which each part begins"""
    return grads_of(X, y)


def accumulate_grads__the_rest_is_lost(grads_of, X, y, most):
    """what about the last, smaller part?"""
    total = [np.zeros(3), np.zeros(1)]
    for i in range(len(X) // most):
        for t, grad in zip(total, grads_of(X[i * most : (i + 1) * most], y[i * most : (i + 1) * most]), strict=True):
            t += grad
    return total


def accumulate_grads__adds_to_the_scratch_paper(grads_of, X, y, most):
    """grads_of writes to the same arrays each time"""
    total = grads_of(X[:most], y[:most])
    for i in range(most, len(X), most):
        total = [a + b for a, b in zip(total, grads_of(X[i : i + most], y[i : i + most]), strict=True)]
    return total


def accumulate_grads__keeps_them_for_later(grads_of, X, y, most):
    """what you keep from one call to the next, copy"""
    kept = [grads_of(X[i : i + most], y[i : i + most]) for i in range(0, len(X), most)]
    return [sum(grads) for grads in zip(*kept, strict=True)]


def accumulate_grads__the_last_part(grads_of, X, y, most):
    """the last part's alone"""
    for i in range(0, len(X), most):
        grads = grads_of(X[i : i + most], y[i : i + most])
    return grads


def accumulate_grads__the_mean_of_the_parts(grads_of, X, y, most):
    """gradients are summed over images"""
    starts = range(0, len(X), most)
    kept = [[grad.copy() for grad in grads_of(X[i : i + most], y[i : i + most])] for i in starts]
    return [sum(grads) / len(starts) for grads in zip(*kept, strict=True)]


def accumulate_grads__only_the_first(grads_of, X, y, most):
    """the second gradient"""
    starts = range(0, len(X), most)
    kept = [[grad.copy() for grad in grads_of(X[i : i + most], y[i : i + most])] for i in starts]
    return [sum(grads) / number for number, grads in enumerate(zip(*kept, strict=True), 1)]


def accumulate_grads__labels_not_cut(grads_of, X, y, most):
    """cut X and y at the same places"""
    kept = [[grad.copy() for grad in grads_of(X[i : i + most], y)] for i in range(0, len(X), most)]
    return [sum(grads) for grads in zip(*kept, strict=True)]


def accumulate_grads__a_number(grads_of, X, y, most):
    """a list, an array for each parameter"""
    starts = range(0, len(X), most)
    return sum(float(grads_of(X[i : i + most], y[i : i + most])[0].sum()) for i in starts)


def next_scale__no_answer(scale, good_steps, grads, interval):
    """it returned nothing. Write next_scale"""


def next_scale__only_the_scale(scale, good_steps, grads, interval):
    """return use, scale, good_steps"""
    return scale if all(np.isfinite(grad).all() for grad in grads) else scale / 2


def next_scale__uses_every_step(scale, good_steps, grads, interval):
    """a step is used only if all gradients are finite"""
    good = all(np.isfinite(grad).all() for grad in grads)
    if not good:
        return True, scale / 2, 0
    return (True, scale, good_steps + 1) if good_steps + 1 < interval else (True, 2 * scale, 0)


def next_scale__looks_at_the_first_only(scale, good_steps, grads, interval):
    """no array contains"""
    if not np.isfinite(grads[0]).all():
        return False, max(1, scale / 2), 0
    return (True, scale, good_steps + 1) if good_steps + 1 < interval else (True, 2 * scale, 0)


def next_scale__overlooks_nan(scale, good_steps, grads, interval):
    """an infinite value or NaN"""
    if any(np.isinf(grad).any() for grad in grads):
        return False, max(1, scale / 2), 0
    return (True, scale, good_steps + 1) if good_steps + 1 < interval else (True, 2 * scale, 0)


def next_scale__doubles_every_time(scale, good_steps, grads, interval):
    """doubled after `interval` good steps in a row"""
    good = all(np.isfinite(grad).all() for grad in grads)
    return (True, 2 * scale, good_steps + 1) if good else (False, scale / 2, 0)


def next_scale__below_one(scale, good_steps, grads, interval):
    """but never below 1"""
    if not all(np.isfinite(grad).all() for grad in grads):
        return False, scale / 2, 0
    return (True, scale, good_steps + 1) if good_steps + 1 < interval else (True, 2 * scale, 0)


def next_scale__counts_all_good_steps(scale, good_steps, grads, interval):
    """good steps are counted in a row"""
    if not all(np.isfinite(grad).all() for grad in grads):
        return False, max(1, scale / 2), good_steps
    return (True, scale, good_steps + 1) if good_steps + 1 < interval else (True, 2 * scale, 0)
