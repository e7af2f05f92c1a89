"""Exercises of notebook 13, models that do not fit: bytes on a device, and a step whose optimiser state is sharded."""

import numpy as np

from ..collectives import chunk_bounds
from ..devices import cpu, put
from ..words import several
from .checking import Exercise, random_numbers
from .results import Empty, call_recorded, close, compare, expect, short
from .watching import RAW

STAGES = "stage 1 shares out the state, stage 2 also the gradients, stage 3 also the parameters"
WHOLE = "where k does not divide, the largest part has one number more: round up"


def _bytes_of(stage, n, states, k, part=None):
    """Bytes on a device whose part of what is divided has ``part`` numbers; by default the largest part."""
    part = -(-n // k) if part is None else part
    return 4 * ((n if stage < 3 else part) + (n if stage < 2 else part) + states * (n if stage < 1 else part))


def _bytes_mistakes(_, right, stage, n, states, k):
    largest, least = -(-n // k), n // k
    params, grads = (n if stage < 3 else largest), (n if stage < 2 else largest)
    return (
        (right / 4, "this counts numbers, not bytes", "a float32 number takes 4 bytes"),
        (2 * right, "twice as many", "a float32 number takes 4 bytes, not 8"),
        (right - 4 * grads, "the gradients are missing", "the complete gradients take memory, too"),
        (4 * (params + grads), "the optimiser's state is missing", "the optimiser keeps `states` numbers for each"),
        (_bytes_of(0, n, states, k), "nothing is shared out", "stage 1 shares the optimiser's state, 2 and 3 more"),
        (_bytes_of(stage + 1, n, states, k), "too much is shared out", STAGES),
        (_bytes_of(stage - 1, n, states, k), "too little is shared out", STAGES),
        (_bytes_of(3, n, states, k), "everything is shared out", STAGES),
        (k * right, "these are the bytes of all devices", "return those of one"),
        (_bytes_of(stage, n, states, k, least), "with the smallest part", WHOLE),
        (_bytes_of(stage, n, states, k, n / k), "with a fraction of a number", WHOLE),
    )


def _try_zero1_step(answer, k, n):
    """All parameters updated on every device, velocities by their owners only, and no needless byte sent."""
    rng, lr, momentum = random_numbers(4), 0.5, 0.75
    case = f"{several(n, 'parameter')} on {several(k, 'device')}"
    devices, bounds = [cpu(i) for i in range(k)], chunk_bounds(n, k)
    start, before = (rng.normal(0, 1, n).astype(np.float32) for _ in range(2))
    own = [rng.normal(0, 1, n).astype(np.float32) for _ in devices]
    lists = _placed(start, own, before, devices, bounds)
    given = [list(arrays) for arrays in lists]
    _, transfers = call_recorded(answer, *given, lr, momentum, case=case, hint=ORDER)
    params, _, velocities = lists
    if all(close(array, start) for array in params):
        raise Empty(f"{case}: no parameter has changed")
    for i, (array, velocity) in enumerate(zip(params, velocities, strict=True)):
        _check_params(i, array, start, own, before, bounds, lr, momentum, case)
        a, b = bounds[i]
        after = momentum * before[a:b] + np.sum(own, axis=0, dtype=np.float32)[a:b]
        expect(
            close(velocity, after, 1e-4),
            f"{case}: the velocities of device {i} are {short(velocity)} instead of {short(after)}",
            "v = momentum · v + gradient, in place, with the sum of all devices' gradients",
        )
    _check_sent(transfers, devices, n, case)


ORDER = "reduce-scatter the gradients, update each device's own chunk, all-gather the parameters"


def _placed(start, own, before, devices, bounds):
    """Parameters, gradients and velocities on their devices."""
    params = [put(start, device) for device in devices]
    grads = [put(grad, device) for grad, device in zip(own, devices, strict=True)]
    chunks = [put(before[a:b], device) for (a, b), device in zip(bounds, devices, strict=True)]
    return params, grads, chunks


def _check_params(i, array, start, own, before, bounds, lr, momentum, case):
    total = np.sum(own, axis=0, dtype=np.float32)
    right = start - lr * (momentum * before + total)
    a, b = bounds[i]
    part = start.copy()
    part[a:b] = right[a:b]
    mixed = np.concatenate([grad[a:b] for grad, (a, b) in zip(own, bounds, strict=True)])
    mistakes = (
        (part, "its own chunk is right, but the others are old", "all-gather the parameters after the update"),
        (start - lr * (momentum * before + mixed), "each chunk used one device's gradients only", "sum them first"),
        (start - lr * total, "the velocities were not used", "p = p - lr · v, with v = momentum · v + gradient"),
        (start + lr * (momentum * before + total), "a step uphill", "the step is subtracted"),
    )
    compare(array, right, mistakes if len(own) > 1 else (), f"{case}: the parameters of device {i}", ORDER, 1e-4)


def _check_sent(transfers, devices, n, case):
    """Check that 2(k-1)·n numbers were sent in all, each recorded, and none through the host."""
    k, places = len(devices), {str(device) for device in devices}
    up = sum(t.nbytes for t in transfers if t.source in places and t.destination == "host")
    host = "right, but numbers went through the host: they should go from device to device"
    expect(up == 0 or k == 1, f"{case}: {host}", "execute(schedule, arrays) sends between devices")
    sent = sum(t.nbytes for t in transfers if t.source in places and t.destination in places - {t.source})
    enough = 8 * (k - 1) * n
    expect(
        sent <= enough,
        f"{case}: right, but the devices sent {sent:,} bytes; {enough:,} are enough",
        "only its owner needs the sum of a chunk: a reduce-scatter is half of an allreduce",
    )
    expect(
        sent >= enough,
        f"{case}: right, but only {sent:,} bytes were recorded as sent; it takes {enough:,}",
        f"send numbers with put or execute; {RAW}",
    )


EXERCISES = {
    "zero_bytes": Exercise(
        "Write zero_bytes(stage, parameters, states, k): the bytes that parameters, gradients and the optimiser's "
        "state take on the fullest of k devices, when its gradients are complete. ZeRO's stage is 0 (nothing is shared "
        "out), 1, 2 or 3; the optimiser keeps `states` numbers for each parameter; all are float32. Where k does not "
        "divide, the largest part has one number more than the smallest.",
        "parameters, gradients and state, each whole or in parts, as the stage says.",
        cases=(
            (1, 129_068, 2, 8),
            (2, 129_068, 2, 8),
            (3, 129_068, 1, 8),
            (0, 1_000, 2, 4),
            (1, 1_001, 1, 3),
            (2, 101, 2, 3),
            (3, 101, 2, 3),
            (2, 64, 0, 4),
            (3, 50, 2, 1),
        ),
        draw=lambda rng: tuple(map(int, rng.integers((0, 10, 0, 2), (4, 10**6, 3, 65)))),
        right=_bytes_of,
        mistakes=_bytes_mistakes,
        hint="add up three things, each whole or a k-th of it: parameters, gradients, state",
    ),
    "zero1_step": Exercise(
        "Write zero1_step(params, grads, velocities, lr, momentum): lists of flat device arrays, one on each of k "
        "devices. params[i] and grads[i] are whole (the gradients are device i's own), velocities[i] has the elements "
        "chunk_bounds(n, k)[i] only. Do a step of momentum in place, v = momentum · v + summed gradient and p = p - lr "
        "· v, so that afterwards all devices have all parameters, and each has updated only its own chunk.",
        "each device updates its own chunk, and sends no more than in an allreduce.",
        _try_zero1_step,
        cases=((2, 6), (3, 7), (1, 4), (4, 3), (5, 23)),
        draw=lambda rng: tuple(map(int, rng.integers((2, 1), (9, 40)))),
    ),
}
