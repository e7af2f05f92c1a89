"""The CUDA kernels: each equals loops in float64 on shapes of all kinds, and rounds where mixed precision rounds.

They run on the CPU through a small shim ("shim"), and on a real GPU through CuPy ("gpu") where there is one. What is
tried is in kernel_tries.py.
"""

from pathlib import Path

import cuda_machines
import kernel_tries as tries
import numpy as np
import pytest
from conftest import REAL_GPU, few, long
from cuda_machines import SOURCES, close, normal, rounded, unwritten
from cuda_on_cpu import SIGNATURE

from d2lmgpu.kernels.cuda import convolution, launch, winograd
from d2lmgpu.kernels.cuda.batch_norm import Norm
from d2lmgpu.kernels.cuda.convolution import ConvolutionShape as Shape
from d2lmgpu.kernels.cuda.dense import head
from d2lmgpu.kernels.cuda.launch import Launch, read, rounding
from d2lmgpu.layers.loss import right_answers

pytestmark = pytest.mark.threads

LENET_1 = Shape(C=1, H=28, W=28, O=20, KH=3, KW=3, S=2, relu=True)
LENET_2 = Shape(C=20, H=13, W=13, O=50, KH=5, KW=5, S=2, relu=True)
NORM = Norm(C=3, H=5, W=6, S=2, relu=True)  # a row is in no square
ODD = Shape(C=2, H=12, W=11, O=5, KH=1, KW=2, S=3, max_pool=True, relu=True)


@pytest.fixture(params=["shim", REAL_GPU])
def machine(request):
    """What runs CUDA kernels: the CPU, and a real GPU."""
    return cuda_machines.OnCPU() if request.param == "shim" else cuda_machines.OnGPU()


def rows(kernel, *shapes):
    return [(kernel, shape) for shape in shapes]


