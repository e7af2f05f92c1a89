"""Exercises for notebooks 6 and 6b: a ring as a schedule, its time, and allreduces for a torus and a broken ring.

For a right answer of the last two, the check prints its simulated time beside those of other allreduces, so that
students can improve it.
"""

import math

from ..collectives import ScheduleError, bound, prove, ring_along, simulate
from ..collectives.wirings.wires import nvlink_ring, rewired, torus
from .exercise import Empty, Exercise, Wrong, call, expect, read, returned

_FORM = "a schedule is a list of steps, a step a list of Transfer(source, destination, start, stop, op)"
ALL_SEND = "cut the array into k chunks, and in each step let all devices send one chunk at the same time"
CHUNKS = "chunk_bounds(n, k) gives the start and stop of each of k chunks; take chunk numbers modulo k"


def proved(answer, k, n, hint):
    """The schedule that an answer returns. Raises `Wrong`, with ``hint(error, schedule)``, unless it is right."""
    schedule = read(returned(call(answer, k, n, hint=CHUNKS)), [[object]], _FORM)
    if k > 1 and not any(schedule):
        raise Empty("no device sends anything")
    try:
        prove(schedule, k, n)
    except ValueError as error:
        raise Wrong(str(error), hint(str(error), schedule) if isinstance(error, ScheduleError) else _FORM) from error
    return schedule


def _hint(error, schedule, k, n):
    if "names a device" in error:
        return "the last device's neighbour is device 0: take the numbers of devices modulo k, too"
    if len(schedule) == k - 1 and all(t.op == "add" for step in schedule for t in step):
        return "after k - 1 steps each chunk is complete on one device: k - 1 more, with op 'copy', give it to all"
    if n % k:
        return f"it is right if k divides n; {CHUNKS}"
    if "counted" in error:
        return "on the second trip round the ring the sums are complete: they replace the old numbers, with op 'copy'"
    if (k, n) == (3, 6) and len(schedule) < 2 * (k - 1):
        return "it is right only for two devices: a chunk needs k - 1 steps to collect all shares, then k - 1 more"
    return "follow one chunk round the ring: a device passes on the chunk that it received in the step before"


def _busiest(step, k):
    """The largest number of elements that one device sends in a step."""
    return max((sum(t.size for t in step if t.source == i) for i in range(k)), default=0)


class ring(Exercise):
    """Write ring(k, n), the ring allreduce as a schedule: a list of steps, each a list of Transfer(source, destination,
    start, stop, op). Every device sends only to its neighbour, chunk by chunk; n need not be divisible by k.

    it is proved for 1, 2, 3, 5 and 8 devices and for chunks of different sizes, and sends only between neighbours.
    """

    without = "reduce_scatter", "all_gather"
    cases = ((2, 4), (3, 6), (5, 15), (8, 16), (1, 4), (2, 5), (3, 7), (8, 19), (5, 3))

    def test(self, answer, k, n):
        """Test that the schedule is proved right, sends only between neighbours, and takes no longer than a ring."""
        schedule = proved(answer, k, n, lambda *found: _hint(*found, k, n))
        ways = {(t.destination - t.source) % k for step in schedule for t in step}
        no_ring = "right, but not a ring: some devices send to the next device and some to the one before, or to others"
        expect(len(ways) <= 1 and ways <= {1, k - 1}, no_ring, "device i sends only to device (i + 1) % k")
        in_line, enough = sum(_busiest(step, k) for step in schedule), 2 * (k - 1) * -(-n // k)
        slow = f"right, but as slow as {in_line} elements sent one after the other; {enough} are enough"
        expect(in_line <= enough, slow, ALL_SEND)


class ring_seconds(Exercise):
    """Write ring_seconds(k, nbytes, latency, bandwidth): return the seconds that a ring allreduce of nbytes bytes takes
    on k devices, if a message of m bytes takes latency + m / bandwidth. Additions take no time.

    there are 2(k - 1) steps, each with one latency and nbytes / k bytes.
    """

    optional = True
    without = ("simulate",)
    cases = ((4, 160e6, 1e-5, 16e9), (2, 4e6, 1e-4, 1e9), (1, 1e6, 1e-5, 1e9), (63, 4e3, 2e-5, 1e9))
    hint = "count the steps, then write down the time of one of them: latency + bytes / bandwidth"

    def right(self, k, nbytes, latency, bandwidth):
        return 2 * (k - 1) * (latency + nbytes / bandwidth / k)

    def mistakes(self, _, right, k, nbytes, latency, bandwidth):
        steps, wire = 2 * (k - 1), nbytes / bandwidth
        yield steps * (latency + wire), "each step sends all nbytes", "a step sends one chunk, of nbytes / k bytes"
        yield right / 2, "this is one trip round the ring", "chunks go round twice: to be added up, then copied"
        yield steps / k * wire, "the latency is missing", "every step begins with a latency"
        yield 2 * k * (latency + wire / k), "there are 2k steps", "each of the two trips takes k - 1 steps"
        yield steps * (latency + nbytes * bandwidth / k), "it grows with the bandwidth", "bandwidth is bytes per second"


class crossover_bytes(Exercise):
    """Write crossover_bytes(k, latency, bandwidth): return the message size in bytes at which a ring and a tree take
    the same time. The tree has ceil(log2(k)) steps up and the same number down, each with the whole message. As in
    ring_seconds, a message of m bytes takes latency + m / bandwidth.

    at that size both take the same time; for longer messages the ring is faster.
    """

    optional = True
    cases = ((8, 1e-5, 12.5e9), (4, 5e-6, 16e9), (64, 2e-5, 1e9), (6, 1e-5, 1e9), (5, 1e-5, 1e9))
    hint = "write down both times for n bytes, set them equal, and solve for n"

    def right(self, k, latency, bandwidth, rounds=None):
        """The n for which 2(k-1)(α + n/kB) = 2r(α + n/B), where r is ``rounds``, by default ⌈log₂ k⌉."""
        rounds = rounds or math.ceil(math.log2(k))
        return latency * bandwidth * (k - 1 - rounds) / (rounds - (k - 1) / k)

    def mistakes(self, _, right, k, latency, bandwidth):
        rounds, unrounded = math.ceil(math.log2(k)), math.log2(k)
        half, in_parts = (self.right(k, latency, bandwidth, r) for r in (rounds / 2, unrounded))
        yield right / 4, "this is a number of elements", "the answer is in bytes"
        yield in_parts, "the tree's steps are not rounded", "round log2(k) up; for k = 6 that is 3"
        yield half, "only half of the tree's steps are counted", "the tree has the same number of steps up and down"


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
        said = f"{1000 * time.seconds:.4g} ms simulated"
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
