"""Zero bubble: the weights' gradients, for which no device waits, fill the time in which a device would wait.

B is cut in two: I, the input's gradient, which the device before waits for, and W, the weights' gradients.
Four stages, four micro-batches:

    device 0    F0 F1 F2 F3 .  .  I0 W0 I1 W1 I2 W2 I3 W3
    device 1    .  F0 F1 F2 .  I0 F3 I1 W0 I2 W1 I3 W2 W3
    device 2    .  .  F0 F1 I0 F2 I1 F3 I2 W0 I3 W1 W2 W3
    device 3    .  .  .  F0 I0 F1 I1 F2 I2 F3 W0 I3 W1 W2 W3

Here the order is 1F1B's with I for B, and W as late as memory allows: device s does its W when more than s of them
wait. Memory: as 1F1B, and delta, what I keeps for W, of up to s+1 micro-batches, with their caches.

Source: Qi et al. 2023, "Zero bubble pipeline parallelism", of which this is ZB-H1.
"""

from ..networks import LENET
from .compose import compose
from .cut import cut
from .one_f_one_b import one_f_one_b_order


def zero_bubble(k, micro_batches=4, network=LENET, costs=None):
    """The plan for k devices; ``costs`` of layers as `cut` takes them. ValueError if the network has too few layers."""
    return compose(zero_bubble_order(k, micro_batches), micro_batches, network, cut(network, k, costs), "zero-bubble")


def zero_bubble_order(k, micro_batches):
    """For each device what it computes, in order."""
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
