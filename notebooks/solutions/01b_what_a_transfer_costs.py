"""Solutions of notebook 1b's exercises."""

import time

import d2lmgpu as d2l


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
