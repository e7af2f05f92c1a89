"""Tries of all CUDA kernels: what each is given, and what it should write, from loops in float64.

A try is a generator of launches with their arguments, (launch, *arguments), where an `Out` stands for each array that
the kernel writes. Kernels that follow one another are one try: `follow` sends it the arrays that the last one wrote.
"""

from typing import NamedTuple

import numpy as np
import references
from cuda_machines import TOLERANCE, close, normal, rounded, unwritten

from d2lmgpu import layers
from d2lmgpu.kernels.cuda import batch_norm, convolution, launch, winograd
from d2lmgpu.kernels.cuda.dense import dense, head
from d2lmgpu.kernels.cuda.launch import ceil_div
from d2lmgpu.layers.batch_norm import batch_norm_fixed
from d2lmgpu.layers.winograd import simple_transforms
from d2lmgpu.networks import AvgPool2d, BatchNorm, MaxPool2d, ReLU
from d2lmgpu.networks.plain import backward, forward

HALF_TOLERANCE = 2.0**-11


class Out(NamedTuple):
    """An array that a kernel writes: ``expected`` within ``tolerance`` of ``scale``, its largest magnitude if None.

    With ``tolerance`` 0 each bit is as expected; None: it is for the next kernel. ``before``: what is there before.
    ``in_place``: it is this very array that is written, wherever it begins. ``rounds``: with HALF_OUT the kernel rounds
    it to float16; ``is_half``: it does so as it is.
    """

    expected: np.ndarray
    tolerance: float | None = TOLERANCE
    dtype: type = np.float32
    scale: float | None = None
    before: np.ndarray | None = None
    in_place: bool = False
    rounds: bool = False
    is_half: bool = False

    def array(self):
        """Something to write to: if there was nothing before, one in which what no thread writes shows."""
        if self.in_place:
            return self.before
        return unwritten(*self.expected.shape, dtype=self.dtype) if self.before is None else self.before.copy()

    def check(self, found):
        assert found.dtype == self.dtype
        if self.is_half:
            np.testing.assert_array_equal(found, rounded(found))
        if self.tolerance == 0:
            np.testing.assert_array_equal(found, self.expected)
        elif self.tolerance is not None:
            close(found, self.expected, self.tolerance, self.scale)


class Weight(NamedTuple):
    """An array that the kernel rounds to float16 as it reads it, with HALF_WEIGHT."""

    values: np.ndarray

    def array(self):
        return self.values


def scratch(shape, dtype=np.float32):
    return Out(np.empty(shape), None, dtype)


def exact(expected, dtype=np.float32, **more):
    return Out(np.asarray(expected), 0, dtype, **more)


def rows_after(images, N):
    """The expected images, and zeros for what else there is room for."""
    return np.concatenate([images, np.zeros((N - len(images), *images.shape[1:]))])


def follow(steps, run):
    """Go through a try: ``run(launch, arguments)`` returns the arrays that the kernel wrote."""
    found = None
    while True:
        try:
            step, *arguments = steps.send(found)
        except StopIteration:
            return
        found = run(step, arguments)


# Convolutions.


def ladder(last, C, H, W, N):
    """The launches of all versions for a result (N, C, H, W), with the options of the last: one compilation serves all.

    The first has a thread for each element, the second a block for each tile of 8 × 8.
    """
    name = last.name.partition("_v")[0]
    tiles = ceil_div(H, 8) * ceil_div(W, 8)
    first = last._replace(name=f"{name}_v1", grid=(ceil_div(N * C * H * W, 256),), block=(256,))
    return [first, last._replace(name=f"{name}_v2", grid=(tiles, C, N), block=(8, 8)), last]


def arrays_of(rng, N, conv, whole=False):
    """Random x, weight, bias and, for its size, dy. ``whole`` numbers, so that several of a square are the largest."""
    x = normal(rng, N, conv.C, conv.H, conv.W)
    weight, bias = normal(rng, conv.O, conv.C, conv.KH, conv.KW), normal(rng, conv.O)
    if whole:
        x, weight, bias = np.rint(x), np.rint(weight), np.rint(bias)
    return x, weight, bias, normal(rng, N, conv.O, conv.PH, conv.PW)


