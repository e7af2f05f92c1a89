"""Exercises for notebook 6b, invented allreduces: one beats the ring on a torus, one is for a ring with a broken wire.

For a right answer, the check prints its simulated time beside those of other allreduces, so that students can improve
it.
"""

from ..collectives import bound, ring_along, simulate
from ..collectives.wires import nvlink_ring, rewired, torus
from .collectives import proved
from .exercise import Exercise
from .results import expect

LONG = 20_000_000
"""An answer is timed if the array has at least this many elements."""

NEIGHBOURS = "send only where network.direct[source, destination] is true; other messages take detours, which is slower"


class torus_allreduce(Exercise):
    """Write torus_allreduce(k, n), an allreduce as a schedule for torus(4, 4): k is 16, and device 4 * row + column is
    wired to its two neighbours in its row and to its two neighbours in its column. Send only between neighbours. For
    160 MB it must take less simulated time than ring_along(torus(4, 4), both_ways=True). n can be any number.

    it is proved, uses only existing wires, and is faster than the ring in both directions.
    """

    optional = True
    cases = ((16, 16), (16, 1000), (16, 5), (16, 40_000_000))
    network = torus(4, 4)
    without = "invent", "invented", "search.run"
    invented = 1.56e-3
    """The seconds that the allreduce from `invent` takes for 160 MB."""
    hint = "first reduce_scatter in each row; then add up each device's part over its column"
    faster = "rows and columns can work at the same time, on different parts of the array, and wires work both ways"

    def enough(self, n):
        """The limit in seconds below which an answer is fast enough, and a phrase that explains the limit."""
        ring = simulate(self.ring(n), self.network).seconds
        return 0.999 * ring, f"the ring in both directions takes {1000 * ring:.4g}"

    def ring(self, n):
        return ring_along(self.network, both_ways=True)(self.network.k, n)

    def test(self, answer, k, n):
        """Test that the schedule is proved, uses single wires and, for a long array, is fast enough; tell its time."""
        schedule = proved(answer, k, n, lambda *_: self.hint)
        ways = ((t.source, t.destination) for step in schedule for t in step)
        far = next((way for way in ways if not self.network.direct[way]), None)
        expect(not far, "right, but no wire leads from device {} to device {}".format(*far or (0, 0)), NEIGHBOURS)
        if n < LONG:
            return None
        time, (enough, why) = simulate(schedule, self.network), self.enough(n)
        busy = (time.link_bytes / self.network.bandwidth).mean() / time.seconds
        said = f"{1000 * time.seconds:.4g} ms simulated, in which a wire is busy {busy:.0%} of the time on average"
        expect(time.seconds < enough, f"right, but it takes {said}; {why}", self.faster)
        ring, least = simulate(self.ring(n), self.network).seconds, bound(self.network, n)
        others = f"both rings along the wires {1000 * ring:.4g}; invented {1000 * self.invented:.4g}"
        return f"Yours: {said}; {others}; no schedule can beat {1000 * least:.4g}."


class line_allreduce(torus_allreduce):
    """Write line_allreduce(k, n), an allreduce as a schedule for a ring of wires in which the wire between devices 7
    and 0 is broken, rewired(nvlink_ring(8, 25e9, 2e-6), {(7, 0): 0}); k is 8. Send only between neighbours. For 160 MB
    its simulated time must be at most 1.4 times the time that no schedule can beat. n can be any number.

    it is proved, uses only existing wires, and is close to the time that no schedule can beat.
    """

    cases = ((8, 16), (8, 1000), (8, 5), (8, 40_000_000))
    network = rewired(nvlink_ring(8, bandwidth=25e9, latency=2e-6), {(7, 0): 0})
    invented = 7.236e-3
    hint = "begin with one chunk: it collects all shares on its way to one device, and is sent back to all from there"
    faster = "cut the array into many chunks, each a step behind the one before: then all wires work in both directions"

    def enough(self, n):
        least = bound(self.network, n)
        return 1.4 * least, f"no schedule can beat {1000 * least:.4g}, and 1.4 times that is enough"
