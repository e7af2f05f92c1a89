"""The tree allreduce: a binomial reduction to device 0, then a binomial broadcast.

    k = 8     step 1      1→0   3→2   5→4   7→6     add
              step 2      2→0         6→4           add
              step 3      4→0                       add
              step 4 … 6  the same backwards        copy

Each step of the reduction halves the number of devices that hold sums still to be passed on.

Steps: 2⌈log₂ k⌉, which are few even for many devices, but each transfer has all n elements. Bytes: device 0 receives
and sends ⌈log₂ k⌉·n. The tree is good for short messages, whose time is mostly latency; for long ones, the ring sends
less.

Source: Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective
Communication Operations in MPICH" (binomial tree).
"""

from ...base.arguments import plain_numbers
from ..actions import Transfer, sent_back
from .recursive_doubling import powers_of_two


@plain_numbers
def tree(k, n):
    """The schedule for k devices and n elements."""
    reduction = [[Transfer(i, i - d, 0, n, "add") for i in range(d, k, 2 * d)] for d in powers_of_two(k)]
    return reduction + sent_back(reduction[::-1])
