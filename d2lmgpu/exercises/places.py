"""Exercises of notebook 1, devices: arrays of several places on one, two places that change contents, and the time."""

import numpy as np

from ..arguments import is_number, shown
from ..devices import DeviceArray, cpu, put, record_transfers, to_host
from .checking import Empty, Exercise, Wrong, call, close, expect, random_numbers, result_of, short
from .pretend import Clock, PretendDevice

PUT = "arrays of two devices do not mix: d2l.put(x, device) copies x to the device"


def _arrays(rng, places, n=5):
    """Random vectors on these devices, and the same on the host."""
    values = [rng.normal(0, 1, n).astype(np.float32) for _ in places]
    return [put(value, cpu(i)) for value, i in zip(values, places, strict=True)], values


def _between(transfers):
    """The transfers whose two ends differ: from, to and bytes."""
    return [(t.source, t.destination, t.nbytes) for t in transfers if t.source != t.destination]


def try_sum_on(answer):
    """On the device that is asked for, with as few bytes as it takes, and the arrays as they were."""
    rng = random_numbers(0)
    for places, there in (((0, 1), 0), ((0, 1), 1), ((2,), 2), ((1, 0, 2), 3), ((0, 1, 0, 3, 2), 1)):
        arrays, values = _arrays(rng, places)
        case = f"arrays on {', '.join(str(cpu(i)) for i in places)}, to be summed on {cpu(there)}"
        with record_transfers() as transfers:
            result = result_of(answer, list(arrays), cpu(there), case=case, hint=PUT)
        for i, array, value in zip(places, arrays, values, strict=True):
            expect(
                close(array, value),
                f"{case}: afterwards the array on {cpu(i)} is {short(array)} instead of {short(value)}, as before",
                "begin with a copy, put(arrays[0], device), which is yours to change; or add with + instead of +=",
            )
        _check_sum(result, values, cpu(there), case)
        same = any(np.shares_memory(result.raw, array.raw) for array in arrays)
        expect(not same, f"{case}: the sum is not a new array but one of those given", "put always makes a copy")
        _check_way(_between(transfers), [i for i in places if i != there], cpu(there), arrays[0].nbytes, case)
    return "the sum is on the device that was asked for, each array travelled once, and none has changed."


def _check_sum(result, values, device, case):
    place = result.device if isinstance(result, DeviceArray) else "the host"
    expect(place is device, f"{case}: the sum is on {place}", "put every array on the device first, then add there")
    total = np.sum(values, axis=0, dtype=float)
    if not close(result, total):
        raise Wrong(
            f"{case}: {short(result)} instead of {short(total)}",
            "each array counts once, however many there are, also where two are on one device",
        )


def _check_way(moved, away, device, nbytes, case):
    if any("host" in (source, destination) for source, destination, _ in moved):
        raise Wrong(f"{case}: the numbers went over the host, twice the way", "put copies from device to device")
    expected = sorted((str(cpu(i)), str(device), nbytes) for i in away)
    expect(
        sorted(moved) == expected,
        f"{case}: {sum(size for *_, size in moved)} bytes moved between devices instead of {nbytes * len(away)}",
        "each array on another device travels once, straight to the device; "
        "reading .raw gets around the rules, which a GPU would not forgive",
    )


def try_swap(answer):
    """In place, between two devices and on one."""
    rng = random_numbers(0)
    for places in ((0, 1), (3, 2), (1, 1)):
        (a, b), (was_a, was_b) = _arrays(rng, places)
        case = f"a on {cpu(places[0])} and b on {cpu(places[1])}"
        with record_transfers() as transfers:
            returned = call(answer, a, b, case=case, hint=PUT)
        now_a, now_b = to_host(a), to_host(b)
        if close(now_a, was_b) and close(now_b, was_a):
            _check_exchange(_between(transfers), places, a.nbytes, case)
            continue
        if close(now_a, was_a) and close(now_b, was_b):
            if returned is None or returned is ...:
                raise Empty(f"{case}: nothing has changed")
            raise Wrong(f"{case}: it returned something, but a and b are as before", IN_PLACE)
        both = [name for name, was in (("a", was_a), ("b", was_b)) if close(now_a, was) and close(now_b, was)]
        if both:
            raise Wrong(
                f"{case}: now both hold what {both[0]} held",
                "the first assignment overwrites what the second one needs: keep a copy of it; "
                "a second name is no copy, put(x, x.device) makes one",
            )
        raise Wrong(
            f"{case}: a is {short(now_a)} instead of {short(was_b)}, b {short(now_b)} instead of {short(was_a)}",
            IN_PLACE,
        )
    return "the two arrays have changed contents, each in its own place."