def answers(x, weight, bias, dy, conv):
    """y, the mask, and the gradients of x, weight and bias."""
    y, mask = references.conv_relu_pool(x, weight, bias, conv.S, conv.max_pool, conv.relu)
    dz = references.unpool(dy, mask, (conv.H - conv.KH + 1, conv.W - conv.KW + 1), conv.S, conv.max_pool)
    return y, mask, *references.conv2d_grad(dz, x.astype(float), weight.astype(float))


def direct_conv(rng, N, conv):
    """All versions of convolution, forward and back."""
    x, weight, bias, dy = arrays_of(rng, N, conv, conv.max_pool)
    y, mask, dx, dweight, dbias = answers(x, weight, bias, dy, conv)
    n = np.int32(N)
    for step in ladder(convolution.conv_forward(conv, N), conv.O, conv.PH, conv.PW, N):
        yield step, x, Weight(weight), bias, Out(y, rounds=True), exact(mask, np.uint16), n
    for step in ladder(convolution.conv_input_grad(conv, N), conv.C, conv.H, conv.W, N):
        yield step, dy, mask, Weight(weight), Out(dx, rounds=True), n
    tiles = convolution.conv_weight_grad_tiles(conv, N)
    grid = (ceil_div(conv.O * (conv.C * conv.KH * conv.KW + 1), 256),)
    for step in [
        tiles._replace(name="conv_weight_grad_v1", grid=grid, block=(256,), workspace=0),
        tiles,
        convolution.conv_weight_grad_tiles(conv, N, multiprocessors=2),  # several images in a group
        convolution.conv_weight_grad(conv, N),
        convolution.conv_weight_grad(conv, N, multiprocessors=2),
    ]:
        yield from weight_grad(conv, step, x, dy, mask, Out(dweight), Out(dbias))


