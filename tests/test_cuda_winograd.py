"""Winograd's method on GPUs: against loops in float64, for every kind of tile and shape. See test_cuda_kernels.py."""

import numpy as np
import pytest
import references
from conftest import few, long
from cuda_machines import close, normal, unwritten
from test_cuda_kernels import LENET_1, LENET_2, conv_id

from d2lmgpu.kernels.cuda import Convolution, convolution, winograd
from d2lmgpu.kernels.cuda.winograd import Winograd
from d2lmgpu.layers.winograd import simple_transforms

pytestmark = pytest.mark.threads

CASES = [  # images, convolution, outputs of a tile
    (3, LENET_2, (4, 4)),
    (5, Convolution(C=3, H=9, W=14, O=7, KH=3, KW=3), (2, 4)),
    (3, Convolution(C=5, H=12, W=11, O=6, KH=3, KW=5, S=2, max_pool=True, relu=True), (4, 2)),
    (2, Convolution(C=4, H=26, W=29, O=9, KH=3, KW=3, S=2, relu=True), (4, 4)),  # an image for several blocks
    (2, Convolution(C=2, H=13, W=10, O=3, KH=3, KW=3, S=3, max_pool=True, relu=True), (6, 6)),
    (
        1,
        Convolution(C=9, H=31, W=17, O=33, KH=5, KW=5, S=2, relu=True),
        (4, 4),
    ),  # the last chunk of channels is smaller
    (17, Convolution(C=1, H=8, W=8, O=1, KH=5, KW=5, S=4), (4, 4)),  # the last block has fewer images
    (3, Convolution(C=7, H=10, W=9, O=30, KH=1, KW=5), (1, 4)),
    (2, Convolution(C=3, H=9, W=9, O=5, KH=5, KW=1, relu=True), (2, 1)),
    (33, Convolution(C=2, H=6, W=6, O=5, KH=3, KW=3), (2, 2)),
    (1, Convolution(C=30, H=8, W=20, O=60, KH=5, KW=5), (4, 4)),  # dx: channels in rounds, tiles beyond both neighbours
]


def growth(m, r, transposed):
    """How many times larger the numbers are whose rounding an output gets, than the products of a plain sum.

    For random factors: the root of the mean square along a path through the three matrices, against √r products.
    """
    A, G, Bt = simple_transforms(m, r)
    first, last = (A, Bt) if transposed else (Bt, A)
    return np.sqrt((last**2 * ((G**2).sum(1) * (first**2).sum(1))[:, None]).sum(0).max() / r)


def tolerance(conv, tile, transposed=False):
    """Of the largest magnitude: 8 roundings of float32, grown along both sides, and of a plain sum."""
    both = growth(tile[0], conv.KH, transposed) * growth(tile[1], conv.KW, transposed)
    return 8 * 2.0**-24 * (1 + both)


def forward(machine, how, x, weight, bias, input_grad=True):
    """y, mask, and what the gradient of the input needs."""
    launch, back = winograd.conv_forward(how), winograd.conv_input_grad(how) if input_grad else None
    u = unwritten(launch.workspace)
    u_back = unwritten(back.workspace) if back else u
    machine.run(winograd.weights(how, back is not None), weight, u, u_back)
    shape = len(x), how.conv.O, how.conv.PH, how.conv.PW
    y, mask = unwritten(*shape), unwritten(*shape, dtype=np.uint16)
    machine.run(launch, x, u, bias, y, mask, np.int32(len(x)))
    return y, mask, u_back


def arrays(rng, N, conv):
    x = normal(rng, N, conv.C, conv.H, conv.W)
    return x, normal(rng, conv.O, conv.C, conv.KH, conv.KW), normal(rng, conv.O)


def weight_grad(machine, how, x, dy, mask):
    """dweight and dbias."""
    conv, launch, N = how.conv, winograd.conv_weight_grad(how), np.int32(len(x))
    workspace, rows = unwritten(launch.workspace), np.int32(convolution.conv_weight_grad_rows(conv, launch))
    machine.run(launch, x, dy, mask, workspace, N)
    dweight, dbias = unwritten(conv.O, conv.C, conv.KH, conv.KW), unwritten(conv.O)
    machine.run(convolution.conv_weight_grad_sum(conv, launch), workspace, dweight, dbias, rows)
    return dweight, dbias


def tolerance_of_weights(conv, tile):
    """As `tolerance`: here G comes last, and a plain sum has as many products as a tile has outputs."""
    both = 1
    for m, r in zip(tile, (conv.KH, conv.KW), strict=True):
        A, G, Bt = simple_transforms(m, r)
        both *= np.sqrt((G**2 * ((A**2).sum(1) * (Bt**2).sum(1))[:, None]).sum(0).max() / m)
    return 8 * 2.0**-24 * (1 + both)


