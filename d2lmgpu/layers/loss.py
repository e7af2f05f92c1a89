"""Softmax and cross-entropy in one layer, because together they are simpler and exact.

Losses are *summed* over examples, not averaged: sums of shards add up to the
sum of the batch whatever the shards' sizes, and `sgd` divides once, by the size
of the full batch.
"""

from ..arguments import check_array, check_cache
from ..devices import array_module, on_device
from .labels import check_labels


@on_device
def softmax_cross_entropy(logits, y):
    """``logits`` (N, K), labels ``y`` (N,) in 0..K-1 → the loss summed over examples (0-d), cache.

    loss = Σ_n  log Σ_k exp(logits[n, k]) - logits[n, y[n]].  Subtracting each
    row's own maximum first changes nothing and keeps exp from overflowing.

    Raises ValueError unless logits and labels are so, see `check_labels`.
    """
    check_array("softmax_cross_entropy: logits", logits, 2, "(N, K)")
    check_labels(y, *logits.shape)
    xp = array_module(logits)
    logits = logits - logits.max(axis=1, keepdims=True)
    exp = xp.exp(logits)
    total = exp.sum(axis=1, keepdims=True)
    rows = xp.arange(len(y))
    loss = (xp.log(total[:, 0]) - logits[rows, y]).sum()
    return loss, (exp / total, y)


@on_device
def softmax_cross_entropy_grad(cache):
    """→ dlogits (N, K): the probabilities, less 1 at the label. Raises ValueError for what is no cache."""
    check_cache("softmax_cross_entropy", cache, 2)
    probabilities, y = cache
    xp = array_module(probabilities)
    dlogits = probabilities.copy()
    dlogits[xp.arange(len(y)), y] -= 1
    return dlogits
