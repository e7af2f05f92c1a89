"""Two rings at the same time, one in each direction; each sums half of the elements.

         0 ⇄ 1 ⇄ 2        first half of the elements:  0 → 1 → 2 → 0
         ⇅_______⇅        second half:                 0 → 2 → 1 → 0

Wires carry data in both directions at once. One ring uses only one direction; two rings use both. Steps: 2(k-1), as in
one ring. Bytes: each device sends 2(k-1)/k·n, as in one ring, but half of it in each direction, so where both
directions are free, the sum takes half the time.

Source: the two-ring decomposition of NVLink servers in Dive into Deep Learning,
"Parameter Servers" (Wang et al. 2018, "Blink").
"""

from ..actions import chunk_bounds, in_parallel, place
from .ring import ring


def bidirectional_ring(k, n):
    """The schedule for k devices and n elements."""
    (start, middle), (_, stop) = chunk_bounds(n, 2)
    right = ring(k, middle - start)
    left = place(ring(k, stop - middle), members=range(k - 1, -1, -1), start=middle)
    return in_parallel(right, left)
