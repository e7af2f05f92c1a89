"""The textbook's step (data.py), and what may be composed around it: other ways to compute and to exchange gradients.

batch_statistics   synchronised: compute, with sums over all devices between the layers (sync_batch_norm.py)
draws              compute, with random numbers for dropout (dropout.py)
flat               exchange: all gradients as one message
overlap            both: gradients travel as soon as they are computed (overlap.py)
batch_statistics   aggregated: exchange, of batch norm's statistics too (batch_statistics.py)
around             both, by whoever asks for it: see across.py
"""

import functools

from .batch_statistics import with_statistics
from .data import allreduce_each, allreduce_flat, loss_and_grads_on_each, train_shards
from .dropout import with_draws
from .overlap import Overlap
from .sync_batch_norm import loss_and_grads_synchronised


def submit_step(
    X_shards,
    y_shards,
    replicas,
    lr,
    algorithm="naive",
    flat=False,
    overlap=False,
    batch_statistics="local",
    draws=None,
    batch_size=None,
    around=None,
):
    """Submit a step, as `train_shards`, which says more of it; returns a `Step` at once.

    ``flat``: exchange all gradients as one message. ``overlap``: exchange them in buckets, each as soon as all
    devices have it, while they go on computing the others. ``batch_statistics``: see `BATCH_STATISTICS`.
    ``draws``: the minibatch's `Draws`, which a network with dropout needs. ``batch_size``: as in `train_shards`.
    ``around``: a function from a way to compute and one to exchange to such a pair.
    """
    compute, exchange = loss_and_grads_on_each, allreduce_flat if flat else allreduce_each
    if batch_statistics == "synchronised":
        compute = functools.partial(loss_and_grads_synchronised, algorithm=algorithm)
    if draws is not None:
        compute = with_draws(compute, draws)
    if overlap:
        overlapped = Overlap(replicas, compute, flat)
        compute, exchange = overlapped.compute, overlapped.exchange
    if batch_statistics == "aggregated":
        exchange = with_statistics(exchange)
    if around is not None:
        compute, exchange = around(compute, exchange)
    return train_shards(X_shards, y_shards, replicas, lr, algorithm, compute, exchange, batch_size)
