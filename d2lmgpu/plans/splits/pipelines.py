"""Pipelines: device s has some of the layers, stage s, and micro-batches go from stage to stage and back.

The pipelines differ only in the order in which a device does its computations. Bytes: in each of them, device s sends y
to the next device and dy to the previous one, once for each example. Each of the pictures is for four devices.
"""

from ...base.arguments import plain_numbers
from ...networks import LENET
from .compose import compose


def layers(k, micro_batches=1, network=LENET):
    """The textbook's network partitioning: the devices, which have some of the layers each, work one after the other.

        device 0    F0 .  .  .  .  .  .  B0 F1 .  .  .  .  .  .  B1
        device 1    .  F0 .  .  .  .  B0 .  .  F1 .  .  .  .  B1 .
        device 2    .  .  F0 .  .  B0 .  .  .  .  F1 .  .  B1 .  .
        device 3    .  .  .  F0 B0 .  .  .  .  .  .  F1 B1 .  .  .

    Only one of k devices works at a time; the other pipelines improve on this. But the memory for parameters,
    gradients, optimiser state and caches is spread over the devices, so a network may be k times as large. The caches
    of only one micro-batch are held at a time. Raises ValueError for too few layers.

    Source: Zhang et al., Dive into Deep Learning, "Training on Multiple GPUs", "Splitting the Problem"; on where to
    cut, Mirhoseini et al. 2017, "Device Placement Optimization with Reinforcement Learning".
    """
    order = [[(what, s, m) for m in range(micro_batches) for what in "FB"] for s in range(k)]
    return compose(order, micro_batches, network, name="layers")


def gpipe(k, micro_batches=4, network=LENET):
    """GPipe: all micro-batches go forward, then all of them go back. Raises ValueError for too few layers.

    While device 1 computes micro-batch 0, device 0 already computes micro-batch 1. For four micro-batches, and a
    backward that takes as long as a forward:

        device 0    F0 F1 F2 F3 .  .  .  .  .  .  B0 B1 B2 B3
        device 1    .  F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3
        device 2    .  .  F0 F1 F2 F3 .  .  B0 B1 B2 B3
        device 3    .  .  .  F0 F1 F2 F3 B0 B1 B2 B3

    Each device waits in k-1 of m+k-1 forward slots, and in as many backward slots. So the *bubble* is (k-1)/(m+k-1) of
    the time if all stages cost the same. Memory: every device holds the caches of all m micro-batches.

    Source: Huang et al. 2019, "GPipe: efficient training of giant neural networks using pipeline parallelism".
    """
    order = [[(what, s, m) for what in "FB" for m in range(micro_batches)] for s in range(k)]
    return compose(order, micro_batches, network, name="gpipe")


def one_f_one_b(k, micro_batches=4, network=LENET):
    """1F1B: one forward, one backward. When a micro-batch has gone back, the next one uses its memory.

    Device s begins with k-s forwards. Then it alternates between one backward and one forward, as long as forwards are
    left. For four micro-batches:

        device 0    F0 F1 F2 F3 .  .  .  B0 .  B1 .  B2 .  B3
        device 1    .  F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
        device 2    .  .  F0 F1 .  B0 F2 B1 F3 B2 .  B3
        device 3    .  .  .  F0 B0 F1 B1 F2 B2 F3 B3

    The bubble is the same as GPipe's. Memory: device s holds the caches of at most k-s micro-batches, however many
    micro-batches there are. Raises ValueError for too few layers.

    Source: Narayanan et al. 2019, "PipeDream: generalized pipeline parallelism for DNN training", here with all updates
    at the end, as in Narayanan et al. 2021 ("PipeDream-Flush").
    """
    return compose(one_f_one_b_order(k, micro_batches), micro_batches, network, name="1f1b")


@plain_numbers
def one_f_one_b_order(k, micro_batches):
    """The computations of `one_f_one_b`: for each device a list of (what, stage, micro-batch), in order."""
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


def zero_bubble(k, micro_batches=4, network=LENET):
    """Zero bubble: the weights' gradients, which no other device needs, are computed instead of waiting.

    B is divided into two: I, the input's gradient, for which the previous device waits, and W, the weights' gradients.
    For four micro-batches:

        device 0    F0 F1 F2 F3 .  .  I0 W0 I1 W1 I2 W2 I3 W3
        device 1    .  F0 F1 F2 .  I0 F3 I1 W0 I2 W1 I3 W2 W3
        device 2    .  .  F0 F1 I0 F2 I1 F3 I2 W0 I3 W1 W2 W3
        device 3    .  .  .  F0 I0 F1 I1 F2 I2 F3 W0 I3 W1 W2 W3

    The order is that of 1F1B, with I instead of B, and with W as late as memory allows: device s does a W when more
    than s of them are pending. Memory: as in 1F1B, and in addition, for up to s+1 micro-batches, their caches and the
    delta that I keeps for W. Raises ValueError for too few layers.

    Source: ZB-H1 in Qi et al. 2023, "Zero bubble pipeline parallelism".
    """
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
    return compose(orders, micro_batches, network, name="zero-bubble")