@pytest.mark.parametrize("N, conv, tile", few(CASES, CASES[0]), ids=conv_id)
def test_as_loops(machine, rng, N, conv, tile):
    x, weight, bias = arrays(rng, N, conv)
    y_expected, mask_expected = references.conv_relu_pool(x, weight, bias, conv.S, conv.max_pool, conv.relu)
    how = Winograd(conv, *tile, N)
    y, mask, u_back = forward(machine, how, x, weight, bias)
    close(y, y_expected, tolerance(conv, tile))
    np.testing.assert_array_equal(mask, mask_expected)

    dy = normal(rng, *y.shape)
    dz = references.unpool(dy, mask, (conv.H - conv.KH + 1, conv.W - conv.KW + 1), conv.S, conv.max_pool)
    dx_expected, *expected = references.conv2d_grad(dz, x.astype(float), weight.astype(float))
    first, second = (weight_grad(machine, how, x, dy, mask) for _ in range(2))
    close(first[0], expected[0], tolerance_of_weights(conv, tile))
    close(first[1], expected[1])
    assert [grad.tobytes() for grad in first] == [grad.tobytes() for grad in second]

    launch = winograd.conv_input_grad(how)
    if np.prod(how.grid) > winograd.TILES:
        assert launch is None
        return
    results = []
    for _ in range(2):
        dx = unwritten(*x.shape)
        machine.run(launch, dy, mask, u_back, dx, np.int32(N))
        close(dx, dx_expected, tolerance(conv, tile, transposed=True))
        results.append(dx.tobytes())
    assert results[0] == results[1]


@pytest.mark.parametrize("N", [7, *long(1, 33)])
@pytest.mark.parametrize("changes, tile", [({}, (4, 4)), ({"C": 9, "H": 17, "W": 11, "O": 27, "S": 1}, (4, 2))])
def test_gradients_of_weights_of_any_number_of_images(machine, rng, N, changes, tile):
    """Groups of one image and of several, parts of channels that are not full, tiles beyond the edge."""
    conv = LENET_2._replace(**changes)
    x, dy = normal(rng, N, conv.C, conv.H, conv.W), normal(rng, N, conv.O, conv.PH, conv.PW)
    mask = rng.integers(2**conv.S**2, size=dy.shape).astype(np.uint16)
    dz = references.unpool(dy, mask, (conv.H - conv.KH + 1, conv.W - conv.KW + 1), conv.S, conv.max_pool)
    _, *expected = references.conv2d_grad(dz, x.astype(float), np.zeros((conv.O, conv.C, conv.KH, conv.KW)))
    for multiprocessors in (132, 4):
        dweight, dbias = weight_grad(machine, Winograd(conv, *tile, N, multiprocessors), x, dy, mask)
        close(dweight, expected[0], tolerance_of_weights(conv, tile))
        close(dbias, expected[1])


def test_without_gradient_of_the_input_nothing_is_written_for_it(machine, rng):
    how = Winograd(LENET_2, 4, 4, 1)
    x, weight, bias = arrays(rng, 1, LENET_2)
    y, _, _ = forward(machine, how, x, weight, bias, input_grad=False)
    close(y, references.conv_relu_pool(x, weight, bias, 2, False, True)[0], tolerance(LENET_2, (4, 4)))


@pytest.mark.parametrize("C", [3, 20])
def test_an_output_that_sees_only_black_is_exactly_its_bias_of_0(machine, rng, C):
    """In tiles that are black in part, in some channels or images only, where rounding would decide on ReLU's slope."""
    conv, N = LENET_2._replace(C=C), 5
    x, weight, bias = arrays(rng, N, conv)
    x[:, :, 6:] = x[1, :, :, 7:] = x[2, 1:] = x[3, :-1, 5:] = x[4] = 0
    x[4, C - 1, 12, 12] = 1  # seen by no output
    bias[::2] = 0
    y, mask, _ = forward(machine, Winograd(conv, 4, 4, N), x, weight, bias)
    y_expected, mask_expected = references.conv_relu_pool(x, weight, bias, 2, False, True)
    np.testing.assert_array_equal(mask, mask_expected)
    close(y, y_expected, tolerance(conv, (4, 4)))


def test_what_is_not_a_number_shows_in_the_output(machine, rng):
    x, weight, bias = arrays(rng, 1, LENET_2)
    x[0, 3, 5, 5] = np.nan
    y, _, _ = forward(machine, Winograd(LENET_2, 4, 4, 1), x, weight, bias)
    assert np.isnan(y[:, :, :3, :3]).all()


def test_where_it_is_chosen():
    for width in (1, 2, 4):
        for N in (1, 7, 96, 256, 2048):
            conv = LENET_2._replace(C=20 * width, O=50 * width)
            how = winograd.choose(conv, N)
            assert (how.MH, how.MW) == (4, 4) and winograd.conv_input_grad(how) is not None
    assert winograd.choose(LENET_2._replace(C=64, O=64, KH=3, KW=3), 256) is not None
    many_parts = {"C": 8, "H": 8, "W": 8, "O": 64, "KH": 3, "KW": 3}  # each of which would transform x anew
    for other in ({"C": 64, "O": 64, "KH": 1, "KW": 1}, {"KH": 9, "KW": 9}, {"C": 2, "O": 3}, many_parts):
        assert winograd.choose(LENET_2._replace(**other), 256) is None
    assert winograd.choose(LENET_1, 256) is None
