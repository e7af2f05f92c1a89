"""Losses: they measure how far outputs are from their targets.

Softmax and cross-entropy form one layer, because together they are simpler and more accurate.

Losses are *summed* over examples, not averaged. So the sums of the shards add up to the sum of the batch, whatever the
sizes of the shards, and `sgd` divides once by the size of the full batch.
"""

from ..devices import array_module, on_device
from .labels import check_targets


@on_device
def softmax_cross_entropy(logits, y):
    """``logits`` (N, K), labels ``y`` (N,) in 0..K-1 → the loss summed over examples (0-d), cache.

    The loss is Σ_n (log Σ_k exp(logits[n, k]) - logits[n, y[n]]). Each row's own maximum is subtracted from the row
    first: this changes nothing, and keeps exp from overflowing.

    ``y`` may also be floats (N, K), the probability of each class: one-hot or soft labels. The loss is then
    Σ_n Σ_k y[n, k] · (log Σ_j exp(logits[n, j]) - logits[n, k]), as in PyTorch.

    Raises ValueError for other labels (see `check_targets`): used as indices, they would silently give wrong results.
    """
    check_targets(y, *logits.shape)
    xp = array_module(logits)
    logits = logits - logits.max(axis=1, keepdims=True)
    exp = xp.exp(logits)
    total = exp.sum(axis=1, keepdims=True)
    if y.ndim == 2:
        y = y.astype(logits.dtype, copy=False)
        loss = (y * (xp.log(total) - logits)).sum()
    else:
        rows = xp.arange(len(y))
        loss = (xp.log(total[:, 0]) - logits[rows, y]).sum()
    return loss, (exp / total, y)


@on_device
def softmax_cross_entropy_grad(cache):
    """→ dlogits (N, K): the probabilities, minus 1 for the label's class."""
    probabilities, y = cache
    if y.ndim == 2:
        return probabilities * y.sum(axis=1, keepdims=True) - y
    xp = array_module(probabilities)
    dlogits = probabilities.copy()
    dlogits[xp.arange(len(y)), y] -= 1
    return dlogits


@on_device
def squared_error(outputs, y):
    """``outputs`` (N, K), targets ``y``, floats (N, K) → the loss summed over examples (0-d), cache.

    The loss is Σ_n 1/K · Σ_k (outputs[n, k] - y[n, k])²: for each example, this is the *mean* over its outputs, so
    loss / N is the result of PyTorch's ``nn.MSELoss()``. Labels ``y`` (N,) in 0..K-1 count as one-hot.

    Raises ValueError for other targets (see `check_targets`).
    """
    check_targets(y, *outputs.shape)
    if y.ndim == 2:
        difference = outputs - y.astype(outputs.dtype, copy=False)
    else:
        difference = outputs.copy()
        difference[array_module(outputs).arange(len(y)), y] -= 1
    return (difference**2).sum() / outputs.shape[1], (difference,)


@on_device
def squared_error_grad(cache):
    """→ doutputs (N, K): 2/K · (outputs - y)."""
    (difference,) = cache
    return difference * difference.dtype.type(2 / difference.shape[1])
