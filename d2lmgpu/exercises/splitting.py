"""Exercises of notebook 3, splitting the problem: bytes over a cut, a dense layer in parts, what fits into memory."""

import numpy as np

from ..devices import DeviceArray, cpu, record_transfers
from .checking import Exercise, Wrong, close, expect, number_of, random_numbers, result_of, short, with_hidden

LENET_OUTPUTS = (13520, 13520, 3380, 4050, 4050, 800, 800, 128, 128, 10)
"""What LeNet's layers put out for one image: convolution, ReLU, pooling, twice; flatten; dense, ReLU, dense."""


def try_layer_split_bytes(answer):
    """For one cut, for several and for none, with layers that all differ."""
    some = (70, 60, 50, 40, 30)
    cases = ((some, (2,), 1), (some, (1, 4), 7), (LENET_OUTPUTS, (3, 6, 8), 256), (some, (), 8))
    for outputs, cuts, batch_size in with_hidden(cases, _draw_cuts):
        case = f"outputs {short(outputs)}, cuts {list(cuts)}, {batch_size} example{'s' * (batch_size > 1)}"
        result = number_of(result_of(answer, list(outputs), list(cuts), batch_size, case=case), case)
        crossing = sum(outputs[cut - 1] for cut in cuts)
        right = 2 * 4 * batch_size * crossing
        if result == right:
            continue
        found = f"{case}: {result:,} bytes instead of {right:,}"
        mistakes = (
            (right / 2, "the forward pass only", "the gradient of all that was sent comes back"),
            (right / 4, "numbers, not bytes", "a float32 number takes 4 bytes"),
            (2 * right, "twice as many", "a float32 number takes 4 bytes, not 8"),
            (right / batch_size, "those of one example", "every example of the minibatch crosses the cut"),
            (8 * batch_size * sum(outputs[cut] for cut in cuts), "the outputs of the layer behind the cut", BEFORE),
            (8 * batch_size * sum(outputs), "the outputs of all layers", "what stays on a device does not travel"),
        )
        for mistake, what, hint in mistakes:
            if result == mistake:
                raise Wrong(f"{found}: {what}", hint)
        raise Wrong(found, "bytes over one cut first: examples · numbers · 4, and back; then add up the cuts")
    return "every cut is crossed by the outputs of the layer before it, and by as many gradients."


def _draw_cuts(rng):
    outputs = tuple(map(int, rng.integers(1, 20_000, 8)))
    return outputs, tuple(sorted(map(int, rng.choice(range(1, 8), 3, replace=False)))), int(rng.integers(2, 300))


BEFORE = "a cut at c lets layers 0 to c - 1 stay behind; the last of them, outputs[c - 1], is what crosses"


def try_dense_by_inputs(answer):
    """The whole layer's result on the first device; every device with a part of the weight, and of the work."""
    rng = random_numbers(0)
    for N, D, O, k in ((4, 6, 3, 2), (3, 7, 5, 3), (2, 4, 3, 1), (5, 9, 2, 5)):
        devices = [cpu(i) for i in range(k)]
        x, weight, bias = (rng.normal(0, 1, shape).astype(np.float32) for shape in ((N, D), (D, O), (O,)))
        case = f"x {x.shape} and weight {weight.shape} on {k} device{'s' * (k > 1)}"
        with record_transfers() as transfers:
            y = result_of(answer, x, weight, bias, list(devices), case=case, hint=PARTS)
        place = y.device if isinstance(y, DeviceArray) else "the host"
        expect(place is devices[0], f"{case}: y is on {place}", "return the sum as an array on devices[0]")
        _check_product(y, x @ weight, bias, k, case)
        _check_parts(transfers, devices, x, weight, bias, case)
    return "every device multiplies its part of the inputs, and the parts add up to the whole layer."


PARTS = "np.array_split(x, k, axis=1) also splits what k does not divide; what is split how must fit together"


def _check_product(y, product, bias, k, case):
    right = product + bias
    if close(y, right, 1e-4):
        return
    expect(y.shape == right.shape, f"{case}: y has shape {y.shape} instead of {right.shape}", "the parts are added up")
    found = f"{case}: y begins {short(y)} instead of {short(right)}"
    if close(y, product + k * bias, 1e-4):
        raise Wrong(f"{found}: the bias is counted {k} times", "it is added once, not on every device")
    if close(y, product, 1e-4):
        raise Wrong(f"{found}: the bias is missing", "add it once")
    raise Wrong(found, "y = x @ weight + bias is a sum over the inputs; each device has some of them")


