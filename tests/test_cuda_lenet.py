"""One training step of LeNet, from bytes in memory to new parameters, with nothing but the CUDA kernels."""

import numpy as np
import pytest
import references
from conftest import long
from cuda_machines import close, unwritten
from test_cuda_kernels import LENET_1, LENET_2

import d2lmgpu as d2l
from d2lmgpu.kernels.cuda import PRECISIONS, convolution, launch
from d2lmgpu.kernels.cuda.dense import dense
from d2lmgpu.kernels.cuda.head import head

pytestmark = pytest.mark.threads


@pytest.mark.parametrize("precision, tolerance", [("float32", 1e-5), *long(("mixed", 1e-2))])
def test_a_step_of_lenet(machine, rng, precision, tolerance):
    """The shard has room for 4 images and gets 3: what is left counts for nothing."""
    n, size, batch_size = 4, 3, 256
    images, labels = rng.integers(256, size=(9, 784)).astype(np.uint8), rng.integers(10, size=9).astype(np.uint8)
    order, starts = rng.permutation(9).astype(np.int32), np.array([0, 4, 4 + size], np.int32)
    step, rates = np.array([1], np.int32), np.array([0, 0, 0.2 / batch_size], np.float32)
    before = d2l.init_params(seed=1, init="he")
    flat = np.concatenate([param.reshape(-1) for param in before])
    W1, b1, W2, b2, W3, b3, W4, b4 = split(flat, before)
    flat_grads = unwritten(len(flat))
    dW1, db1, dW2, db2, dW3, db3, dW4, db4 = split(flat_grads, before)
    N = np.int32(n)

    x, y, count = unwritten(n, 784), unwritten(n, dtype=np.int32), unwritten(1, dtype=np.int32)
    machine.run(launch.gather(784, n), images, labels, order, starts, step, x, y, count, N)
    p1, mask1 = unwritten(n, 20, 13, 13), unwritten(n, 20, 13, 13, dtype=np.uint16)
    machine.run(convolution.conv_forward(LENET_1, n), x, W1, b1, p1, mask1, N)
    p2, mask2 = unwritten(n, 50, 4, 4), unwritten(n, 50, 4, 4, dtype=np.uint16)
    machine.run(convolution.conv_forward(LENET_2, n), p1, W2, b2, p2, mask2, N)
    h, dh, logits, dlogits = unwritten(n, 128), unwritten(n, 128), unwritten(n, 10), unwritten(n, 10)
    machine.run(dense(800, 128, n, True, PRECISIONS[precision]).forward, p2, W3, b3, h, N)
    losses, hits, scale = unwritten(n), unwritten(n, dtype=np.int32), np.ones(1, np.float32)
    arguments = h, W4, b4, y, count, scale, logits, losses, hits, dlogits, dh, N
    machine.run(head(128, 10, n, kind=PRECISIONS[precision]), *arguments)
    loss, correct, epoch_loss, epoch_correct = (np.zeros(1, dtype) for dtype in (np.float32, np.int32) * 2)
    books = launch.softmax_cross_entropy_sum(10, n)
    machine.run(books, losses, hits, loss, correct, epoch_loss, epoch_correct, step, N)

    dp2, dp1 = unwritten(*p2.shape), unwritten(*p1.shape)
    machine.run(dense(128, 10, n).weight_grad, h, dlogits, logits, dW4, db4, N)
    machine.run(dense(800, 128, n, True, PRECISIONS[precision]).weight_grad, p2, dh, h, dW3, db3, N)
    machine.run(dense(800, 128, n, True, PRECISIONS[precision]).input_grad, dh, h, W3, dp2, N)
    machine.run(convolution.conv_input_grad(LENET_2, n), dp2, mask2, W2, dp1, N)
    for conv, inputs, dy, mask, dweight, dbias in [
        (LENET_2, p1, dp2, mask2, dW2, db2),
        (LENET_1, x, dp1, mask1, dW1, db1),
    ]:
        partial = convolution.conv_weight_grad(conv, n)
        workspace, rows = unwritten(partial.workspace), np.int32(convolution.conv_weight_grad_rows(conv, partial))
        machine.run(partial, inputs, dy, mask, workspace, N)
        machine.run(convolution.conv_weight_grad_sum(conv, partial), workspace, dweight, dbias, rows)
    machine.run(launch.sgd(len(flat)), flat, flat_grads, rates, step, np.int32(len(flat)))

    chosen = order[4 : 4 + size]
    X = (images[chosen] / np.float32(255)).reshape(size, 1, 28, 28)
    logits_expected, loss_expected, grads_expected = references.lenet(X, labels[chosen], before)
    close(logits[:size], logits_expected, tolerance)
    close(loss, [loss_expected], tolerance)
    assert correct == (logits_expected.argmax(axis=1) == labels[chosen]).sum() and step == 2 and count == size
    for param, old, grad, expected in zip(
        split(flat, before), before, split(flat_grads, before), grads_expected, strict=True
    ):
        close(grad, expected, tolerance)
        close(param, old - 0.2 / batch_size * expected, tolerance)


def split(flat, arrays):
    """The parts of a flat buffer that are in the shapes of the arrays: views."""
    ends = np.cumsum([array.size for array in arrays])
    return [flat[end - array.size : end].reshape(array.shape) for array, end in zip(arrays, ends, strict=True)]
