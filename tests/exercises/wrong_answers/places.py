"""Wrong answers to the exercises of notebook 1. A docstring is a part of what the check should say."""

import itertools
import time

import numpy as np

import d2lmgpu as d2l


def sum_on__mixes_places(arrays, device):
    """you cannot mix arrays of two devices"""
    return sum(arrays[1:], arrays[0])


def sum_on__where_the_first_is(arrays, device):
    """to be summed on cpu(1): the sum is on cpu(0)"""
    total = d2l.put(arrays[0], arrays[0].device)
    for array in arrays[1:]:
        total += d2l.put(array, total.device)
    return total


def sum_on__changes_the_first(arrays, device):
    """begin with a copy"""
    for array in arrays[1:]:
        arrays[0][:] += d2l.put(array, arrays[0].device)
    return d2l.put(arrays[0], device)


def sum_on__of_one_array_that_array(arrays, device):
    """the sum is in one of the given arrays"""
    total = arrays[0] if arrays[0].device is device else d2l.put(arrays[0], device)
    for array in arrays[1:]:
        total = total + d2l.put(array, device)
    return total


def sum_on__over_the_host(arrays, device):
    """the numbers went through the host: two copies"""
    return d2l.put(sum(d2l.to_host(array) for array in arrays), device)


def sum_on__left_on_the_host(arrays, device):
    """the sum is on the host"""
    return sum(d2l.to_host(array) for array in arrays)


def sum_on__of_two_arrays(arrays, device):
    """add each array exactly once, for any number of arrays, even if two are on one device"""
    total = d2l.put(arrays[0], device)
    if len(arrays) > 1:
        total += d2l.put(arrays[-1], device)
    return total


def sum_on__around_the_rules(arrays, device):
    """reading .raw bypasses the rules, and on a GPU this would fail"""
    return d2l.DeviceArray(np.sum([array.raw for array in arrays], axis=0), device)


def swap__changes_names(a, b):
    """a = ... only makes the name refer to another array"""
    a, b = d2l.put(b, a.device), d2l.put(a, b.device)
    return a, b


def swap__overwrites_first(a, b):
    """now both hold b's old contents"""
    a[:] = d2l.put(b, a.device)
    b[:] = d2l.put(a, b.device)


def swap__mixes_places(a, b):
    """you cannot mix arrays of two devices"""
    old = d2l.put(a, a.device)
    a[:] = b
    b[:] = old


def swap__sends_one_twice(a, b):
    """96 bytes moved between devices; 48 are enough"""
    old = d2l.put(a, b.device)
    a[:] = d2l.put(b, a.device)
    b[:] = d2l.put(d2l.put(old, a.device), b.device) if a.device is not b.device else old


def timed__without_waiting(work, devices, repeats=5, clock=time.perf_counter):
    """the time for submitting the work, not for doing it"""
    work()
    return _times(work, repeats, clock, [])


def timed__the_warm_up_is_not_waited_for(work, devices, repeats=5, clock=time.perf_counter):
    """call work once before the loop, and wait for it, too, before you read the clock"""
    work()
    return _times(work, repeats, clock, devices)


def timed__waits_for_the_last_only(work, devices, repeats=5, clock=time.perf_counter):
    """the time of one device only"""
    _warm_up(work, devices)
    return _times(work, repeats, clock, devices[-1:])


def timed__since_the_start(work, devices, repeats=5, clock=time.perf_counter):
    """read the clock at each beginning"""
    _warm_up(work, devices)
    return list(itertools.accumulate(_times(work, repeats, clock, devices)))


def timed__the_mean(work, devices, repeats=5, clock=time.perf_counter):
    """return a list of seconds"""
    _warm_up(work, devices)
    begin = clock()
    for _ in range(repeats):
        work()
    d2l.synchronize(devices)
    return (clock() - begin) / repeats


def timed__with_another_clock(work, devices, repeats=5, clock=time.perf_counter):
    """read the given clock, clock() instead of time.perf_counter(), and subtract begin from end"""
    _warm_up(work, devices)
    return _times(work, repeats, time.process_time, devices)  # which another program does not hold up


def timed__one_too_many(work, devices, repeats=5, clock=time.perf_counter):
    """a list of 4 times for 4 calls of work"""
    return _times(work, repeats + 1, clock, devices)


def _warm_up(work, devices):
    work()
    d2l.synchronize(devices)


def _times(work, repeats, clock, devices):
    seconds = []
    for _ in range(repeats):
        begin = clock()
        work()
        for device in devices:
            device.synchronize()
        seconds.append(clock() - begin)
    return seconds
