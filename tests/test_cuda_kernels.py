"""The CUDA kernels: each compiles for every architecture at hand, and each equals loops in float64.

They run on the CPU through a small shim ("shim"), and on a real GPU through
CuPy ("gpu") where there is one.
"""

import numpy as np
import pytest
import references
from conftest import few, long, sampled
from cuda_compilers import compile_for_gpus
from cuda_machines import SOURCES, TOLERANCE, close, normal, rounded, unwritten

from d2lmgpu.kernels.cuda import (
    TENSOR_CORES,
    Convolution,
    batch_norm,
    choose,
    convolution,
    launch,
    read,
    winograd,
)
from d2lmgpu.kernels.cuda.dense import dense, head
from d2lmgpu.kernels.cuda.launch import ceil_div
from d2lmgpu.layers.loss import right_answers

pytestmark = pytest.mark.threads

LENET_1 = Convolution(C=1, H=28, W=28, O=20, KH=3, KW=3, S=2, relu=True)
LENET_2 = Convolution(C=20, H=13, W=13, O=50, KH=5, KW=5, S=2, relu=True)
ODD = Convolution(C=2, H=12, W=11, O=5, KH=1, KW=2, S=3, max_pool=True, relu=True)

NORMS = [
    batch_norm.Norm(C=20, H=26, W=26, S=2, relu=True),
    batch_norm.Norm(C=7, H=13, W=17, S=4, max_pool=True),
    batch_norm.Norm(C=128, relu=True),
]


def compilations():
    """What is compiled: every file with LeNet's macros, for a batch of 256, and some with an odd shape's."""
    launches = [
        *(convolution.conv_forward(conv, 256) for conv in (LENET_1, LENET_2, ODD)),
        *(convolution.conv_input_grad(conv, 256) for conv in (LENET_2, ODD)),
        *(convolution.conv_weight_grad(conv, 256) for conv in (LENET_1, LENET_2, ODD)),
        *(convolution.conv_weight_grad_tiles(conv, 256) for conv in (LENET_1, LENET_2, ODD)),
        *dense(800, 128, 256, relu=True),
        *dense(128, 10, 256),
        *(batch_norm.over_images("moments", norm, 256) for norm in NORMS),
        launch.softmax_cross_entropy(10, 256),
        *(head(128, 10, 256, kind=kind) for kind in (None, "float16")),
        head(800, 32, 256),
        head(3, 1, 256, input_grad=False),
        launch.gather(784, 256),
        launch.pool(26, 26, 2, False, 256),
        launch.pool(13, 9, 3, True, 256),
        launch.frame(13, 9, 2, 256),
        launch.relu(100),
        launch.sgd(100),
        launch.optimizer("momentum", 100),
        launch.optimizer("adam", 100),
        launch.count_step(),
        launch.add(100),
        launch.add(100, "int64"),
    ]
    for how in (winograd.choose(LENET_2, 256), winograd.Winograd(ODD._replace(KH=3), 6, 3, 1)):
        launches += [winograd.weights(how, True), winograd.conv_forward(how)]
        launches += [winograd.conv_input_grad(how), winograd.conv_weight_grad(how)]
    launches += dense(800, 128, 256, relu=True, kind="float16")
    launches += [launch.mixed_precision("check_finite", 100)]
    launches += [*choose.convolution("float16", LENET_2, 256, True, True, 132)[:2], launch.rounding(launch.relu(100))]
    launches += choose.convolution("float16", LENET_1, 256, True, True, 132)[:2]
    return sorted({(step.file, step.options) for step in launches})


def test_every_file_is_compiled_here():
    assert {file for file, _ in compilations()} == set(SOURCES)


def first_architecture(file, options):
    return TENSOR_CORES if "-DHALF_FACTORS=1" in options else 70


@pytest.mark.parametrize(
    "file, options", sampled(compilations(), 3), ids=lambda value: value if isinstance(value, str) else ""
)
def test_compiles_for_every_architecture_without_warnings_or_spills(tmp_path, file, options):
    assert compile_for_gpus(read(file), options, first_architecture(file, options), tmp_path) == ""