def weight_grad(conv, step, x, dy, mask, dweight, dbias):
    if not step.workspace:
        yield step, x, dy, mask, dweight, dbias, np.int32(len(x))
        return
    (workspace,) = yield step, x, dy, mask, scratch((step.workspace,)), np.int32(len(x))
    rows = np.int32(step.workspace // convolution.weight_grad_columns(conv))
    yield convolution.conv_weight_grad_sum(conv, step), workspace, dweight, dbias, rows


def tolerance_of(conv, tile, result):
    """Of the largest magnitude: 8 roundings of float32, grown along both sides, and of a plain sum.

    They grow as the numbers whose rounding a result gets are larger than the products of a plain sum. For random
    factors: the root of the mean square along a path through the method's three matrices, in the result's order.
    """
    both = 1
    for m, r in zip(tile, (conv.KH, conv.KW), strict=True):
        A, G, Bt = simple_transforms(m, r)
        last, *others = {"y": (A, G, Bt), "dx": (Bt, G, A), "dweight": (G, A, Bt)}[result]
        path = np.prod([(matrix**2).sum(1) for matrix in others], axis=0)
        both *= np.sqrt((last**2 * path[:, None]).sum(0).max() / (m if result == "dweight" else r))
    return 8 * 2.0**-24 * (1 + both)


def winograd_conv(rng, N, conv, tile):
    """Winograd's method, forward and back; the gradients of weights in groups of one image and of several."""
    x, weight, bias, dy = arrays_of(rng, N, conv)
    y, mask, dx, dweight, dbias = answers(x, weight, bias, dy, conv)
    how, n = winograd.Winograd(conv, *tile, N), np.int32(N)
    forward, back = winograd.conv_forward(how), winograd.conv_input_grad(how)
    assert (back is None) == (np.prod(how.grid) > winograd.TILES)
    sizes = scratch((forward.workspace,)), scratch((back.workspace if back else 1,))
    u, u_back = yield winograd.weights(how, back is not None), Weight(weight), *sizes
    y = Out(y, tolerance_of(conv, tile, "y"), rounds=True)
    yield forward, x, u, bias, y, exact(mask, np.uint16), n
    if back:
        yield back, dy, mask, u_back, Out(dx, tolerance_of(conv, tile, "dx"), rounds=True), n
    dweight = Out(dweight, tolerance_of(conv, tile, "dweight"))
    for multiprocessors in (132, 4):
        step = winograd.conv_weight_grad(how._replace(multiprocessors=multiprocessors))
        yield from weight_grad(conv, step, x, dy, mask, dweight, Out(dbias))


def winograd_black(rng, N, conv, tile):
    """An output that sees only black is exactly its bias of 0, where rounding would decide on ReLU's slope.

    In tiles that are black in part, in some channels or images only.
    """
    x, weight, bias, _ = arrays_of(rng, N, conv)
    x[:, :, 6:] = x[1, :, :, 7:] = x[2, 1:] = x[3, :-1, 5:] = x[4] = 0
    x[4, -1, 12, 12] = 1  # seen by no output
    bias[::2] = 0
    y, mask = references.conv_relu_pool(x, weight, bias, conv.S, conv.max_pool, conv.relu)
    how = winograd.Winograd(conv, *tile, N)
    forward = winograd.conv_forward(how)
    u, _ = yield winograd.weights(how, False), weight, scratch((forward.workspace,)), scratch((1,))
    y = Out(y, tolerance_of(conv, tile, "y"))
    yield forward, x, u, bias, y, exact(mask, np.uint16), np.int32(N)


def frame(rng, planes, H, W, P):
    x, framed = normal(rng, planes, H, W), np.zeros((planes, H + 2 * P, W + 2 * P), np.float32)
    padded = np.pad(x, ((0, 0), (P, P), (P, P)))
    yield launch.frame("frame", H, W, P, planes), x, exact(padded, before=framed), np.int32(planes)
    yield launch.frame("frame_grad", H, W, P, planes), padded, exact(x), np.int32(planes)


def pool(rng, H, W, S, max_pool, planes=6):
    x = normal(rng, planes, H, W)
    x = np.rint(x) if max_pool else x
    # pooling is a convolution with a kernel of one pixel and weight 1, pooled
    one, zero = np.ones((1, 1, 1, 1)), np.zeros(1)
    y, mask = (part[:, 0] for part in references.conv_relu_pool(x[:, None], one, zero, S, max_pool, False))
    sizes, n = (H, W, S, max_pool, planes), np.int32(planes)
    yield launch.pool("pool", *sizes), x, Out(y, rounds=True), exact(mask, np.uint16), n
    dy = normal(rng, *y.shape)
    dx = references.unpool(dy[:, None], mask[:, None], (H, W), S, max_pool)[:, 0]
    yield launch.pool("pool_grad", *sizes), dy, mask, Out(dx), n


# Dense layers and the loss.


def dense_layer(rng, N, D, O, relu, mixed=False):
    """If ``mixed``, the factors are rounded, as on tensor cores."""
    x, weight, bias, dy = normal(rng, N, D), normal(rng, D, O), normal(rng, O), normal(rng, N, O)
    x_r, weight_r, dy_r = (rounded(array, mixed).astype(float) for array in (x, weight, dy))
    z = references.dense(x_r, weight_r, bias)
    how, n = dense(D, O, N, relu, mixed), np.int32(N)
    versions = [how.forward]
    if not mixed:
        versions.append(how.forward._replace(name="dense_forward_v1", grid=(ceil_div(N * O, 256),)))
    for step in versions:
        (y,) = yield step, x, weight, bias, Out(np.where(z > 0, z, 0) if relu else z), n
    dz = np.where(y > 0, dy_r, 0) if relu else dy_r
    dx, dweight, dbias = references.dense_grad(dz, x_r, weight_r)
    yield how.input_grad, dy, y, weight, Out(dx, rounds=mixed), n
    yield how.weight_grad, x, dy, y, Out(dweight), Out(dbias), n


def head_layer(rng, N, count, D, O, input_grad=True, mixed=False):
    """The last layer, the loss and the gradients. In float16 logits and dx are rounded, too, and the loss is of these.

    Of one image two logits are the largest: the first is the answer.
    """
    tolerance = HALF_TOLERANCE if mixed else TOLERANCE
    x, weight, bias = normal(rng, N, D), normal(rng, D, O), normal(rng, O)
    x[N // 2] = 0
    bias[:: O - 1 or 1] = bias.max() + 1
    labels = rng.integers(O, size=N).astype(np.int32)
    labels[N // 2] = 0 if N % 2 else O - 1
    x_r, weight_r = (rounded(array, mixed).astype(float) for array in (x, weight))
    logits = references.dense(x_r, weight_r, bias)
    logits = rounded(logits, mixed).astype(float)
    loss, d = references.cross_entropy(logits[:count], labels[:count])
    d = rows_after(1024 * d, N)
    dx, *_ = references.dense_grad(rounded(d, mixed).astype(float), x_r, weight_r)
    losses = [references.cross_entropy(logits[i : i + 1], labels[i : i + 1])[0] for i in range(count)]
    hits = rows_after(logits[:count].argmax(axis=1) == labels[:count], N)
    largest = max(1, np.abs(logits).max())
    outs = [
        Out(logits, tolerance, is_half=mixed),
        Out(rows_after(np.array(losses), N), 2 * tolerance if mixed else TOLERANCE),
        exact(hits, np.int32),
        Out(d, 2 * tolerance if mixed else TOLERANCE * largest),
        Out(dx, 2 * tolerance, is_half=mixed) if input_grad else scratch((1,)),
    ]
    arguments = x, weight, bias, labels, np.int32([count]), np.float32([1024]), *outs, np.int32(N)
    yield head(D, O, N, input_grad, mixed), *arguments


def softmax(rng, N, count, classes, mixed=False):
    """The loss alone; a second kernel sums it, and counts the step. In float16 the loss is that of rounded logits."""
    logits = 5 * normal(rng, N, classes)
    logits[N // 2, [0, -1]] = logits[N // 2].max() + 1
    labels = rng.integers(classes, size=N).astype(np.int32)
    labels[N // 2] = 0 if N % 2 else classes - 1
    counted = rounded(logits, mixed)[:count].astype(float), labels[:count]
    loss, d = references.cross_entropy(*counted)
    right = (counted[0].argmax(axis=1) == counted[1]).sum()
    step, given = launch.softmax_cross_entropy(classes, N), (np.int32([count]), np.float32([1024]))
    step = launch.rounding(step, out=mixed)
    d = Out(rows_after(1024 * d, N), HALF_TOLERANCE if mixed else TOLERANCE, is_half=mixed)
    outs = d, scratch((N,)), scratch((N,), np.int32)
    _, losses, hits = yield step, logits, labels, *given, *outs, np.int32(N)
    sums = Out(np.array([loss])), exact([right], np.int32)
    epoch = Out(1000 + sums[0].expected, before=np.float32([1000])), exact([right + 7], np.int32, before=np.int32([7]))
    steps = exact([6], np.int32, before=np.int32([5]))
    yield launch.softmax_cross_entropy_sum(classes), losses, hits, *sums, *epoch, steps, np.int32(N)


# What goes through all numbers.


def relu(rng, n):
    x, dy = normal(rng, n), normal(rng, n)
    x[0] = 0
    yield launch.relu("relu", n), x, exact(np.maximum(x, 0), rounds=True), np.int32(n)
    yield launch.relu("relu_grad", n), dy, x, exact(np.where(x > 0, dy, 0)), np.int32(n)


def add(rng, dtype, n, dst_start, src_start):
    """From anywhere to anywhere. Integers keep all their bits."""
    dst, src = rng.integers(-(2**62), 2**62, (2, n + 8)) if dtype == "int64" else rng.normal(size=(2, n + 8))
    dst, src = (array.astype(dtype)[start:][:n] for array, start in ((dst, dst_start), (src, src_start)))
    expected = dst + src if dtype == "int64" else dst.astype(float) + src
    tolerance = {"float32": TOLERANCE, "float64": 1e-15, "int64": 0}[dtype]
    target = Out(expected, tolerance, dst.dtype, before=dst, in_place=True)
    yield launch.add(n, dtype), target, src, np.int32(n)


def gather(rng, P):
    """Shards of 4, 4, 1 and 0 images in the steps of an epoch."""
    images, labels = rng.integers(256, size=(20, P)).astype(np.uint8), rng.integers(10, size=20).astype(np.uint8)
    order, n = rng.permutation(20).astype(np.int32)[:9], 4
    starts = np.int32([0, 4, 8, 9, 9])
    for step, (start, size) in enumerate([(0, 4), (4, 4), (8, 1), (9, 0)]):
        chosen = order[start : start + size]
        x, y = rows_after(images[chosen] / np.float32(255), n), rows_after(labels[chosen], n)
        outs = exact(x, rounds=True), exact(y, np.int32), exact([size], np.int32)
        yield launch.gather(P, n), images, labels, order, starts, np.int32([step]), *outs, np.int32(n)


def sgd(rng, n):
    param, grad = normal(rng, n), normal(rng, n)
    rates = np.float32([9, 0.2 / 256, 9])
    after = Out(param - rates[1].astype(float) * grad, before=param)
    yield launch.sgd(n), after, grad, rates, np.int32([1]), np.int32(n)


def momentum_and_adam(rng, name, n, taken):
    """By their definitions; a step that overflows changes nothing."""
    param, grad = normal(rng, n), normal(rng, n)
    before = [param, *(np.abs(normal(rng, n)) for _ in range({"momentum": 1, "adam": 2}[name]))]
    g, t = grad.astype(float) / 96, taken + 1
    if name == "momentum":
        states = [0.9 * before[1] + g]
        change = states[0]
    else:
        states = [0.9 * before[1] + 0.1 * g, 0.999 * before[2] + 0.001 * g**2]
        change = states[0] / (1 - 0.9**t) / (np.sqrt(states[1] / (1 - 0.999**t)) + 1e-8)
    expected = [param - 0.2 * change, *states]
    given = np.float32([9, 0.2 / 96]), np.float32([256, 96]), np.int32([1]), np.float32([1024])
    count = [np.int32([taken])] * (name == "adam")
    for overflow in np.int32([[1], [0]]):
        outs = [exact(old, before=old) for old in before]
        if not overflow:
            outs = [Out(new, before=old) for old, new in zip(before, expected, strict=True)]
        scaled = grad * np.float32(1024)
        yield launch.optimizer(name, n), outs[0], scaled, *outs[1:], *given, overflow, *count, np.int32(n)
        counted = exact([taken + (not overflow[0])], np.int32, before=np.int32([taken]))
        yield launch.count_step(), counted, overflow


def mixed_precision(rng, n, bad):
    """A step with an overflow is skipped. The scale is doubled after two good steps, and halved after a bad one."""

    def kernel(name, *arguments):
        return launch.mixed_precision(name, n, interval=2), *arguments

    count, param, grad = np.int32(n), normal(rng, n), normal(rng, n)
    rates, step = np.float32([0.5]), np.zeros(1, np.int32)
    scale, good = np.float32([1024]), np.zeros(1, np.int32)
    for is_bad, next_scale, next_good in [(0, 1024, 1), (0, 2048, 0), (0, 2048, 1), (1, 1024, 0), (0, 1024, 1)]:
        scaled = grad * scale[0]
        scaled[-1] = bad if is_bad else scaled[-1]
        seen = exact([is_bad], np.int32, before=np.int32([0]))
        (overflow,) = yield kernel("check_finite", scaled, seen, count)
        expected = Out(param if is_bad else param - 0.5 * grad.astype(float), before=param)
        (param,) = yield kernel("scaled_sgd", expected, scaled, rates, step, scale, overflow, count)
        states = [([next_scale], scale), ([0], overflow), ([next_good], good)]
        outs = [exact(after, before.dtype, before=before) for after, before in states]
        scale, _, good = yield kernel("update_scale", *outs)


# Batch norm.


def normalisation(rng, norm, N, count, mean=3):
    """Over the first ``count`` of the images, as the layers do; what is beyond counts for nothing."""
    shape = (norm.C,) if norm.H == norm.W == 1 else (norm.C, norm.H, norm.W)
    pool = MaxPool2d if norm.max_pool else AvgPool2d
    made = [recipe(shape) for recipe in [ReLU()] * norm.relu + [pool(norm.S)] * (norm.S > 1)]
    network = [BatchNorm()(shape), *made]
    x, weight, bias = mean + 2 * normal(rng, N, *shape), normal(rng, norm.C), normal(rng, norm.C)
    params, moments = [weight.astype(float), bias.astype(float)], [np.zeros((3, norm.C))]
    y, caches = forward(network, x[:count].astype(float), params, moments=moments)
    dy = normal(rng, N, *y.shape[1:])
    dy[count:] = 0
    dx, (dweight, dbias) = backward(network, dy[:count].astype(float), caches, input_grad=True)
    n, examples = np.int32(N), np.int32([count])

    step = batch_norm.over_images("moments", norm, N)
    (workspace,) = yield step, x, examples, scratch((step.workspace,), np.float64), n
    parts, expected = np.int32(step.grid[0]), Out(moments[0], 1e-6, np.float64)
    step = batch_norm.over_channels("moments_sum", norm)
    (moments,) = yield step, workspace, examples, expected, parts, n
    outs = Out(rows_after(y, N), rounds=True), scratch(dy.shape, np.uint16)
    step = batch_norm.over_images("normalise", norm, N)
    _, mask = yield step, x, weight, bias, moments, examples, *outs, n

    step = batch_norm.over_images("gradient_sums", norm, N)
    (workspace,) = yield step, x, dy, mask, moments, examples, scratch((step.workspace,), np.float64), n
    largest = np.abs(dy).sum() / norm.C + 1e-30
    outs, parts = (Out(dweight, scale=largest), Out(dbias, scale=largest)), np.int32(step.grid[0])
    step = batch_norm.over_channels("gradient_sums_sum", norm)
    sums, *_ = yield step, workspace, moments, scratch((2, norm.C), np.float64), *outs, parts
    factor = 1 / np.sqrt(x.std(axis=(0, *range(2, x.ndim))) ** 2 + 1e-5)
    largest = np.abs(factor * weight).max() * (1 + np.abs(dy).max())
    dx = Out(rows_after(dx, N), scale=largest)
    yield batch_norm.over_images("input_grad", norm, N), x, dy, mask, weight, moments, sums, examples, dx, n

    mean, variance = normal(rng, norm.C), 1 + rng.random(norm.C).astype(np.float32)
    given = x[:count].astype(float), *params, mean.astype(float), variance.astype(float)
    y, _ = forward(made, batch_norm_fixed(*given), [])
    outs = Out(rows_after(y, N), rounds=True), scratch(dy.shape, np.uint16)
    yield batch_norm.over_images("normalise_fixed", norm, N), x, weight, bias, mean, variance, examples, *outs, n


def track(rng, C):
    mean, variance = normal(rng, C), rng.random(C).astype(np.float32)
    for n in (5, 1, 0):
        moments = layers.batch_moments(normal(rng, n, C).astype(float))
        expected = mean.copy(), variance.copy()
        layers.track_statistics(*expected, moments)
        outs = Out(expected[0], before=mean), Out(expected[1], before=variance)
        mean, variance = yield batch_norm.track(C), moments, *outs
