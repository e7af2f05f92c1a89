"""Wrong answers to the exercises of notebook 6. A docstring is a part of what the check should say."""

import math

from d2lmgpu.collectives import Transfer, chunk_bounds, naive, reduce_scatter, sharded


def ring__nobody_sends(k, n):
    """ring(2, 4): no device sends anything. Write ring"""
    return []


def ring__right_for_two_devices_only(k, n):
    """it is right only for two devices"""
    return _round(k, n, -1, "add", 1) + _round(k, n, 0, "copy", 1) if k > 1 else []


def ring__stops_half_way(k, n):
    """after k - 1 steps each chunk is complete on one device"""
    return reduce_scatter(k, n)


def ring__whole_arrays(k, n):
    """right, but as slow as 8 elements sent one after the other; 4 are enough"""
    collect = [[Transfer(i, i + 1, 0, n, "add")] for i in range(k - 1)]
    give_back = [[Transfer((i - 1) % k, i, 0, n, "copy")] for i in range(k - 1)]
    return collect + give_back


def ring__adds_when_giving_back(k, n):
    """op 'copy'"""
    return _round(k, n, -1, "add") + _round(k, n, 0, "add")


def ring__chunk_off_by_one(k, n):
    """a device passes on the chunk that it received in the step before"""
    return _round(k, n, 0, "add") + _round(k, n, 0, "copy")


def ring__loses_what_is_left_over(k, n):
    """it is right if k divides n"""
    return _round(k, n - n % k, -1, "add") + _round(k, n - n % k, 0, "copy")


def ring__no_way_round(k, n):
    """take the numbers of devices modulo k, too"""
    bounds = chunk_bounds(n, k)
    return [[Transfer(i, i + 1, *bounds[(i - 1 - s) % k], "add") for i in range(k)] for s in range(k - 1)]


def ring__not_a_ring(k, n):
    """device i sends only to device (i + 1) % k"""
    return sharded(k, n)


def ring__one_list_of_transfers(k, n):
    """a schedule is a list of steps"""
    return [transfer for step in naive(k, n) for transfer in step]


def ring_seconds__whole_arrays(k, nbytes, latency, bandwidth):
    """a step sends one chunk, of nbytes / k bytes"""
    return 2 * (k - 1) * (latency + nbytes / bandwidth)


def ring_seconds__once_round(k, nbytes, latency, bandwidth):
    """chunks go round twice"""
    return (k - 1) * (latency + nbytes / k / bandwidth)


def ring_seconds__without_latency(k, nbytes, latency, bandwidth):
    """the latency is missing"""
    return 2 * (k - 1) / k * nbytes / bandwidth


def ring_seconds__a_step_too_many(k, nbytes, latency, bandwidth):
    """each of the two trips takes k - 1 steps"""
    return 2 * k * (latency + nbytes / k / bandwidth)


def ring_seconds__times_bandwidth(k, nbytes, latency, bandwidth):
    """bandwidth is bytes per second"""
    return 2 * (k - 1) * (latency + nbytes / k * bandwidth)


def crossover_bytes__in_elements(k, latency, bandwidth):
    """the answer is in bytes"""
    rounds = math.ceil(math.log2(k))
    return latency * bandwidth * (k - 1 - rounds) / (rounds - (k - 1) / k) / 4


def crossover_bytes__unrounded(k, latency, bandwidth):
    """round log2(k) up"""
    rounds = math.log2(k)
    return latency * bandwidth * (k - 1 - rounds) / (rounds - (k - 1) / k)


def crossover_bytes__tree_up_only(k, latency, bandwidth):
    """the tree has the same number of steps up and down"""
    rounds = math.ceil(math.log2(k)) / 2
    return latency * bandwidth * (k - 1 - rounds) / (rounds - (k - 1) / k)


def _round(k, n, ahead, op, steps=None):
    """The chunks once round the ring: device i begins with that of device i + ahead."""
    bounds = chunk_bounds(n, k)
    return [
        [Transfer(i, (i + 1) % k, *bounds[(i + ahead - s) % k], op) for i in range(k)] for s in range(steps or k - 1)
    ]