SHORT = [
    *rows(tries.direct_conv, (3, ODD)),
    *rows(tries.frame, (3, 5, 4, 1)),
    *rows(tries.pool, (5, 9, 3, True), (4, 3, 2, False)),
    *rows(tries.dense_layer, (5, 70, 37, True)),
    *rows(tries.head_layer, (9, 6, 31, 7), (3, 0, 31, 7)),
    *rows(tries.softmax, (9, 4, 3), (3, 0, 3), (1100, 1090, 3)),
    *rows(tries.relu, (1,), (5000,)),
    *rows(tries.add, ("float32", 3001, 0, 0), ("float32", 3001, 3, 3), ("float32", 6, 2, 1), ("float32", 1, 0, 3)),
    *rows(tries.add, ("int64", 5001, 1, 1), ("int64", 999, 0, 1), ("int64", 1, 1, 0)),
    *rows(tries.gather, (6,)),
    *rows(tries.sgd, (1,), (3,), (4,), (1027,), (300_001,)),
    *rows(tries.momentum_and_adam, ("momentum", 1027, 1), ("adam", 1, 0), ("adam", 300_001, 5000)),
    *rows(tries.mixed_precision, (1001, np.inf)),
    *rows(tries.normalisation, (NORM, 4, 3), (NORM, 2, 0)),
]
LONG = [
    *rows(
        tries.direct_conv,
        (3, LENET_1),
        (3, Shape(C=2, H=7, W=19, O=1, KH=3, KW=5, S=2, max_pool=True)),
        (1, Shape(C=1, H=37, W=6, O=9, KH=5, KW=1, S=3, relu=True)),
        (2, Shape(C=40, H=5, W=8, O=70, KH=1, KW=1, S=4)),  # more channels than a block takes
        (1, Shape(C=1, H=70, W=68, O=5, KH=3, KW=3, S=2)),  # more outputs than a block takes
        (1, Shape(C=7, H=8, W=9, O=62, KH=5, KW=5, S=2)),  # channels in chunks, and the last is smaller
        (3, Shape(C=1, H=31, W=17, O=35, KH=2, KW=2, S=4)),  # bands and groups of channels with some left over
        (7, Shape(C=3, H=8, W=9, O=6, KH=3, KW=3, S=2, max_pool=True, relu=True)),  # images share a block
        (2, Shape(C=2, H=3, W=45, O=3, KH=3, KW=2)),  # a row in strips of different lengths
        (2, Shape(C=2, H=9, W=11, O=3, KH=7, KW=6)),  # too large for the last version of the gradients
    ),
    *rows(
        tries.winograd_conv,
        (5, Shape(C=3, H=9, W=14, O=7, KH=3, KW=3), (2, 4)),
        (3, Shape(C=5, H=12, W=11, O=6, KH=3, KW=5, S=2, max_pool=True, relu=True), (4, 2)),
        (2, Shape(C=4, H=26, W=29, O=9, KH=3, KW=3, S=2, relu=True), (4, 4)),  # an image for several blocks
        (2, Shape(C=2, H=13, W=10, O=3, KH=3, KW=3, S=3, max_pool=True, relu=True), (6, 6)),
        (1, Shape(C=9, H=31, W=17, O=33, KH=5, KW=5, S=2, relu=True), (4, 4)),  # the last chunk is smaller
        (17, Shape(C=1, H=8, W=8, O=1, KH=5, KW=5, S=4), (4, 4)),  # the last block has fewer images
        (3, Shape(C=7, H=10, W=9, O=30, KH=1, KW=5), (1, 4)),
        (1, Shape(C=30, H=8, W=20, O=60, KH=5, KW=5), (4, 4)),  # dx: channels in rounds, tiles beyond neighbours
        (33, LENET_2._replace(C=9, H=17, W=11, O=27, S=1), (4, 2)),
    ),
    *rows(tries.winograd_black, (5, LENET_2, (4, 4)), (5, LENET_2._replace(C=3), (4, 4))),
    *rows(tries.pool, (13, 13, 2, False), (4, 3, 1, True), (8, 9, 4, False)),
    *rows(tries.dense_layer, (97, 3, 750, True), (97, 750, 3, True), (3, 750, 97, False)),  # larger tiles
    *rows(tries.dense_layer, (97, 70, 1500, True), (97, 1500, 70, True), (70, 1500, 97, True)),  # and several chunks
    *rows(tries.dense_layer, (1, 1, 1, True), (40, 65, 130, True, True), (7, 200, 37, False, True)),
    *rows(tries.dense_layer, (33, 70, 10, True, True)),
    *rows(tries.head_layer, (4, 3, 700, 32), (5, 5, 128, 10, True, True), (6, 6, 257, 11, False, True)),
    *rows(tries.softmax, (1, 1, 1), (8, 7, 77), (9, 4, 10), (9, 4, 10, True)),
    *rows(tries.add, ("float64", 1001, 1, 0)),
    *rows(tries.mixed_precision, (1001, -np.inf), (1001, np.nan)),
    *rows(
        tries.normalisation,
        (Norm(C=2, H=9, W=7, S=2, max_pool=True, relu=True), 4, 3),
        (Norm(C=2, H=9, W=8, S=4, max_pool=True), 5, 5),
        (Norm(C=33, H=2, W=2, S=2, relu=True), 4, 3),  # neighbouring threads are neighbouring channels
        (Norm(C=1), 1, 1),
        (Norm(C=40, relu=True), 5, 5),
        (Norm(C=2, H=40, W=31, S=2), 5, 5),  # several blocks a channel
        (Norm(C=2, H=40, W=30), 5, 5, 300),  # a large mean leaves the variance its digits
    ),
    *rows(tries.track, (1,), (300,)),
]


def name_of(value):
    if callable(value):
        return value.__name__
    flat = [each for part in value for each in (part if isinstance(part, tuple) else [part])]
    return "x".join(str(int(each) if isinstance(each, bool) else each) for each in flat)


