"""Search for a schedule that spreads chunks over a network: links carry rare chunks to devices that lack them.

A step lasts for a *window*, some seconds in which a link can carry some chunks. Devices take turns, those that lack the
most chunks first, until no link has time for another chunk. When its turn comes, a device looks at the devices with
wires to it, and takes from the one with the least to offer the chunk that the fewest devices have. Ties are broken at
random, so several searches find different schedules, and the best one is used. A schedule that spreads chunks becomes
one that reduces them when it is run backwards with additions.

Sources: Won et al. 2024, "TACOS: topology-aware collective algorithm synthesizer", for matching links with chunks; Cai
et al. 2021, "Synthesizing optimal collective algorithms" (SCCL), for the idea of steps and of what fits into one.
"""

import random

import numpy as np

from ..actions import Transfer

MAX_ASKED = 24
"""A device first asks this many others, chosen at random; if they have nothing for it, it asks all of them."""


class Search:
    """Searches for ways to bring every chunk from its owner to all devices.

    ``cuts``: the network's `Cuts`. ``owners``: the device that owns each chunk. ``nbytes``: the bytes of a chunk.
    ``windows``: the windows that are worth trying, in seconds. ``messages``: how many times chunks are sent in all.
    """

    def __init__(self, cuts, owners, nbytes):
        network, self.cuts, self.owners = cuts.network, cuts, owners
        self.busy = np.append(nbytes / network.bandwidth + network.occupancy, 0)  # seconds, of each link and of NO_LINK
        latency = network.latency(cuts.sources, cuts.destinations)
        self.alpha = float(latency.max())
        slowest = nbytes / cuts.slowest
        windows = {*np.quantile(slowest, (0, 0.5, 1)).tolist(), 2 * float(slowest.max()), self.alpha}
        self.windows = sorted(windows, reverse=self.alpha > float(slowest.max()))
        widest = np.argsort(-cuts.slowest, kind="stable")
        numbers = [widest[cuts.destinations[widest] == i] for i in range(cuts.k)]  # of the pairs into each device
        self.sources, self.links = [cuts.sources[each] for each in numbers], [cuts.ways[each] for each in numbers]
        self.wide = [cuts.slowest[each] for each in numbers]
        self.has_choice = any(np.ptp(each) > 0 for each in self.wide)  # patience matters only then
        self.messages = len(owners) * (cuts.k - 1)

    def run(self, window, seed=0, patient=False):
        """Search once: the (chunk, source, destination) of each message of each step, and roughly the steps' seconds.

        If the search fails, the seconds are infinite. ``patient``: no device takes a chunk over a wire if a device with
        a wider wire to it has this chunk, or gets it in this step.
        """
        k, chunks = self.cuts.k, len(self.owners)
        self.random, self.noise, self.patient = random.Random(seed), np.random.default_rng(seed), patient
        self.has = np.zeros((k, chunks), bool)
        self.has[self.owners, np.arange(chunks)] = True
        steps, seconds = [], 0.0
        while not self.has.all():
            self.left, self.promised, sent = np.full(len(self.busy), window * (1 + 1e-9)), self.has.copy(), []
            asking = sorted(range(k), key=lambda b: (self.promised[b].sum(), self.random.random()))
            while asking:
                asking = [b for b in asking if self._take(b, sent)]
            if not sent:
                return steps, np.inf
            self.has = self.promised
            steps.append(sent)
            seconds += self.alpha + window - float(self.left.min())
        return steps, seconds

    def _take(self, b, sent):
        """Let device b take one more chunk in this step, if it can; return whether it could."""
        links = self.links[b]
        idle = np.flatnonzero((self.left[links] >= self.busy[links]).all(axis=1))
        some = self.random.sample(idle.tolist(), MAX_ASKED) if len(idle) > MAX_ASKED else []
        return any(len(ways) and self._take_from(b, ways, sent) for ways in (np.array(some, int), idle))

    def _take_from(self, b, ways, sent):
        sources = self.sources[b][ways]
        useful = self.has[sources] & ~self.promised[b]
        if self.patient:
            owned = self.promised[self.sources[b]]
            widest = np.where(owned.any(axis=0), self.wide[b][owned.argmax(axis=0)], 0)  # over which it could come
            useful &= self.wide[b][ways][:, None] >= widest
        offers = np.count_nonzero(useful, axis=1)
        if not offers.any():
            return False
        i = np.argmin(np.where(offers > 0, offers, np.inf) + self.noise.random(len(ways)))
        chunks = np.flatnonzero(useful[i])
        rarity = np.count_nonzero(self.promised[:, chunks], axis=0)
        chunk, a, links = int(chunks[np.argmin(rarity + self.noise.random(len(chunks)))]), int(sources[i]), ways[i]
        used = self.links[b][links]
        self.left[used] -= self.busy[used]
        self.promised[b, chunk] = True
        sent.append((chunk, a, b))
        return True


def forwards(steps, bounds):
    """The schedule that copies the chunks as the steps say; ``bounds``: the (start, stop) of each chunk."""
    return [_joined([Transfer(a, b, *bounds[chunk], "copy") for chunk, a, b in step]) for step in steps]


def backwards(steps, bounds):
    """The schedule that sends the chunks the other way and adds them, from the last step to the first."""
    return [_joined([Transfer(b, a, *bounds[chunk], "add") for chunk, a, b in step]) for step in reversed(steps)]


def _joined(transfers):
    """Merge adjacent chunks that go the same way into one message."""
    joined = []
    for t in sorted(transfers):
        last = joined[-1] if joined else None
        if last and (last.source, last.destination, last.stop) == (t.source, t.destination, t.start):
            joined[-1] = last._replace(stop=t.stop)
        else:
            joined.append(t)
    return joined