CONVOLUTIONS = [
    (3, LENET_1),
    (2, LENET_2),
    (5, Convolution(C=3, H=9, W=14, O=7, KH=2, KW=3, S=1)),
    (1, ODD),
    (3, Convolution(C=2, H=7, W=19, O=1, KH=3, KW=5, S=2, max_pool=True)),
    (1, Convolution(C=1, H=37, W=6, O=9, KH=5, KW=1, S=3, relu=True)),
    (2, Convolution(C=40, H=5, W=8, O=70, KH=1, KW=1, S=4)),  # more channels than a block takes
    (1, Convolution(C=1, H=70, W=68, O=5, KH=3, KW=3, S=2)),  # more outputs than a block takes
    (1, Convolution(C=7, H=8, W=9, O=62, KH=5, KW=5, S=2)),  # channels in chunks, and the last is smaller
    (3, Convolution(C=1, H=31, W=17, O=35, KH=2, KW=2, S=4)),  # a row left over in bands, one in groups of channels
    (7, Convolution(C=3, H=8, W=9, O=6, KH=3, KW=3, S=2, max_pool=True, relu=True)),  # several images in a block
    (2, Convolution(C=2, H=3, W=45, O=3, KH=3, KW=2)),  # a row in strips of different lengths
    (2, Convolution(C=2, H=9, W=11, O=3, KH=7, KW=6)),  # kernels too large for the last version of the gradients
]


def conv_id(value):
    return "x".join(str(int(v)) for v in value) if isinstance(value, Convolution) else f"N{value}"


def ladder(last, C, H, W, N):
    """The launches of all versions for a result (N, C, H, W), with the options of the last: one compilation serves all.

    The first has a thread for each element, the second a block for each tile of 8 × 8.
    """
    name = last.name.partition("_v")[0]
    tiles = ceil_div(H, 8) * ceil_div(W, 8)
    first = last._replace(name=f"{name}_v1", grid=(ceil_div(N * C * H * W, 256),), block=(256,))
    return [first, last._replace(name=f"{name}_v2", grid=(tiles, C, N), block=(8, 8)), last]


def forward_ladder(conv, N):
    return ladder(convolution.conv_forward(conv, N), conv.O, conv.PH, conv.PW, N)


def input_grad_ladder(conv, N):
    return ladder(convolution.conv_input_grad(conv, N), conv.C, conv.H, conv.W, N)


def conv_arrays(rng, N, conv):
    """Random arrays and the float64 answers to them."""
    x = normal(rng, N, conv.C, conv.H, conv.W)
    weight, bias = normal(rng, conv.O, conv.C, conv.KH, conv.KW), normal(rng, conv.O)
    if conv.max_pool:  # whole numbers, so that several of a square are the largest, or exactly zero
        x, weight, bias = np.rint(x), np.rint(weight), np.rint(bias)
    y, mask = references.conv_relu_pool(x, weight, bias, conv.S, conv.max_pool, conv.relu)
    dy = normal(rng, *y.shape)
    return x, weight, bias, y, mask, dy


@pytest.mark.parametrize("N, conv", few(CONVOLUTIONS, CONVOLUTIONS[1], CONVOLUTIONS[3]), ids=conv_id)
def test_conv_forward(machine, rng, N, conv):
    x, weight, bias, y_expected, mask_expected, _ = conv_arrays(rng, N, conv)
    for step in forward_ladder(conv, N):
        y, mask = unwritten(*y_expected.shape), unwritten(*y_expected.shape, dtype=np.uint16)
        machine.run(step, x, weight, bias, y, mask, np.int32(N))
        close(y, y_expected)
        np.testing.assert_array_equal(mask, mask_expected)


