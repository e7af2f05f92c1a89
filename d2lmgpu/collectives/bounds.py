"""Lower bounds that no schedule can beat on a network: the time that its latency and its wires require.

    latency      every device's data must reach every other device, so the time is at least the latency of the fastest
                 route between the two devices that are farthest apart
    bandwidth    cut the network into m groups of devices. Each element of an allreduce crosses between groups at least
                 2(m-1) times: m-1 times until the first group has the sum, and once more into each of the other groups.
                 So the allreduce takes at least 2(m-1)·bytes / (bytes per second of all links between groups), however
                 the groups are chosen

If each group is a single device on a switch, this is the well-known 2(k-1)/k·bytes/bandwidth. Where wires have the same
bandwidth in both directions, some schedule for long arrays reaches the largest bound of all cuts (packings of trees:
Tutte 1961, Nash-Williams 1961; Frank 1978 for the directed case). This module does not try all cuts, only those along a
tree of groups, in which the groups with the widest wires between them, on average, are joined first. The bound holds
for any schedule, but on an irregular network another cut might give a higher one.

Sources: Patarasuk and Yuan 2009 for the switch; Zhao et al. 2024, "ForestColl", for the cuts of an allreduce.
"""

import dataclasses
import functools

import numpy as np

from ..base.arguments import plain_numbers
from .topology import NO_LINK, check_topology


class Cuts:
    """Which pairs of devices a ``network`` joins without a device in between, and how to cut it into groups of devices.

    ``sources``, ``destinations``: the devices of each pair. ``ways``: the links between them, an array (pairs, hops).
    ``tree``: groups of devices, from single devices up to the group of all devices; each is a mask (k,). ``joins``: for
    each group from number k on, the numbers of the two groups that were joined to form it.
    """

    def __init__(self, network):
        self.network, self.k = network, network.k
        self.sources, self.destinations = np.nonzero(network.direct)
        self.ways = network.route(self.sources, self.destinations)
        self.is_there = self.ways != NO_LINK
        self.slowest = np.where(self.is_there, network.bandwidth[self.ways], np.inf).min(axis=1)
        # so the last links of all routes stand in one column
        back = np.argsort(~self.is_there[:, ::-1], axis=1, kind="stable")
        self._from_end = np.take_along_axis(self.ways[:, ::-1], back, axis=1)
        self._join()

    def _join(self):
        k = self.k
        wide = np.zeros((k, k))
        wide[self.sources, self.destinations] = self.slowest
        wide, sizes = wide + wide.T, np.ones(k)
        self.tree, self.joins = [np.arange(k) == i for i in range(k)], []
        node = list(range(k))  # for each row of ``wide``, the number of its group in the tree
        np.fill_diagonal(wide, -1)
        for _ in range(k - 1):
            average = np.where(wide < 0, -1, wide / (sizes[:, None] * sizes))
            a, b = np.unravel_index(np.argmax(average + 1e-9 * wide), wide.shape)
            wide[a] += wide[b]
            wide[:, a] += wide[:, b]
            wide[a, a] = -1
            wide[b], wide[:, b] = -1, -1
            sizes[a] += sizes[b]
            self.joins.append((node[a], node[b]))
            self.tree.append(self.tree[node[a]] | self.tree[node[b]])
            node[a] = len(self.tree) - 1

    @functools.cached_property
    def mirror(self):
        """The cuts of the network with all wires reversed, or this same object if reversing changes nothing.

        A schedule that spreads data on the reversed network becomes a reduction on this network if it is run backwards.
        """
        network, pairs = self.network, (self.sources, self.destinations)
        tables = np.zeros((2, self.k, self.k))
        tables[0][pairs], tables[1][pairs] = 1 / self.slowest, 1 + network.latency(*pairs)
        if np.array_equal(tables, tables.swapaxes(1, 2)):
            return self
        turned = {name: _turned(getattr(network, name)) for name in ("route", "latency")}
        return Cuts(dataclasses.replace(network, direct=network.direct.T, **turned))

    def capacity(self, crossing):
        """The most bytes/s that the links between some pairs of devices carry; ``crossing`` is a mask of the pairs."""
        best = np.inf
        for ways in (self.ways[crossing], self._from_end[crossing]):
            for links in ways.T:  # if every pair uses one of these links, their bandwidths limit the total
                if (links != NO_LINK).all():
                    passed = np.bincount(links, minlength=len(self.network.bandwidth)) > 0
                    best = min(best, self.network.bandwidth[passed].sum())
        return best

    def between(self, labels):
        """The most bytes/s between groups of devices; ``labels``: the label of each device's group."""
        return self.capacity(labels[self.sources] != labels[self.destinations])

    def into(self, group):
        """The most bytes/s into a ``group``, which is a mask of the devices."""
        return self.capacity(~group[self.sources] & group[self.destinations])

    def far(self, seconds):
        """The least seconds from each device to each, over any pairs: (k, k). ``seconds``: those of each pair."""
        far = np.full((self.k, self.k), np.inf)
        far[self.sources, self.destinations] = seconds
        np.fill_diagonal(far, 0)
        for between in range(self.k):
            np.minimum(far, far[:, between, None] + far[between], out=far)
        return far

    def owned(self):
        """The fraction of a long array that each device should own halfway through an allreduce, an array (k,).

        A device or group with narrow wires should own a large part, since what it owns need not be sent to it. In time
        T, a group can receive T·capacity, and must own the rest. We look for the least T for which these parts fit into
        one array.
        """
        capacities = [min(self.into(group), self.into(~group)) for group in self.tree[:-1]] + [np.inf]

        def needs(seconds):
            need = [max(0.0, 1 - seconds * capacity) for capacity in capacities]
            for number, (a, b) in enumerate(self.joins, self.k):
                need[number] = max(need[number], need[a] + need[b])
            return need

        low, high = 0.0, 1 / min(capacities)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if needs(middle)[-1] <= 1 else (middle, high)
        need, sizes, shares = needs(high), [group.sum() for group in self.tree], {len(self.tree) - 1: 1.0}
        for number, (a, b) in reversed([*enumerate(self.joins, self.k)]):
            rest = shares[number] - need[a] - need[b]
            shares |= {child: need[child] + rest * sizes[child] / (sizes[a] + sizes[b]) for child in (a, b)}
        return np.array([shares[i] for i in range(self.k)])


def _turned(function):
    return lambda sources, destinations: function(destinations, sources)


@functools.lru_cache(maxsize=64)
def cuts_of(network):
    """The `Cuts` of a network, cached. Raises ValueError for anything but a network."""
    return Cuts(check_topology(network))


@plain_numbers
def bound(network, n, itemsize=4):
    """A lower bound, in seconds, on the time of any allreduce of n elements of ``itemsize`` bytes on a `Topology`.

    Raises ValueError for anything but a network.
    """
    cuts = cuts_of(network)
    if cuts.k == 1 or not n:
        return network.startup
    nbytes, seconds = n * itemsize, []
    labels = np.arange(cuts.k)  # of each device's group, as groups are joined
    for number, group in enumerate(cuts.tree[cuts.k :], cuts.k):
        seconds.append(2 * (len(np.unique(labels)) - 1) * nbytes / cuts.between(labels))
        labels[group] = number
    for group in cuts.tree[:-1]:
        seconds += [nbytes / cuts.into(group), nbytes / cuts.into(~group)]
    latency = network.latency(cuts.sources, cuts.destinations)
    return network.startup + float(max(max(seconds) + latency.min(), cuts.far(latency).max()))