IN_PLACE = "a[:] = ... writes into the array that is there; a = ... only gives the name to another array"


def _check_exchange(moved, places, nbytes, case):
    one, other = (str(cpu(i)) for i in places)
    if one == other:
        return
    if any("host" in (source, destination) for source, destination, _ in moved):
        raise Wrong(f"{case}: the numbers went over the host, twice the way", "put copies from device to device")
    expect(
        sorted(moved) == sorted([(one, other, nbytes), (other, one, nbytes)]),
        f"{case}: {sum(size for *_, size in moved)} bytes moved between the devices instead of {2 * nbytes}",
        "each array travels once; reading .raw gets around the rules, which a GPU would not forgive",
    )


WARM_UP = 1000
SUBMITTING = 1


def try_timed(answer):
    """Each repetition by itself, from an idle machine to an idle machine, without the first."""
    for k, repeats in ((1, 3), (2, 4), (3, 5)):
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
        numbers = isinstance(result, list | tuple) and all(map(is_number, result))
        expect(numbers, f"{case}: it returned {shown(result)}", "return a list of seconds")
        expect(
            len(result) == repeats <= len(calls),
            f"{case}: a list of {len(result)} for {len(calls)} calls of work",
            "call work once to warm up, without a time, and then `repeats` times, each with its own time",
        )
        _check_seconds(np.array(result, float), seconds, calls, case)
    return "the warm-up is left out, and every time is that of the device that was last to finish."


def _check_seconds(result, seconds, calls, case):
    """``seconds`` (calls, devices): how long the work took."""
    repeats = len(result)
    mine = SUBMITTING + seconds[len(calls) - repeats : len(calls)]  # the last calls are those that are timed
    right = mine.max(axis=1)
    if close(result, right):
        return
    found = f"{case}: {short(result)} instead of {short(right)}"
    if close(result, np.full(repeats, SUBMITTING)):
        raise Wrong(
            f"{found}: the time to submit the work, not to do it",
            "wait, d2l.synchronize(devices), before the clock is read",
        )
    if result[0] >= WARM_UP:
        raise Wrong(
            f"{found}: the warm-up is in the first time",
            "call work once before the loop, and wait for that, too, before the clock is read",
        )
    if close(np.diff(result, prepend=0), right):
        raise Wrong(f"{found}: the time since the start", "read the clock at the begin of each repetition")
    if (result < 0.01).all() or (result <= 0).any():
        raise Wrong(f"{found}", "read the clock that was given: clock(), not time.perf_counter(); end less begin")
    first = int(np.argmax(result != right))  # the first that is wrong: until then, all devices were waited for
    for i, name in ((0, "first"), (-1, "last")):
        if close(result[first], mine[first, i]):
            raise Wrong(f"{found}: the time of the {name} device only", "wait for all devices, not for one")
    raise Wrong(found, "for each repetition: begin = clock(), work(), wait for all devices, clock() - begin")


EXERCISES = {
    "sum_on": Exercise(
        "Write sum_on(arrays, device): arrays is a list of device arrays of one shape, each on any device; return "
        "their sum, a new array on `device`. The arrays stay as they are; those on other devices travel once each.",
        try_sum_on,
    ),
    "swap": Exercise(
        "Write swap(a, b): a and b are device arrays of one shape; afterwards, in place, a holds what b held and b "
        "what a held. They may be on two devices or on one. Return nothing.",
        try_swap,
    ),
    "timed": Exercise(
        "Write timed(work, devices, repeats=5, clock=time.perf_counter): work() submits work to the devices and does "
        "not wait for it; clock() reads the time. Return a list of seconds, one for each of `repeats` calls of work(), "
        "until all devices have done it; the first call of all, which is slower, is not one of them.",
        try_timed,
    ),
}