@pytest.mark.parametrize("N, conv", few(CONVOLUTIONS, CONVOLUTIONS[1], parts=3), ids=conv_id)
def test_conv_grads(machine, rng, N, conv):
    x, weight, _, _, mask, dy = conv_arrays(rng, N, conv)
    dz = references.unpool(dy, mask, (conv.H - conv.KH + 1, conv.W - conv.KW + 1), conv.S, conv.max_pool)
    dx_expected, dweight_expected, dbias_expected = references.conv2d_grad(dz, x.astype(float), weight.astype(float))
    for step in input_grad_ladder(conv, N):
        dx = unwritten(*x.shape)
        machine.run(step, dy, mask, weight, dx, np.int32(N))
        close(dx, dx_expected)
    second = convolution.conv_weight_grad_tiles(conv, N)
    grid = (ceil_div(conv.O * (conv.C * conv.KH * conv.KW + 1), 256),)
    for step in [
        second._replace(name="conv_weight_grad_v1", grid=grid, block=(256,), workspace=0),
        second,
        convolution.conv_weight_grad_tiles(conv, N, multiprocessors=2),  # several images in a group
        convolution.conv_weight_grad(conv, N),
        convolution.conv_weight_grad(conv, N, multiprocessors=2),
    ]:
        dweight, dbias = unwritten(*weight.shape), unwritten(conv.O)
        if step.workspace:
            workspace, rows = unwritten(step.workspace), convolution.conv_weight_grad_rows(conv, step)
            machine.run(step, x, dy, mask, workspace, np.int32(N))
            machine.run(convolution.conv_weight_grad_sum(conv, step), workspace, dweight, dbias, np.int32(rows))
        else:
            machine.run(step, x, dy, mask, dweight, dbias, np.int32(N))
        close(dweight, dweight_expected)
        close(dbias, dbias_expected)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"S": 5}, "pooling of 5 × 5"),
        ({"KH": 14}, "too small"),
        ({"S": 4, "KW": 11}, "too small"),
        ({"KH": 33}, "kernels of 33 × 5"),
    ],
)
def test_shapes_that_the_kernels_do_not_take(change, message):
    with pytest.raises(ValueError, match=message):
        choose.convolution(None, LENET_2._replace(**change), 256, True, False, 132)


@pytest.mark.parametrize("max_pool", [False, True])
def test_what_is_not_a_number_shows_in_the_output(machine, rng, max_pool):
    conv = Convolution(C=2, H=8, W=8, O=3, KH=3, KW=3, S=2, max_pool=max_pool, relu=True)
    x, weight, bias = normal(rng, 1, 2, 8, 8), normal(rng, 3, 2, 3, 3), normal(rng, 3)
    x[0, 1, 3, 3] = np.nan
    y, mask = np.ones((1, 3, 3, 3), np.float32), unwritten(1, 3, 3, 3, dtype=np.uint16)
    machine.run(convolution.conv_forward(conv, 1), x, weight, bias, y, mask, np.int32(1))
    assert np.isnan(y[:, :, :2, :2]).all() and np.isfinite(y[:, :, 2]).all()


@pytest.mark.parametrize("planes, H, W, P", [(3, 5, 4, 1), (1, 1, 7, 3), (70, 9, 8, 2)])
def test_frame(machine, rng, planes, H, W, P):
    x, framed = normal(rng, planes, H, W), np.zeros((planes, H + 2 * P, W + 2 * P), np.float32)
    machine.run(launch.frame(H, W, P, planes), x, framed, np.int32(planes))
    np.testing.assert_array_equal(framed, np.pad(x, ((0, 0), (P, P), (P, P))))
    dframed, dx = normal(rng, *framed.shape), unwritten(*x.shape)
    machine.run(launch.frame_grad(H, W, P, planes), dframed, dx, np.int32(planes))
    np.testing.assert_array_equal(dx, dframed[:, P:-P, P:-P])


@pytest.mark.parametrize(
    "N, D, O, relu",
    [
        (5, 800, 128, True),
        (3, 128, 10, False),
        (1, 1, 1, True),
        *long((97, 3, 750, True), (97, 750, 3, True), (3, 750, 97, False)),  # larger tiles for each kernel
        *long((97, 70, 1500, True), (97, 1500, 70, True), (70, 1500, 97, True)),  # the largest, and several chunks
    ],
)
def test_dense(machine, rng, N, D, O, relu):
    x, weight, bias, dy = normal(rng, N, D), normal(rng, D, O), normal(rng, O), normal(rng, N, O)
    z = references.dense(x.astype(float), weight.astype(float), bias)
    y_expected = np.where(z > 0, z, 0) if relu else z
    how, n = dense(D, O, N, relu), np.int32(N)
    for step in (how.forward._replace(name="dense_forward_v1", grid=(ceil_div(N * O, 256),)), how.forward):
        y = unwritten(N, O)
        machine.run(step, x, weight, bias, y, n)
        close(y, y_expected)
    dz = np.where(z > 0, dy, 0) if relu else dy.astype(float)
    dx_expected, dweight_expected, dbias_expected = references.dense_grad(dz, x.astype(float), weight.astype(float))
    dx, dweight, dbias = unwritten(N, D), unwritten(D, O), unwritten(O)
    machine.run(how.input_grad, dy, y, weight, dx, n)
    machine.run(how.weight_grad, x, dy, y, dweight, dbias, n)
    close(dx, dx_expected)
    close(dweight, dweight_expected)
    close(dbias, dbias_expected)


