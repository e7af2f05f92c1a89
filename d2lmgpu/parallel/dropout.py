"""Dropout on several devices: k devices leave out what one leaves out.

What is drawn for an example follows from its position in the whole minibatch (layers/draws.py). A device sees its
shard only, so it must be told where that begins:

    minibatch    0 1 2 3 4 5 6
    device 0     0 1 2          draws.after(0)
    device 1           3 4 5 6  draws.after(3)
"""

import itertools


def with_draws(compute, draws):
    """A way to compute gradients like ``compute``, as in data.py, with the `Draws` of a minibatch for each shard."""

    def compute_drawing(batch, X_shards, y_shards, replicas):
        firsts = itertools.accumulate(map(len, y_shards), initial=0)
        drawing = [replica.with_draws(draws.after(first)) for replica, first in zip(replicas, firsts, strict=False)]
        return compute(batch, X_shards, y_shards, drawing)

    return compute_drawing