def _check_parts(transfers, devices, x, weight, bias, case):
    """No device gets more than its part from the host; the products go to the first device, and nothing else."""
    (N, D), O, k = x.shape, len(bias), len(devices)
    most = 4 * (-(-D // k) * (N + O) + O)  # its part of x and weight, and perhaps the bias
    got = {
        device: sum(t.nbytes for t in transfers if (t.source, t.destination) == ("host", str(device)))
        for device in devices
    }
    for device, nbytes in got.items():
        hint = "each device multiplies its part of x by its part of weight"
        expect(nbytes > 0, f"{case}: {device} has nothing to do", hint)
    moved = sum(t.nbytes for t in transfers if t.source != t.destination and t.source != "host")
    right = 4 * (k - 1) * N * O
    expect(
        moved == right,
        f"{case}: {moved:,} bytes leave the devices instead of {right:,}",
        "each other device sends its product, (N, O) numbers, once, straight to devices[0]",
    )
    for device, nbytes in got.items():
        what = f"{case}: {device} gets {nbytes:,} bytes from the host; its parts have {most:,} at most"
        expect(nbytes <= most, what, "a device needs its part of x and weight only")


MEMORIES = ((2**24, 1), (2**22, 5), (2**24, 2), (2**20, 3), (10**6, 4))
"""Bytes of a device, devices."""


def try_largest_batch(answer):
    """Where k divides and where it does not, and where not even the parameters fit."""
    P, A = sum((200, 25_050, 102_528, 1_290)), sum(LENET_OUTPUTS)
    for memory, k in with_hidden(MEMORIES, lambda rng: tuple(map(int, rng.integers((10**6, 1), (10**8, 9))))):
        case = f"{P:,} parameters, {A:,} activations, {memory:,} bytes, {k} device{'s' * (k > 1)}"
        result = number_of(result_of(answer, P, A, memory, k, case=case), case)
        right = k * max(0, (memory - 8 * P) // (4 * A))
        if result == right:
            continue
        found = f"{case}: {result:,} examples instead of {right:,}"
        shared, forgotten = (k * max(0, (memory - size) // (4 * A)) for size in (8 * P / k, 4 * P))
        mistakes = (
            (result < 0, "fewer than none", "where not even the parameters fit, no example does"),
            (result % 1 != 0, "a part of an example", "whole examples fit on a device: //, before times k"),
            (right and result == right // k, "those of one device", "each device has its own memory, and a shard"),
            (result == forgotten, "the gradients take no place", "there are as many gradients as parameters"),
            (result == shared, "a part of the parameters each", "with data parallelism every device holds all of them"),
            (0 < result - right < k, "a shard would not fit", "the largest shard decides: whole examples on a device"),
        )
        for made, what, hint in mistakes:
            if made:
                raise Wrong(f"{found}: {what}", hint)
        raise Wrong(found, "what parameters and gradients leave of a device's memory, in examples; then times k")
    return "parameters and gradients on every device, and whole examples in what is left."


EXERCISES = {
    "layer_split_bytes": Exercise(
        "Write layer_split_bytes(outputs, cuts, batch_size): outputs[i] is how many float32 numbers layer i puts out "
        "for one example. A cut c means that layer c - 1 is on one device and layer c on the next. Return the bytes "
        "that cross all cuts in a training step, forward and backward.",
        try_layer_split_bytes,
    ),
    "dense_by_inputs": Exercise(
        "Write dense_by_inputs(x, weight, bias, devices): x (N, D), weight (D, O) and bias (O,) are NumPy arrays. Give "
        "each device a part of the D inputs: these columns of x, these rows of weight. Return y = x @ weight + bias "
        "on devices[0].",
        try_dense_by_inputs,
    ),
    "largest_batch": Exercise(
        "Write largest_batch(parameters, activations, memory, k): with data parallelism each of k devices with "
        "`memory` bytes holds all parameters, their gradients, and for each example of its shard the activations; all "
        "are float32 numbers. Return the largest number of examples in a minibatch.",
        try_largest_batch,
    ),
}