@pytest.mark.parametrize(
    "N, count, classes", [(5, 5, 10), (9, 4, 10), (3, 0, 10), (1, 1, 1), (1100, 1090, 3), (8, 7, 77)]
)
def test_softmax_cross_entropy(machine, rng, N, count, classes):
    logits = 5 * normal(rng, N, classes)
    logits[N // 2, -1] = logits[N // 2].max() + 1
    logits[N // 2, 0] = logits[N // 2, -1]  # two are the largest: the first is the answer
    labels = rng.integers(classes, size=N).astype(np.int32)
    labels[N // 2] = 0 if N % 2 else classes - 1
    dlogits, losses, hits = unwritten(N, classes), unwritten(N), unwritten(N, dtype=np.int32)
    counts, scale = np.array([count], np.int32), np.array([1024], np.float32)
    how = launch.softmax_cross_entropy(classes, N)
    machine.run(how, logits, labels, counts, scale, dlogits, losses, hits, np.int32(N))
    loss_expected, dlogits_expected = references.cross_entropy(logits[:count].astype(float), labels[:count])
    close(dlogits[:count], 1024 * dlogits_expected)
    assert not dlogits[count:].any()

    loss, correct, step = unwritten(1), unwritten(1, dtype=np.int32), np.array([5], np.int32)
    epoch_loss, epoch_correct = np.array([1000], np.float32), np.array([7], np.int32)
    how = launch.softmax_cross_entropy_sum(classes, N)
    machine.run(how, losses, hits, loss, correct, epoch_loss, epoch_correct, step, np.int32(N))
    close(loss, [loss_expected])
    close(epoch_loss, [1000 + loss_expected])
    assert correct == (logits[:count].argmax(axis=1) == labels[:count]).sum() and epoch_correct == correct + 7
    assert step == 6


def test_softmax_of_large_logits_does_not_overflow(machine):
    logits, dlogits, losses = np.array([[1000, -1000, 0]], np.float32), unwritten(1, 3), unwritten(1)
    one, scale, hits = np.array([1], np.int32), np.ones(1, np.float32), unwritten(1, dtype=np.int32)
    machine.run(launch.softmax_cross_entropy(3, 1), logits, one, one, scale, dlogits, losses, hits, np.int32(1))
    assert losses == 2000 and (dlogits == [[1, -1, 0]]).all() and hits == 0
    weight, dx = np.eye(3, dtype=np.float32), unwritten(1, 3)
    results = again, losses, hits, dlogits, dx = (unwritten(1, 3), unwritten(1), hits, unwritten(1, 3), unwritten(1, 3))
    machine.run(head(3, 3, 1), logits, weight, np.zeros(3, np.float32), one, one, scale, *results, np.int32(1))
    np.testing.assert_array_equal(again, logits)
    assert losses == 2000 and (dlogits == [[1, -1, 0]]).all() and (dx == dlogits).all() and hits == 0


NOT_FINITE = np.array([[0, 1, 2], [1, 0, 2], [0, 0, 0], [2, 0, 1], [1, 1, 1], [3, 0, 0]], np.float32)
NOT_FINITE[[0, 1, 2, 2, 2, 3, 4, 4, 4, 5], [0, 1, 0, 1, 2, 0, 0, 1, 2, 1]] = [np.nan] * 5 + [np.inf] + [-np.inf] * 4


@pytest.mark.parametrize("label", range(3))
@pytest.mark.parametrize("by_head", [False, True])
def test_what_is_not_finite_is_never_right(machine, label, by_head):
    """As layers/loss.py counts: of these rows only the last one says a class."""
    one, scale, zero = np.ones(1, np.int32), np.ones(1, np.float32), np.zeros((1, 1), np.float32)
    right = 0
    for logits in NOT_FINITE:
        again, losses, hits, dlogits = unwritten(1, 3), unwritten(1), unwritten(1, dtype=np.int32), unwritten(1, 3)
        known = label * one, one, scale
        if by_head:
            results = again, losses, hits, dlogits, dlogits, np.int32(1)
            machine.run(head(1, 3, 1, False), zero, np.zeros((1, 3), np.float32), logits, *known, *results)
        else:
            how = launch.softmax_cross_entropy(3, 1)
            machine.run(how, logits[None], *known, dlogits, losses, hits, np.int32(1))
        loss, correct = unwritten(1), unwritten(1, dtype=np.int32)
        epoch = np.zeros(1, np.float32), np.zeros(1, np.int32), np.zeros(1, np.int32)
        machine.run(launch.softmax_cross_entropy_sum(3, 1), losses, hits, loss, correct, *epoch, np.int32(1))
        assert (correct, epoch[1]) == (right_answers(logits[None], label * one), correct)
        right += int(correct[0])
    assert right == (label == 0)


@pytest.mark.parametrize("kind", [None, "float16"])
@pytest.mark.parametrize(
    "N, count, D, O, input_grad",
    [
        (5, 5, 128, 10, True),
        (9, 6, 31, 7, True),
        (4, 3, 700, 32, True),  # the weights in three chunks
        *long((3, 0, 40, 2, True), (1, 1, 1, 1, False), (6, 6, 257, 11, False)),
    ],
)
def test_head(machine, rng, N, count, D, O, input_grad, kind):
    """The layer, the loss and the gradients with factors rounded as on tensor cores, in float64.

    In float16 logits and dx are rounded, too, and the loss is that of the rounded logits.
    """
    mixed = kind == "float16"
    x, weight, bias = normal(rng, N, D), normal(rng, D, O), normal(rng, O)
    x[N // 2] = 0
    bias[:: O - 1 or 1] = bias.max() + 1  # of an image of zeros, the first and the last class are the largest
    labels = rng.integers(O, size=N).astype(np.int32)
    labels[N // 2] = 0 if N % 2 else O - 1
    x_r, weight_r = (rounded(array, kind).astype(float) for array in (x, weight))
    logits_expected = references.dense(x_r, weight_r, bias)
    logits, dlogits, losses, dx = unwritten(N, O), unwritten(N, O), unwritten(N), unwritten(N, D)
    hits, counts, scale = unwritten(N, dtype=np.int32), np.array([count], np.int32), np.array([1024], np.float32)
    results = logits, losses, hits, dlogits, dx if input_grad else dlogits
    how = head(D, O, N, input_grad, kind)
    machine.run(how, x, weight, bias, labels, counts, scale, *results, np.int32(N))
    close(logits, logits_expected, 2.0**-11 if mixed else TOLERANCE)
    if mixed:
        np.testing.assert_array_equal(logits, rounded(logits, kind))
        logits_expected = logits.astype(float)
    loss_expected, d = references.cross_entropy(logits_expected[:count], labels[:count])
    dlogits_expected = np.concatenate([1024 * d, np.zeros((N - count, O))])
    close(dlogits, dlogits_expected, 1e-5 * max(1, np.abs(logits_expected).max()))
    close(losses.sum(), loss_expected)
    np.testing.assert_array_equal(hits[:count], logits_expected[:count].argmax(axis=1) == labels[:count])
    assert not losses[count:].any() and not hits[count:].any()
    if input_grad:
        dx_expected, *_ = references.dense_grad(rounded(dlogits, kind).astype(float), x_r, weight_r)
        close(dx, dx_expected, 2.0**-11 if mixed else TOLERANCE)
        assert not mixed or np.array_equal(dx, rounded(dx, kind))


@pytest.mark.parametrize("n", [1, 3, 4, 1027, 300_001])
def test_sgd(machine, rng, n):
    param, grad = normal(rng, n), normal(rng, n)
    rates, step = np.array([9, 0.2 / 256, 9], np.float32), np.array([1], np.int32)
    expected = param - rates[1].astype(float) * grad
    machine.run(launch.sgd(n), param, grad, rates, step, np.int32(n))
    close(param, expected)


@pytest.mark.parametrize("name, states", [("momentum", 1), ("adam", 2)])
@pytest.mark.parametrize("n, taken", [(1, 0), (1027, 1), (300_001, 5000)])
def test_momentum_and_adam(machine, rng, name, states, n, taken):
    """Against the definitions in float64; the second step overflows, and changes nothing."""
    param, grad, *state = normal(rng, n), normal(rng, n), *(np.abs(normal(rng, n)) for _ in range(states))
    before = [array.copy() for array in (param, *state)]
    rates, sizes, step = np.float32([9, 0.2 / 96]), np.float32([256, 96]), np.array([1], np.int32)
    scale, overflow, count = np.float32([1024]), np.array([1], np.int32), np.array([taken], np.int32)
    scaled = grad * np.float32(1024)
    arguments = param, scaled, *state, rates, sizes, step, scale, overflow, *([count] if name == "adam" else [])
    for _ in range(2):
        machine.run(launch.optimizer(name, n), *arguments, np.int32(n))
        machine.run(launch.count_step(), count, overflow)
        if overflow:
            for array, old in zip((param, *state), before, strict=True):
                np.testing.assert_array_equal(array, old)
            overflow[:] = 0
    g, t = grad.astype(float) / 96, taken + 1
    if name == "momentum":
        expected = [0.9 * before[1] + g]
        change = expected[0]
    else:
        expected = [0.9 * before[1] + 0.1 * g, 0.999 * before[2] + 0.001 * g**2]
        change = expected[0] / (1 - 0.9**t) / (np.sqrt(expected[1] / (1 - 0.999**t)) + 1e-8)
    for array, value in zip((param, *state), (before[0] - 0.2 * change, *expected), strict=True):
        close(array, value)
    assert count == t


@pytest.mark.parametrize("dst_start, src_start", [(0, 0), (1, 1), (3, 3), (2, 1), (0, 3)])
@pytest.mark.parametrize("n", [1, 2, 6, 3001])
def test_add_from_anywhere(machine, rng, n, dst_start, src_start):
    dst, src = normal(rng, n + 8)[dst_start:][:n], normal(rng, n + 8)[src_start:][:n]
    expected = dst.astype(float) + src
    machine.run(launch.add(n), dst, src, np.int32(n))
    close(dst, expected)


@pytest.mark.parametrize("P", [784, 6])
def test_gather_walks_through_an_epoch(machine, rng, P):
    images, labels = rng.integers(256, size=(20, P)).astype(np.uint8), rng.integers(10, size=20).astype(np.uint8)
    order = rng.permutation(20).astype(np.int32)[:9]
    starts, n = np.array([0, 4, 8, 9, 9], np.int32), 4  # shards of 4, 4, 1 and 0
    for step, (start, size) in enumerate([(0, 4), (4, 4), (8, 1), (9, 0)]):
        x, y, count = unwritten(n, P), unwritten(n, dtype=np.int32), unwritten(1, dtype=np.int32)
        number = np.array([step], np.int32)
        machine.run(launch.gather(P, n), images, labels, order, starts, number, x, y, count, np.int32(n))
        chosen = order[start : start + size]
        np.testing.assert_array_equal(x[:size], images[chosen] / np.float32(255))
        np.testing.assert_array_equal(y[:size], labels[chosen])
        assert not x[size:].any() and not y[size:].any() and count == size


@pytest.mark.parametrize("max_pool", [False, True])
@pytest.mark.parametrize("H, W, S", [(13, 13, 2), (5, 9, 3), (4, 3, 1), (8, 9, 4)])
def test_pool(machine, rng, H, W, S, max_pool):
    x = np.rint(normal(rng, 3, 2, H, W))
    # pooling is a convolution with a kernel of one pixel and weight 1, pooled
    expected = [
        references.conv_relu_pool(plane[None, None], np.ones((1, 1, 1, 1)), np.zeros(1), S, max_pool, False)
        for plane in x.reshape(6, H, W)
    ]
    y_expected, mask_expected = (np.concatenate(parts)[:, 0] for parts in zip(*expected, strict=True))
    y, mask = unwritten(*y_expected.shape), unwritten(*y_expected.shape, dtype=np.uint16)
    machine.run(launch.pool(H, W, S, max_pool, 6), x, y, mask, np.int32(6))
    close(y, y_expected)
    np.testing.assert_array_equal(mask, mask_expected)
    dy, dx = normal(rng, *y.shape), unwritten(6, H, W)
    machine.run(launch.pool_grad(H, W, S, max_pool, 6), dy, mask, dx, np.int32(6))
    close(dx, references.unpool(dy[:, None], mask[:, None], (H, W), S, max_pool)[:, 0])


@pytest.mark.parametrize("n", [1, 1000, 5000])
def test_relu(machine, rng, n):
    x, dy, y, dx = normal(rng, n), normal(rng, n), unwritten(n), unwritten(n)
    x[0] = 0
    machine.run(launch.relu(n), x, y, np.int32(n))
    machine.run(launch.relu_grad(n), dy, y, dx, np.int32(n))
    np.testing.assert_array_equal(y, np.maximum(x, 0))
    np.testing.assert_array_equal(dx, np.where(x > 0, dy, 0))
