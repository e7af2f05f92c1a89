"""The ring laid along a network: in which order of devices does it use the widest wires?

    0 ── 1        The numbers of devices say nothing of wires: here the ring 0 → 1 → 2 → 3 → 0 would send from 1 to 2
    │    │        over the wires of 0 and 3. In the order 0, 1, 3, 2 each message goes over a wire of its own.
    2 ── 3

Wanted is a circle through all devices (a Hamiltonian cycle) whose narrowest wire is as wide as can be. No fast way to
find one for certain is known, but this one nearly always does: a path grows at its end; where it cannot, a wire from
its end back into it turns the rest of it round, which gives another end.

Source: Pósa 1976, "Hamiltonian circuits in random graphs", for the turns.
"""

import functools
import random

import numpy as np

from ..language.actions import place
from .bidirectional_ring import bidirectional_ring
from .bounds import cuts_of
from .ring import ring

TRIES, TURNS = 10, 30
"""So many paths are begun, and each is turned so many times for each device."""


@functools.lru_cache(maxsize=64)
def order_along(network):
    """The devices of a `Network` in the order of a circle along its widest wires; in a list.

    Where no circle was found, they are in an order in which neighbours are mostly wired. Raises ValueError for what is
    no network.
    """
    cuts, rng = cuts_of(network), random.Random(0)
    narrowest = np.full((network.k, network.k), -np.inf)
    narrowest[cuts.sources, cuts.destinations] = cuts.slowest
    both = np.minimum(narrowest, narrowest.T)
    longest = []
    for least in sorted({*both[both > 0].tolist()}, reverse=True):
        wires = [{int(i): float(row[i]) for i in np.flatnonzero(row >= least)} for row in both]
        if network.k > 2 and min(map(len, wires)) < 2:
            continue
        for _ in range(TRIES):
            path, is_circle = _path(wires, rng)
            if is_circle:
                return path[path.index(0) :] + path[: path.index(0)]
            longest = max(longest, path, key=len)
    return longest + [i for i in range(network.k) if i not in longest]


def ring_along(network, both_ways=False):
    """The ring, or the ring in both directions, along a `Network`: a function of k and n, as `ring`.

    Raises ValueError for what is no network, and for another number of devices.
    """
    order = order_along(network)

    def along(k, n):
        if k != len(order):
            raise ValueError(f"the ring along {network.name} is for {len(order)} devices, not {k}")
        return place((bidirectional_ring if both_ways else ring)(k, n), order)

    return along


def _path(wires, rng):
    """A path of distinct devices, as long as was found, and whether it is a circle of all.

    ``wires``: for each device the bandwidths to others, a dict.
    """
    path, best = [rng.randrange(len(wires))], []
    for _ in range(TURNS * len(wires)):
        end, on = path[-1], {*path}
        if len(path) == len(wires) and (path[0] in wires[end] or len(path) == 1):
            return path, True
        new = [i for i in wires[end] if i not in on]
        if new:  # over the widest wire; of several to where fewest ways lead on, or it might be left behind
            lead_on = {i: sum(j not in on for j in wires[i]) for i in new}
            path.append(min(new, key=lambda i: (-wires[end][i], lead_on[i], abs(i - end))))
        elif len(path) > 2 and wires[end]:
            turn = path.index(rng.choice([*wires[end]])) + 1
            path[turn:] = path[turn:][::-1]
        best = max(best, path, key=len).copy()
    return best, False
