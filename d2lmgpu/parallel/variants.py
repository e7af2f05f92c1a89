"""The textbook's step (data.py), and what may be composed around it: other ways to compute and to exchange gradients.

batch_statistics   synchronised: compute, with sums over all devices between the layers (batch_statistics.py)
draws              compute, with random numbers for dropout, see `with_draws`
flat               exchange: all gradients as one message
batch_statistics   aggregated: exchange, of batch norm's statistics too (batch_statistics.py)
"""

import functools
import itertools

from .batch_statistics import loss_and_grads_synchronised, with_statistics
from .data import allreduce_each, allreduce_flat, loss_and_grads_on_each, train_shards


def submit_step(
    X_shards,
    y_shards,
    replicas,
    lr,
    algorithm="naive",
    flat=False,
    batch_statistics="local",
    draws=None,
    batch_size=None,
):
    """Submit a step, as `train_shards`, which says more of it; returns a `Step` at once.

    ``flat``: exchange all gradients as one message. ``batch_statistics``: see `BATCH_STATISTICS`. ``draws``: the
    minibatch's `Draws`, which a network with dropout needs. ``batch_size``: as in `train_shards`.
    """
    compute, exchange = loss_and_grads_on_each, allreduce_flat if flat else allreduce_each
    if batch_statistics == "synchronised":
        compute = functools.partial(loss_and_grads_synchronised, algorithm=algorithm)
    if draws is not None:
        compute = with_draws(compute, draws)
    if batch_statistics == "aggregated":
        exchange = with_statistics(exchange)
    return train_shards(X_shards, y_shards, replicas, lr, algorithm, compute, exchange, batch_size)


def with_draws(compute, draws):
    """A way to compute gradients like ``compute``, as in data.py, with the `Draws` of a minibatch for each shard.

    k devices leave out what one leaves out: what is drawn for an example follows from its position in the whole
    minibatch (layers/draws.py). A device sees its shard only, so it must be told where that begins:

        minibatch    0 1 2 3 4 5 6
        device 0     0 1 2          draws.after(0)
        device 1           3 4 5 6  draws.after(3)
    """

    def compute_drawing(batch, X_shards, y_shards, replicas):
        firsts = itertools.accumulate(map(len, y_shards), initial=0)
        drawing = [replica.with_draws(draws.after(first)) for replica, first in zip(replicas, firsts, strict=False)]
        return compute(batch, X_shards, y_shards, drawing)

    return compute_drawing
