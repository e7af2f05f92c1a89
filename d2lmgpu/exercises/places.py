"""Exercises for notebook 1, devices: a sum of arrays on several devices, a swap between two, and measuring time."""

import numpy as np

from ..base.text import several
from ..devices import cpu, to_host
from .exercise import Empty, Exercise, call, call_recorded, close, expect, read, returned, same_value
from .spies import RAW, FakeClock, PretendDevice, check_place, spread


def vectors(devices, shape=(2, 3)):
    """Random arrays, one on each of these devices, and the same arrays on the host."""
    rng = np.random.default_rng(0)
    values = [rng.normal(0, 1, shape).astype(np.float32) for _ in devices]
    return spread(values, devices), values


def _check_way(transfers, ways, nbytes):
    """Check that exactly these copies were made: ``ways`` are pairs (source, destination), of ``nbytes`` each."""
    moved = [(t.source, t.destination, t.nbytes) for t in transfers if t.source != t.destination]
    over_host = any("host" in (source, destination) for source, destination, _ in moved)
    expect(not over_host, "the numbers went through the host: two copies", "put copies from device to device")
    right = sorted((str(cpu(i)), str(cpu(j)), nbytes) for i, j in ways)
    total = sum(size for *_, size in moved)
    said = f"{total} bytes moved between devices; {nbytes * len(ways)} are enough"
    expect(sorted(moved) == right, said, f"copy each array once, directly to the device where it is needed; {RAW}")


COPY = "begin with a copy that you can change, put(arrays[0], device); or add with + instead of +="


class sum_on(Exercise):
    """Write sum_on(arrays, device): arrays is a list of device arrays of one shape, each on any device; return their
    sum, a new array on `device`. Do not change the arrays, and copy each one that is on another device only once.

    the sum is on the right device, each array from another device was copied once, and none has changed.
    """

    cases = (((0, 1), 0), ((0, 1), 1), ((2,), 2), ((1, 0, 2), 3), ((0, 1, 0, 3, 2), 1))
    hint = "add each array exactly once, for any number of arrays, even if two are on one device"

    def words(self, places, there):
        return f"arrays on {', '.join(str(cpu(i)) for i in places)}, to be summed on {cpu(there)}"

    def test(self, answer, places, there):
        """Test that the sum is on the right device, that no needless byte was sent, and that no array has changed."""
        arrays, values = vectors(list(map(cpu, places)))
        result, transfers = call_recorded(answer, list(arrays), cpu(there))
        returned(result)
        expect(same_value(arrays, values), "it changed the arrays that it was given", COPY)
        check_place(result, cpu(there), "the sum", "put every array on the device first, then add there")
        self.compare(result, np.sum(values, axis=0, dtype=float))
        shared = any(np.shares_memory(result.raw, array.raw) for array in arrays)
        expect(not shared, "the sum is in one of the given arrays", "return a new array; put always makes a copy")
        _check_way(transfers, [(i, there) for i in places if i != there], arrays[0].nbytes)


OVERWRITTEN = "the first assignment overwrites what the second needs: keep a copy, put(x, x.device), not just a name"


class swap(Exercise):
    """Write swap(a, b): a and b are device arrays of one shape, on two devices or on one. Exchange their contents in
    place, and return nothing.

    the two arrays have exchanged their contents, in place.
    """

    cases = ((0, 1), (3, 2), (1, 1))
    hint = "a[:] = ... writes into the existing array; a = ... only makes the name refer to another array"

    def words(self, one, other):
        return f"a on {cpu(one)} and b on {cpu(other)}"

    def test(self, answer, one, other):
        """Test that the exchange is in place, between two devices and on one."""
        (a, b), (was_a, was_b) = vectors((cpu(one), cpu(other)))
        _, transfers = call_recorded(answer, a, b)
        now, right = (to_host(a), to_host(b)), (was_b, was_a)
        if same_value(now, right[::-1]):
            raise Empty(f"the arrays a and b have not changed; {self.hint}")
        self.compare(now, right, what="a and b")
        _check_way(transfers, [(one, other), (other, one)] if one != other else [], a.nbytes)

    def mistakes(self, _, right):
        yield (right[0], right[0]), "now both hold b's old contents", OVERWRITTEN


WARM_UP = 1000  # seconds that the first call takes in addition, by the test's clock
SUBMITTING = 1  # seconds that work() takes to submit the work
EACH_TIMED = "call work once to warm up, untimed; then call it `repeats` times, and time each call separately"
WAIT = "wait with d2l.synchronize(devices) before you read the clock"
WARM = "call work once before the loop, and wait for it, too, before you read the clock"
GIVEN = "read the given clock, clock() instead of time.perf_counter(), and subtract begin from end"


class timed(Exercise):
    """Write timed(work, devices, repeats=5, clock=time.perf_counter): work() submits work to the devices and does not
    wait for it; clock() reads the time. Return a list of seconds, one for each of `repeats` calls of work(), each
    measured until all devices have finished. Leave out one more call at the start, which is slower.

    the warm-up is left out, and every time lasts until the last device has finished.
    """

    cases = ((1, 3), (2, 4), (3, 5))
    hint = "for each repetition: begin = clock(), work(), wait for all devices, clock() - begin"

    def words(self, k, repeats):
        return f"work on {several(k, 'device')}, {repeats} times"

    def test(self, answer, k, repeats):
        """Test that each call of work except the first is timed separately, from idle devices to idle devices."""
        clock, calls = FakeClock(), []
        devices = [PretendDevice(i, clock) for i in range(k)]
        seconds = np.random.default_rng(k + 16).integers(10, 100, (repeats + 100, k))

        def work():
            clock.now += SUBMITTING
            for device, took in zip(devices, seconds[len(calls)], strict=True):
                device.work_for(WARM_UP + took if not calls else took)
            calls.append(clock.now)

        result = returned(call(answer, work, list(devices), repeats, clock))
        result = np.array(read(result, [float], "return a list of seconds"), float)
        said = f"a list of {several(len(result), 'time')} for {several(len(calls), 'call')} of work"
        expect(len(result) == repeats <= len(calls), said, EACH_TIMED)
        took = SUBMITTING + seconds[len(calls) - repeats : len(calls)]  # the last calls are those that are timed
        self.compare(result, took.max(axis=1), took)

    def mistakes(self, result, right, took):
        """``took`` (calls, devices): the seconds until each device had done its work."""
        first = int(np.argmax(result != right))  # the first that is wrong; later ones may be wrong because of it
        yield np.full(len(result), SUBMITTING), "the time for submitting the work, not for doing it", WAIT
        yield result[0] >= WARM_UP, "the warm-up is in the first time", WARM
        yield close(np.diff(result, prepend=0), right), "the time since the start", "read the clock at each beginning"
        yield (result < 0.01).any(), GIVEN
        one = result[first] in took[first]
        yield one, "the time of one device only", "wait for all devices, not for only one"