def written(machine, step, arguments):
    """Of what a launch writes: (what is expected, what was found)."""
    arrays = [argument.array() if hasattr(argument, "array") else argument for argument in arguments]
    machine.run(step, *arrays)
    return [(a, array) for a, array in zip(arguments, arrays, strict=True) if hasattr(a, "check")]


@pytest.mark.parametrize("kernel, shape", few([*SHORT, *LONG], *SHORT, parts=6), ids=name_of)
def test_as_loops(machine, rng, kernel, shape):
    def run(step, arguments):
        outs = written(machine, step, arguments)
        for expected, found in outs:
            expected.check(found)
        return [found for _, found in outs]

    tries.follow(kernel(rng, *shape), run)


ROUNDING = [*rows(tries.relu, (5000,)), *rows(tries.pool, (4, 3, 2, False)), *rows(tries.gather, (6,))]
ROUNDING += [row for row in LONG if row[0] in (tries.direct_conv, tries.winograd_conv, tries.normalisation)]
ROUNDING += rows(tries.dense_layer, (33, 70, 10, True, True))


@pytest.mark.parametrize("kernel, shape", few(ROUNDING, ROUNDING[0], parts=8), ids=name_of)
def test_what_is_rounded_in_mixed_precision(machine, rng, kernel, shape):
    """With HALF_OUT a kernel writes what it else would, rounded; with HALF_WEIGHT it computes, bit for bit, what it
    else would from rounded weights."""
    rounds = []

    def run(step, arguments):
        outs = written(machine, step, arguments)
        if any(expected.rounds for expected, _ in outs):
            for (expected, plain), (_, found) in zip(outs, written(machine, rounding(step), arguments), strict=True):
                half = rounded(plain) if expected.rounds else plain
                rounds.append(not np.array_equal(half, plain, equal_nan=True))
                np.testing.assert_array_equal(found, half)
        if any(isinstance(argument, tries.Weight) for argument in arguments):
            halves = [rounded(a.values) if isinstance(a, tries.Weight) else a for a in arguments]
            reading = written(machine, rounding(step, out=False, weight=True), arguments)
            for (_, one), (_, other) in zip(reading, written(machine, step, halves), strict=True):
                np.testing.assert_array_equal(one, other)
        return [found for _, found in outs]

    tries.follow(kernel(rng, *shape), run)
    assert any(rounds), "there is nothing to round"


def test_numbers_of_every_size(machine, rng):
    """Small ones to multiples of 2^-24, of two equally near to the even one, and beyond 65519 they are infinite."""
    x = np.concatenate([np.abs(normal(rng, 300)) * np.float32(10.0) ** e for e in (-9, -7, -5, -2, 0, 3)])
    edges = 65504, 65519, 65520, 1e9, 2.0**-25, 3 * 2.0**-25, 1 + 2.0**-11, 1 + 3 * 2.0**-11, np.inf, np.nan, 0
    x = np.float32([*x, *edges])
    y = unwritten(x.size)
    machine.run(rounding(launch.relu("relu", x.size)), x, y, np.int32(x.size))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(y, x.astype(np.float16).astype(np.float32))


def launches_of(kernel, shape):
    """The launches of a row. Nothing is launched, so that what follows is computed from anything."""
    found = []

    def note(step, arguments):
        found.append(step)
        return [out.array() for out in arguments if hasattr(out, "check")]

    with np.errstate(all="ignore"):
        tries.follow(kernel(np.random.default_rng(1), *shape), note)
    return found


@pytest.mark.long
def test_every_kernel_is_tried():
    tried = {step.name for row in [*SHORT, *dict(reversed(LONG)).items()] for step in launches_of(*row)}
    assert tried == {name for file in SOURCES for name, _ in SIGNATURE.findall(read(file))}


def test_no_header_is_needed_that_cupy_does_not_bring():
    """mma.h includes crt/mma.h, which only NVIDIA's compiler packages have."""
    assert not any("#include <" in read(file) for file in SOURCES)


