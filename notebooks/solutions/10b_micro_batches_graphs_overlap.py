"""The solution of notebook 10b's exercise."""


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
