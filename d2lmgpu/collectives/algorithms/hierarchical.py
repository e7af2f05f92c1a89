"""An allreduce first within groups, then between groups, for several machines with several devices each.

    machine A: 0 1      step 1        0 ⇄ 1    2 ⇄ 3      within: chunk c is added up on the
    machine B: 2 3      step 2, 3     0 ⇄ 2    1 ⇄ 3              machine's c-th device
                        step 4        0 ⇄ 1    2 ⇄ 3      between: a ring of the c-th devices
                                                          within: finished chunks to all

Only sums over a whole machine travel over the slow wires between machines. Bytes: with m devices in each of g groups,
every device sends 2(m-1)/m·n within its machine and 2(g-1)/g·n/m to other machines; a ring over all k = g·m devices
would send 2(k-1)/k·n over each machine's slow wire.

Groups may have different sizes: there are as many chunks as the smallest group has devices.

Source: the hierarchical allreduce of Horovod (Sergeev and Del Balso 2018) and of
NCCL-based training at scale (Jia et al. 2018).
"""

import math

from ...base.arguments import plain_numbers
from ..actions import chunk_bounds, in_parallel, place, sent_back
from .ring import ring
from .sharded import gather_at_hubs


@plain_numbers
def hierarchical(k, n, groups=None):
    """The schedule for k devices and n elements.

    ``groups`` is a list of lists of device numbers, in which each device appears exactly once. By default each group
    has ⌈√k⌉ consecutive devices; the last one may have fewer.

    Raises ValueError if the groups do not hold each device exactly once.
    """
    if groups is None:
        size = math.isqrt(k - 1) + 1
        groups = [list(range(start, min(start + size, k))) for start in range(0, k, size)]
    if not all(groups) or sorted(device for group in groups for device in group) != list(range(k)):
        raise ValueError(f"hierarchical: groups {groups} should hold each device from 0 to {k - 1} once")
    chunks = min(len(group) for group in groups)
    bounds = chunk_bounds(n, chunks)
    hubs = [group[:chunks] for group in groups]
    within = in_parallel(*(gather_at_hubs(group, bounds, hub) for group, hub in zip(groups, hubs, strict=True)))
    between = in_parallel(
        *(
            place(ring(len(groups), stop - start), members=[hub[c] for hub in hubs], start=start)
            for c, (start, stop) in enumerate(bounds)
        )
    )
    return within + between + sent_back(within)
