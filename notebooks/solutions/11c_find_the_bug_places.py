"""Repairs of notebook 11c's functions."""

import time

import d2lmgpu as d2l


def cut(n, k):
    """Always k pairs, some of them perhaps empty."""
    return [(i * n // k, (i + 1) * n // k) for i in range(k)]


def stopwatch(work, devices, repeats=5, clock=time.perf_counter):
    """A warm-up that is waited for; then from idle devices to idle devices, and nothing printed between."""
    work()
    d2l.synchronize(devices)
    seconds = []
    for _ in range(repeats):
        begin = clock()
        work()
        d2l.synchronize(devices)
        seconds.append(clock() - begin)
    return seconds


def name_devices(k, gpus):
    """The kind depends on the machine, not on the device's number."""
    kind = "gpu" if gpus else "cpu"
    return [f"{kind}({i})" for i in range(k)]
