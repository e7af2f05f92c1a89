"""Exercises of notebook 1, devices: a sum of arrays on several devices, a swap between two, and measuring time."""

import numpy as np

from ..devices import DeviceArray, cpu, put, record_transfers, to_host
from .checking import Exercise, random_numbers
from .pretend import Clock, PretendDevice
from .results import Empty, Wrong, call, close, compare, expect, read, result_of, same, short
from .watching import RAW

PUT = "arrays of two devices do not mix: d2l.put(x, device) copies x to the device"


def _arrays(places):
    """Random vectors on these devices, and the same on the host."""
    rng = random_numbers(0)
    values = [rng.normal(0, 1, 5).astype(np.float32) for _ in places]
    return [put(value, cpu(i)) for value, i in zip(values, places, strict=True)], values


def _try_sum_on(answer, places, there):
    """The sum is on the right device, no needless byte was sent, and the arrays are as before."""
    arrays, values = _arrays(places)
    case = f"arrays on {', '.join(str(cpu(i)) for i in places)}, to be summed on {cpu(there)}"
    with record_transfers() as transfers:
        result = result_of(answer, list(arrays), cpu(there), case=case, hint=PUT)
    for i, array, value in zip(places, arrays, values, strict=True):
        said = f"{case}: afterwards the array on {cpu(i)} is {short(array)} instead of {short(value)}, as before"
        expect(close(array, value), said, COPY)
    _check_sum(result, values, cpu(there), case)
    same = any(np.shares_memory(result.raw, array.raw) for array in arrays)
    expect(not same, f"{case}: the sum is in an array given", "return a new array; put always makes a copy")
    _check_way(transfers, [(i, there) for i in places if i != there], arrays[0].nbytes, case)


COPY = "begin with a copy, put(arrays[0], device), which is yours to change; or add with + instead of +="
ONCE = "each array counts once, however many there are, also where two are on one device"


def _check_sum(result, values, device, case):
    place = result.device if isinstance(result, DeviceArray) else "the host"
    expect(place is device, f"{case}: the sum is on {place}", "put every array on the device first, then add there")
    compare(result, np.sum(values, axis=0, dtype=float), (), case, ONCE)


def _check_way(transfers, ways, nbytes, case):
    """Check that exactly these copies were made: ``ways`` are pairs (source, destination), of ``nbytes`` each."""
    moved = [(t.source, t.destination, t.nbytes) for t in transfers if t.source != t.destination]
    over_host = any("host" in (source, destination) for source, destination, _ in moved)
    expect(not over_host, f"{case}: the numbers went through the host, twice", "put copies from device to device")
    total, enough = sum(size for *_, size in moved), nbytes * len(ways)
    said = f"{total} bytes moved between devices instead of {enough}"
    if total == enough:
        said = "as many bytes moved as are needed, but between other devices"
    expect(sorted(moved) == sorted((str(cpu(i)), str(cpu(j)), nbytes) for i, j in ways), f"{case}: {said}", STRAIGHT)


STRAIGHT = f"copy each array once, directly to the device where it is needed; {RAW}"


def _try_swap(answer, one, other):
    """In place, between two devices and on one."""
    (a, b), (was_a, was_b) = _arrays((one, other))
    case = f"a on {cpu(one)} and b on {cpu(other)}"
    with record_transfers() as transfers:
        returned = call(answer, a, b, case=case, hint=PUT)
    now, before = (to_host(a), to_host(b)), (was_a, was_b)
    if same(now, before):
        if returned is None or returned is ...:
            raise Empty(f"{case}: nothing has changed")
        raise Wrong(f"{case}: it returned a value, but a and b are unchanged", IN_PLACE)
    both = [
        ((was, was), f"now both hold what {name} held", OVERWRITTEN) for name, was in zip("ab", before, strict=True)
    ]
    compare(now, (was_b, was_a), both, f"{case}: a and b", IN_PLACE)
    _check_way(transfers, [(one, other), (other, one)] if one != other else [], a.nbytes, case)


IN_PLACE = "a[:] = ... writes into the array that is there; a = ... only makes the name refer to another array"
OVERWRITTEN = (
    "the first assignment overwrites what the second one needs: keep a copy of it; "
    "a second name is not a copy; put(x, x.device) makes one"
)


