"""Solutions of notebook 1's exercises."""

import time

import d2lmgpu as d2l


def sum_on(arrays, device):
    """The copy of the first array is the student's own, and grows to the sum."""
    total = d2l.put(arrays[0], device)
    for array in arrays[1:]:
        total += d2l.put(array, device)
    return total


def swap(a, b):
    """Both copies are made before anything is overwritten."""
    from_a, from_b = d2l.put(a, b.device), d2l.put(b, a.device)
    a[:] = from_b
    b[:] = from_a


def timed(work, devices, repeats=5, clock=time.perf_counter):
    """Idle devices before each reading of the clock."""
    work()
    d2l.synchronize(devices)
    seconds = []
    for _ in range(repeats):
        begin = clock()
        work()
        d2l.synchronize(devices)
        seconds.append(clock() - begin)
    return seconds
