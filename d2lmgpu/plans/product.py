"""Products: several copies of a pipeline, or of channels, each with its part of the examples.

A grid of devices: a row is a copy of the network, a column has the same part of each. For 2 copies of 2 stages:

    devices 0 1    micro-batches 0 to m-1     stages 0 1
    devices 2 3    micro-batches m to 2m-1    stages 0 1

Device c·k + s has stage s of copy c. The devices of a column, here 0 and 2, and 1 and 3, allreduce their gradients.
Bytes: each device sends what it does in its pipeline, for its copy's examples, and 2(c-1)/c of its stage's parameters
in the allreduce among c copies. Memory: that of the pipeline. With channels it is the same: device c·k + i has part i
of each layer, for its copy's examples.

Source: Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters using Megatron-LM", where
these are the data, the pipeline and the tensor parallel groups.
"""

from collections.abc import Callable

from ..arguments import check_name
from ..networks import LENET
from .channels import STAGES, by_channels
from .compose import compose
from .cut import cut
from .gpipe import gpipe_order
from .layers import layers_order
from .one_f_one_b import one_f_one_b_order
from .zero_bubble import zero_bubble_order

ORDERS = {
    "layers": layers_order,
    "gpipe": gpipe_order,
    "1f1b": one_f_one_b_order,
    "zero-bubble": zero_bubble_order,
}
"""Pipelines that may be copied: for each name what devices compute, in order."""


def copies_of(name, copies, k, micro_batches=1, network=LENET, algorithm: str | Callable = "ring"):
    """The plan of ``copies`` times k devices, each copy the plan ``name`` with so many micro-batches.

    ``name``: of `ORDERS`, "channels" or "channel-pairs". ``algorithm``: the allreduce of gradients.

    Raises ValueError if there is no such plan, or the network has too few layers for it.
    """
    check_name("the plan to copy", name, (*ORDERS, *STAGES))
    if name in STAGES:
        return by_channels(name, copies, k, micro_batches, network, algorithm)
    order = [
        [(what, s, m + copy * micro_batches) for what, s, m in todo]
        for copy in range(copies)
        for todo in ORDERS[name](k, micro_batches)
    ]
    title = f"data={copies},{name}={k}"
    return compose(order, copies * micro_batches, network, cut(network, k), title, algorithm)
