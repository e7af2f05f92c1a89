"""Wrong answers to the exercises of notebook 10. A docstring is a part of what the check should say."""

import numpy as np


def count_products__forward_only(x_shape, weight_shape, input_grad):
    """that is only the forward pass; backward also needs products"""
    (N, _, H, W), (O, C, kh, kw) = x_shape, weight_shape
    return N * O * (H - kh + 1) * (W - kw + 1) * C * kh * kw


def count_products__always_three(x_shape, weight_shape, input_grad):
    """with input_grad=False, one of the three products is not computed"""
    return 3 * count_products__forward_only(x_shape, weight_shape, input_grad)


def count_products__an_output_for_each_pixel(x_shape, weight_shape, input_grad):
    """there are fewer outputs than pixels"""
    (N, _, H, W), (O, C, kh, kw) = x_shape, weight_shape
    return (2 + input_grad) * N * O * H * W * C * kh * kw


def count_products__one_image(x_shape, weight_shape, input_grad):
    """that is for one image, and there are N"""
    (_, _, H, W), (O, C, kh, kw) = x_shape, weight_shape
    return (2 + input_grad) * O * (H - kh + 1) * (W - kw + 1) * C * kh * kw


def count_products__operations(x_shape, weight_shape, input_grad):
    """count only the multiplications, not the additions"""
    return 2 * (2 + input_grad) * count_products__forward_only(x_shape, weight_shape, input_grad)


def count_products__outputs_only(x_shape, weight_shape, input_grad):
    """each output is a sum of C·kh·kw products"""
    (N, _, H, W), (O, _, kh, kw) = x_shape, weight_shape
    return N * O * (H - kh + 1) * (W - kw + 1)


def accumulate_grads__all_at_once(grads_of, X, y, most):
    """range(0, len(X), most) gives the index at which each part begins"""
    return grads_of(X, y)


def accumulate_grads__the_rest_is_lost(grads_of, X, y, most):
    """what about the last, smaller part?"""
    n = len(X) - len(X) % most
    total = [np.zeros(3), np.zeros(1)]
    return list(map(sum, zip(total, *_parts(grads_of, X[:n], y[:n], most), strict=True)))


def accumulate_grads__adds_to_the_scratch_paper(grads_of, X, y, most):
    """grads_of writes to the same arrays each time"""
    total = grads_of(X[:most], y[:most])
    for i in range(most, len(X), most):
        total = [a + b for a, b in zip(total, grads_of(X[i : i + most], y[i : i + most]), strict=True)]
    return total


def accumulate_grads__the_last_part(grads_of, X, y, most):
    """grads_of overwrote its arrays"""
    for i in range(0, len(X), most):
        grads = grads_of(X[i : i + most], y[i : i + most])
    return grads


def accumulate_grads__the_mean_of_the_parts(grads_of, X, y, most):
    """gradients are summed over images"""
    kept = _parts(grads_of, X, y, most)
    return [sum(grads) / len(kept) for grads in zip(*kept, strict=True)]


def accumulate_grads__only_the_first(grads_of, X, y, most):
    """the second gradient"""
    first, second = map(sum, zip(*_parts(grads_of, X, y, most), strict=True))
    return [first, second / 2]


def accumulate_grads__labels_not_cut(grads_of, X, y, most):
    """cut X and y at the same places"""
    kept = [[grad.copy() for grad in grads_of(X[i : i + most], y)] for i in range(0, len(X), most)]
    return [sum(grads) for grads in zip(*kept, strict=True)]


def accumulate_grads__a_number(grads_of, X, y, most):
    """return a list with an array for each parameter"""
    return sum(float(grads[0].sum()) for grads in _parts(grads_of, X, y, most))


def buckets__forward(sizes, limit):
    """backward goes from the last layer to the first"""
    return _packed(range(len(sizes)), sizes, limit)


def buckets__until_it_is_full(sizes, limit):
    """ask whether it still fits"""
    found = [[]]
    for i in reversed(range(len(sizes))):
        if sum(sizes[j] for j in found[-1]) >= limit:
            found.append([])
        found[-1].append(i)
    return found


def buckets__forgets_the_last(sizes, limit):
    """the last bucket, too, has to be sent"""
    return _packed(reversed(range(len(sizes))), sizes, limit)[:-1]


def buckets__one_each(sizes, limit):
    """as long as there is room for it"""
    return [[i] for i in reversed(range(len(sizes)))]


def buckets__sizes(sizes, limit):
    """these are the gradients' sizes"""
    return [[sizes[i] for i in bucket] for bucket in _packed(reversed(range(len(sizes))), sizes, limit)]


def buckets__an_empty_one(sizes, limit):
    """begin a new one only if there is something in it"""
    found = [[]]
    for i in reversed(range(len(sizes))):
        if sum(sizes[j] for j in found[-1]) + sizes[i] > limit:
            found.append([])
        found[-1].append(i)
    return found


def buckets__a_flat_list(sizes, limit):
    """each a list of the numbers of parameters"""
    return list(reversed(range(len(sizes))))


def _packed(order, sizes, limit):
    found = []
    for i in order:
        if found and sum(sizes[j] for j in found[-1]) + sizes[i] <= limit:
            found[-1].append(i)
        else:
            found.append([i])
    return found


def accumulate_grads__one_part_as_it_is(grads_of, X, y, most):
    """right, but the arrays are those of grads_of, and its next call overwrites them"""
    if len(X) <= most:
        return grads_of(X, y)
    return list(map(sum, zip(*_parts(grads_of, X, y, most), strict=True)))


def _parts(grads_of, X, y, most):
    """Copies of the gradients of each part."""
    parts = [slice(start, start + most) for start in range(0, len(X), most)]
    return [[grad.copy() for grad in grads_of(X[part], y[part])] for part in parts]
