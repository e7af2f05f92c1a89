"""Solutions of notebook 10's exercises."""


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


def buckets(sizes, limit):
    """The last parameter's gradient is finished first."""
    packed, room = [], -1
    for i in reversed(range(len(sizes))):
        if sizes[i] > room:
            packed.append([])
            room = limit
        packed[-1].append(i)
        room -= sizes[i]
    return packed
