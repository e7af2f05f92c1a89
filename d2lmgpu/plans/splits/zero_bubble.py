"""Zero bubble: devices compute the weights' gradients, which no other device needs, while they would otherwise wait.

B is divided into two: I, the input's gradient, for which the previous device waits, and W, the weights' gradients. For
four stages and four micro-batches:

    device 0    F0 F1 F2 F3 .  .  I0 W0 I1 W1 I2 W2 I3 W3
    device 1    .  F0 F1 F2 .  I0 F3 I1 W0 I2 W1 I3 W2 W3
    device 2    .  .  F0 F1 I0 F2 I1 F3 I2 W0 I3 W1 W2 W3
    device 3    .  .  .  F0 I0 F1 I1 F2 I2 F3 W0 I3 W1 W2 W3

The order is that of 1F1B, with I instead of B, and with W as late as memory allows: device s does a W when more than s
of them are pending. Memory: as in 1F1B, and in addition, for up to s+1 micro-batches, their caches and the delta that I
keeps for W.

Source: ZB-H1 in Qi et al. 2023, "Zero bubble pipeline parallelism".
"""

from ...networks import LENET
from .compose import compose
from .cut import cut
from .one_f_one_b import one_f_one_b_order


def zero_bubble(k, micro_batches=4, network=LENET, costs=None):
    """The plan for k devices. ``costs``: those of the layers (see `cut`). Raises ValueError for too few layers."""
    return compose(zero_bubble_order(k, micro_batches), micro_batches, network, cut(network, k, costs), "zero-bubble")


def zero_bubble_order(k, micro_batches):
    """For each device, its computations in order."""
    orders = []
    for s, pairs in enumerate(one_f_one_b_order(k, micro_batches)):
        order, late = [], []
        for what, _, m in pairs:
            order.append(("I" if what == "B" else "F", s, m))
            if what == "B":
                late.append(("W", s, m))
            if len(late) > s:
                order.append(late.pop(0))
        orders.append(order + late)
    return orders
