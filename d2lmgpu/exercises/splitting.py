"""Exercises for notebook 3, splitting the problem: the bytes that cross a cut, and a dense layer in parts."""

import numpy as np

from ..base.text import several
from .exercise import Exercise, call_recorded, expect, returned
from .spies import check_place, row_of

LENET_OUTPUTS = [13520, 13520, 3380, 4050, 4050, 800, 800, 128, 128, 10]
"""How many outputs LeNet's layers have for an image: twice convolution, ReLU, pooling; flatten, dense, ReLU, dense."""
BEFORE = "a cut c comes before layer c: what crosses it are the outputs of layer c - 1, outputs[c - 1]"


class layer_split_bytes(Exercise):
    """Write layer_split_bytes(outputs, cuts, batch_size): outputs[i] is the number of float32 outputs of layer i for
    one example. A cut c means that layer c - 1 is on one device and layer c on the next. Return the bytes that cross
    all cuts in a training step, forward and backward.

    the outputs of the layer before a cut cross it, and the same number of gradients come back.
    """

    cases = (([70, 60, 50], [2], 1), ([70, 60, 50, 40], [1, 3], 7), (LENET_OUTPUTS, [3, 6, 8], 256), ([70, 60], [], 8))
    hint = "for one cut: examples · numbers · 4 bytes forward, and the same number back; then add up the cuts"

    def right(self, outputs, cuts, batch_size):
        return 2 * 4 * batch_size * sum(outputs[cut - 1] for cut in cuts)

    def mistakes(self, _, right, outputs, cuts, batch_size):
        yield right / 2, "the forward pass only", "a gradient comes back for every number that is sent"
        yield right / 4, "numbers, not bytes", "a float32 number takes 4 bytes"
        yield right / batch_size, "these are the bytes of one example", "every example of the minibatch crosses the cut"
        yield 8 * batch_size * sum(outputs[cut] for cut in cuts), "the outputs of the layer after the cut", BEFORE
        yield 8 * batch_size * sum(outputs), "the outputs of all layers", "outputs that stay on a device are not sent"


_PARTS = "np.array_split(x, k, axis=1) works for any k; columns of x and rows of weight must fit together"


def _check_parts(transfers, devices, x, weight):
    """Check that each device gets only its part from the host, and sends only its product to the first device."""
    (N, D), O, k = x.shape, weight.shape[1], len(devices)
    from_host = [t for t in transfers if t.source == "host"]
    got = [sum(t.nbytes for t in from_host if t.destination == str(device)) for device in devices]
    idle = f"{devices[np.argmin(got)]} has nothing to do"
    expect(min(got) > 0, idle, "each device multiplies its part of x by its part of weight")
    moved = sum(t.nbytes for t in transfers if t.source != t.destination and t.source != "host")
    right = 4 * (k - 1) * N * O
    hint = "each other device sends its product, (N, O) numbers, once, directly to devices[0]"
    expect(moved == right, f"{moved:,} bytes leave the devices instead of {right:,}", hint)
    most = 4 * (-(-D // k) * (N + O) + O)  # its part of x and weight, and perhaps the bias
    what = f"{devices[np.argmax(got)]} gets {max(got):,} bytes from the host; its parts and bias have at most {most:,}"
    expect(max(got) <= most, what, "a device needs only its part of x and weight")


class dense_by_inputs(Exercise):
    """Write dense_by_inputs(x, weight, bias, devices): x (N, D), weight (D, O) and bias (O,) are NumPy arrays. Give
    each device a part of the D inputs: those columns of x and those rows of weight. Return y = x @ weight + bias on
    devices[0].

    every device multiplies its part of the inputs, and the parts add up to the whole layer.
    """

    cases = ((4, 6, 3, 2), (3, 7, 5, 3), (2, 5, 3, 1), (5, 9, 2, 5))
    hint = "y = x @ weight + bias is a sum over the inputs; each device has some of them"

    def words(self, N, D, O, k):
        return f"x {(N, D)} and weight {(D, O)} on {several(k, 'device')}"

    def test(self, answer, N, D, O, k):
        """Test that the result is on the first device, and that every device had a part of the weight and the work."""
        rng = np.random.default_rng(0)
        devices = row_of(k)
        x, weight, bias = (rng.normal(0, 1, shape).astype(np.float32) for shape in ((N, D), (D, O), (O,)))
        y, transfers = call_recorded(answer, x, weight, bias, list(devices), hint=_PARTS)
        check_place(returned(y), devices[0], "y", "return the sum as an array on devices[0]")
        right = x @ weight + bias
        expect(y.shape == right.shape, f"y has shape {y.shape} instead of {right.shape}", "add up the products")
        self.compare(y, right, bias, k, what="y")
        _check_parts(transfers, devices, x, weight)

    def mistakes(self, _, right, bias, k):
        yield right + (k - 1) * bias, f"the bias is counted {k} times", "add it once, not on every device"
        yield right - bias, "the bias is missing", "add it once"
