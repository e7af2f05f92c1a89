"""A ring that follows a network's wires: which order of the devices uses the widest ones?

    0 ── 1        Device numbers say nothing about wires: here the ring 0 → 1 → 2 → 3 → 0 would send from 1 to 2
    │    │        through 0 or 3. In the order 0, 1, 3, 2 each message has a wire to itself.
    2 ── 3

We look for a circle through all devices (a Hamiltonian cycle) whose narrowest wire is as wide as possible. No fast
method is known that always finds one, but this one almost always does. A path grows at its end. Where it cannot grow,
we take a wire from its end back to a device on the path and reverse everything after that device, which gives the path
a new end.

Source: Pósa 1976, "Hamiltonian circuits in random graphs", for these reversals, which are called turns below.
"""

import functools
import random

import numpy as np

from ..actions import place
from ..algorithms.ring import bidirectional_ring, ring
from ..bounds import cuts_of

_TRIES, TURNS = 10, 30
"""How many paths are tried, and how many turns each path may make per device."""


@functools.lru_cache(maxsize=64)
def order_along(network):
    """List the devices of a `Topology` in the order of a circle along its widest wires.

    If no circle is found, wires still join most neighbours in the list. Raises ValueError for anything but a network.
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
        for _ in range(_TRIES):
            path, is_circle = _path(wires, rng)
            if is_circle:
                return path[path.index(0) :] + path[: path.index(0)]
            longest = max(longest, path, key=len)
    return longest + [i for i in range(network.k) if i not in longest]


def ring_along(network, both_ways=False):
    """The ring along a `Topology`, or with ``both_ways`` the bidirectional ring: a function of k and n, like `ring`.

    Raises ValueError for anything but a network; the returned function raises it for a number of devices other than the
    network's.
    """
    order = order_along(network)

    def along(k, n):
        if k != len(order):
            raise ValueError(f"the ring along {network.name} is for {len(order)} devices, not {k}")
        return place((bidirectional_ring if both_ways else ring)(k, n), order)

    return along


def _path(wires, rng):
    """The longest path of distinct devices that was found, and whether it is a circle through all devices.

    ``wires``: for each device, a dict of the bandwidths to other devices.
    """
    path, best = [rng.randrange(len(wires))], []
    for _ in range(TURNS * len(wires)):
        end, on = path[-1], {*path}
        if len(path) == len(wires) and (path[0] in wires[end] or len(path) == 1):
            return path, True
        new = [i for i in wires[end] if i not in on]
        if new:  # the widest wire; of equal ones, that to the device with the fewest ways on (else it is left out)
            lead_on = {i: sum(j not in on for j in wires[i]) for i in new}
            path.append(min(new, key=lambda i: (-wires[end][i], lead_on[i], abs(i - end))))
        elif len(path) > 2 and wires[end]:
            turn = path.index(rng.choice([*wires[end]])) + 1
            path[turn:] = path[turn:][::-1]
        best = max(best, path, key=len).copy()
    return best, False