def test_one_instruction_of_tensor_cores_by_the_layout_that_is_written_down(machine, rng, monkeypatch):
    """On a GPU this shows that the shim does what a tensor core does."""
    code = Path(__file__).with_name("one_instruction.cu").read_text("utf-8")
    monkeypatch.setattr(cuda_machines, "read", lambda file: read("mma.cuh") + code)
    a, b, d = normal(rng, 16, 16), normal(rng, 8, 16), unwritten(16, 8)
    machine.run(Launch("mma.cuh", "one_instruction", ("-DHALF_FACTORS=1",), (1,), (32,)), a, b, d)
    close(d, rounded(a).astype(float) @ rounded(b).astype(float).T)


def test_where_winograds_method_is_chosen():
    for width in (1, 2, 4):
        for N in (1, 7, 96, 256, 2048):
            how = winograd.choose(LENET_2._replace(C=20 * width, O=50 * width), N)
            assert (how.MH, how.MW) == (4, 4) and winograd.conv_input_grad(how) is not None
    assert winograd.choose(LENET_2._replace(C=64, O=64, KH=3, KW=3), 256) is not None
    many_parts = {"C": 8, "H": 8, "W": 8, "O": 64, "KH": 3, "KW": 3}  # each of which would transform x anew
    for other in ({"C": 64, "O": 64, "KH": 1, "KW": 1}, {"KH": 9, "KW": 9}, {"C": 2, "O": 3}, many_parts):
        assert winograd.choose(LENET_2._replace(**other), 256) is None
    assert winograd.choose(LENET_1, 256) is None


# What is not finite, or large.


@pytest.mark.parametrize("max_pool", [True, *long(False)])
def test_what_is_not_a_number_shows_in_a_convolutions_output(machine, rng, max_pool):
    conv = ODD._replace(max_pool=max_pool)
    x, weight, bias = normal(rng, 1, 2, 12, 11), normal(rng, 5, 2, 1, 2), normal(rng, 5)
    x[0, 1, 3, 3] = np.nan
    y, mask = np.ones((1, 5, 4, 3), np.float32), np.empty((1, 5, 4, 3), np.uint16)
    machine.run(convolution.conv_forward(conv, 1), x, weight, bias, y, mask, np.int32(1))
    assert np.isnan(y[:, :, 1, :2]).all() and np.isnan(y).sum() == 10


@pytest.mark.parametrize("by_head", [False, *long(True)])
def test_logits_that_are_large_or_not_finite(machine, by_head):
    """Large ones do not overflow; a row that is not finite is never right, as layers/loss.py counts."""
    nan, inf = np.nan, np.inf
    rows = [[1000, -1000, 0], [nan, 1, 2], [1, nan, 2], [nan] * 3, [inf, 0, 1], [-inf] * 3, [3, -inf, 0]]
    all_losses, one, n = [], np.int32([1]), np.int32(1)
    for logits in np.float32(rows):
        for label in range(3):
            known = np.int32([label]), one, np.ones(1, np.float32)
            losses, hits, dlogits = unwritten(1), unwritten(1, dtype=np.int32), unwritten(1, 3)
            if by_head:
                nothing, again = np.zeros((1, 3), np.float32), unwritten(1, 3)
                x = nothing[:, :1].copy()
                machine.run(head(1, 3, 1, False), x, nothing, logits, *known, again, losses, hits, dlogits, x, n)
            else:
                machine.run(launch.softmax_cross_entropy(3, 1), logits[None], *known, dlogits, losses, hits, n)
            all_losses.append(losses[0])
            sums = unwritten(1), unwritten(1, dtype=np.int32), np.zeros(1, np.float32), *np.zeros((2, 1), np.int32)
            machine.run(launch.softmax_cross_entropy_sum(3), losses, hits, *sums, n)
            assert sums[1] == sums[3] == right_answers(logits[None], known[0])
            if len(all_losses) == 2:
                assert dlogits.tolist() == [[1, -1, 0]]
    assert all_losses[:3] == [0, 2000, 1000]
