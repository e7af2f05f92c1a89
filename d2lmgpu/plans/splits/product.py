"""Products: several copies of a pipeline or of a split by channels, each with its own part of the examples.

The devices form a grid. A row is a copy of the network; a column has the same part of each copy. For 2 copies of 2
stages:

    devices 0 1    micro-batches 0 to m-1     stages 0 1
    devices 2 3    micro-batches m to 2m-1    stages 0 1

Device c·k + s has stage s of copy c. The devices of a column (here 0 and 2, or 1 and 3) allreduce their gradients.
Bytes: each device sends as much as in its pipeline for its copy's examples; in the allreduce among c copies, it sends
2(c-1)/c times its stage's parameters. Memory: that of the pipeline. Channels work the same way: device c·k + i has part
i of each layer, for its copy's examples.

Source: Narayanan et al. 2021, "Efficient large-scale language model training on GPU clusters using Megatron-LM", which
calls such groups of devices the data, pipeline and tensor parallel groups.
"""

from collections.abc import Callable

from ...base.arguments import check_name, plain_numbers
from ...networks import LENET
from .channels import copies_of_channels
from .compose import compose
from .pipelines import ORDERS


@plain_numbers
def copies_of(name, copies, k, micro_batches=1, network=LENET, algorithm: str | Callable = "ring"):
    """The plan for ``copies`` times k devices; each copy is the plan ``name`` with ``micro_batches`` micro-batches.

    ``name``: a pipeline, or "channels". ``algorithm``: the allreduce that sums the gradients.

    Raises ValueError if there is no such plan, or if the network has too few layers for it.
    """
    check_name("the plan to copy", name, (*ORDERS, "channels"))
    if name == "channels":
        return copies_of_channels(copies, k, micro_batches, network, algorithm)
    order = [
        [(what, s, m + copy * micro_batches) for what, s, m in todo]
        for copy in range(copies)
        for todo in ORDERS[name](k, micro_batches)
    ]
    title = f"data={copies},{name}={k}"
    return compose(order, copies * micro_batches, network, name=title, algorithm=algorithm)
