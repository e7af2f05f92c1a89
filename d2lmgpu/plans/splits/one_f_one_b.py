"""1F1B: one forward, one backward. When a micro-batch has gone back, the next one uses its memory.

As in GPipe, device s has stage s. It begins with k-s forwards. Then it alternates between one backward and one forward,
as long as forwards are left. For four stages and four micro-batches:

    device 0    F0 F1 F2 F3 .  .  .  B0 .  B1 .  B2 .  B3
    device 1    .  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
    device 2    .  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3
    device 3    .  .  .  F0 B0 F1 B1 F2 B2 F3 B3

The bubble is the same as GPipe's. Memory: device s holds the caches of at most k-s micro-batches, however many
micro-batches there are.

Source: Narayanan et al. 2019, "PipeDream: generalized pipeline parallelism for DNN training", here with all updates
at the end, as in Narayanan et al. 2021 ("PipeDream-Flush").
"""

from ...base.arguments import plain_numbers
from ...networks import LENET
from .compose import compose
from .cut import cut


def one_f_one_b(k, micro_batches=4, network=LENET, costs=None):
    """The plan for k devices. ``costs``: those of the layers (see `cut`). Raises ValueError for too few layers."""
    return compose(one_f_one_b_order(k, micro_batches), micro_batches, network, cut(network, k, costs), "1f1b")


@plain_numbers
def one_f_one_b_order(k, micro_batches):
    """For each device, its computations in order."""
    orders = []
    for s in range(k):
        ahead = min(k - s, micro_batches)
        order = [("F", s, m) for m in range(ahead)]
        for m in range(micro_batches):
            order.append(("B", s, m))
            if m + ahead < micro_batches:
                order.append(("F", s, m + ahead))
        orders.append(order)
    return orders