WARM_UP = 1000  # seconds that the first call takes in addition, by the test's clock
SUBMITTING = 1  # seconds that work() takes to submit the work


def _try_timed(answer, k, repeats):
    """Each repetition is timed by itself, from idle devices to idle devices, without the first one."""
    clock = Clock()
    devices = [PretendDevice(i, clock) for i in range(k)]
    seconds = random_numbers(k + 16).integers(10, 100, (repeats + 100, k))
    calls = []

    def work(clock=clock, devices=devices, seconds=seconds, calls=calls):
        clock.now += SUBMITTING
        for device, took in zip(devices, seconds[len(calls)], strict=True):
            device.work_for(WARM_UP + took if not calls else took)
        calls.append(clock.now)

    case = f"work on {k} device{'s' * (k > 1)}, {repeats} times"
    result = result_of(answer, work, list(devices), repeats, clock, case=case)
    result = read(result, [float], case, "return a list of seconds")
    said = f"{case}: a list of {len(result)} for {len(calls)} calls of work"
    expect(len(result) == repeats <= len(calls), said, EACH_TIMED)
    _check_seconds(np.array(result, float), seconds, calls, case)


EACH_TIMED = "call work once to warm up, untimed; then call it `repeats` times, and time each call separately"


def _check_seconds(result, seconds, calls, case):
    """``seconds`` (calls, devices): how long the work took on each device."""
    repeats = len(result)
    mine = SUBMITTING + seconds[len(calls) - repeats : len(calls)]  # the last calls are those that are timed
    right = mine.max(axis=1)
    first = int(np.argmax(result != right))  # the first that is wrong; later ones may be wrong because of it
    mistakes = (
        (np.full(repeats, SUBMITTING), "the time to submit the work, not to do it", WAIT),
        (result[0] >= WARM_UP, "the warm-up is in the first time", WARM),
        (close(np.diff(result, prepend=0), right), "the time since the start", AT_EACH_BEGIN),
        ((result < 0.01).all() or (result <= 0).any(), GIVEN),
        (close(result[first], mine[first, 0]), "the time of the first device only", WAIT_FOR_ALL),
        (close(result[first], mine[first, -1]), "the time of the last device only", WAIT_FOR_ALL),
    )
    hint = "for each repetition: begin = clock(), work(), wait for all devices, clock() - begin"
    compare(result, right, mistakes, case, hint)


WAIT = "wait, d2l.synchronize(devices), before the clock is read"
WARM = "call work once before the loop, and wait for that, too, before the clock is read"
AT_EACH_BEGIN = "read the clock at the beginning of each repetition"
WAIT_FOR_ALL = "wait for all devices, not for one"
GIVEN = "read the clock that was given: clock(), not time.perf_counter(); end minus begin"


EXERCISES = {
    "sum_on": Exercise(
        "Write sum_on(arrays, device): arrays is a list of device arrays of one shape, each on any device; return "
        "their sum, a new array on `device`. The arrays stay as they are; those on other devices travel once each.",
        "the sum is on the device that was asked for, each other device's array was copied once, and none has changed.",
        _try_sum_on,
        cases=(((0, 1), 0), ((0, 1), 1), ((2,), 2), ((1, 0, 2), 3), ((0, 1, 0, 3, 2), 1)),
    ),
    "swap": Exercise(
        "Write swap(a, b): a and b are device arrays of one shape; afterwards, in place, a holds what b held and b "
        "what a held. They may be on two devices or on one. Return nothing.",
        "the two arrays have exchanged their contents, in place.",
        _try_swap,
        cases=((0, 1), (3, 2), (1, 1)),
    ),
    "timed": Exercise(
        "Write timed(work, devices, repeats=5, clock=time.perf_counter): work() submits work to the devices and does "
        "not wait for it; clock() reads the time. Return a list of seconds, one for each of `repeats` calls of work(), "
        "until all devices have done it; the first call of all, which is slower, is not one of them.",
        "the warm-up is left out, and every time is that of the device that was last to finish.",
        _try_timed,
        cases=((1, 3), (2, 4), (3, 5)),
    ),
}
