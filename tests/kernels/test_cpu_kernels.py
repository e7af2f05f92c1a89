"""The fast bodies of the layers on a CPU: the same numbers as the layers, for every network that is made of them."""

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close, few, long, traced_memory
from small_networks import FLATTEN, MAX, NETWORKS, NORM, RELU, make

from d2lmgpu import layers
from d2lmgpu.kernels import cpu
from d2lmgpu.kernels.cpu import convolution as products
from d2lmgpu.kernels.cpu.convolution import Convolution
from d2lmgpu.kernels.cpu.program import MAX_IDLE, Program, borrowed_programs
from d2lmgpu.kernels.cpu.winograd_convolution import WinogradConvolution
from d2lmgpu.layers import winograd
from d2lmgpu.networks import (
    LENET,
    Conv2d,
    Dense,
    init_params,
    logits,
    logits_as_written,
    loss_and_grads,
    loss_and_grads_as_written,
    sequential,
)
from d2lmgpu.networks.plain import backward, forward


def clear_of_zero(X, params, network):
    """Of each image, whether rounding decides no ReLU's slope: in float64 its outputs before them are 0 or not near it.

    Of a million outputs, which "many tiles" has, some are nearer to 0 than float32 rounds, by whichever BLAS.
    """
    clear = np.ones(len(X), bool)
    for i in [i for i, layer in enumerate(network) if layer.forward is layers.relu]:
        given = sum(len(layer.shapes) for layer in network[:i])
        z = logits_as_written(X.astype(float), [p.astype(float) for p in params[:given]], network[:i])
        clear &= ((z == 0) | (np.abs(z) > 1e-5)).reshape(len(X), -1).all(axis=1)
    return clear


SIZES = [(7, np.float32), (33, np.float32), (1, np.float32), (3, np.float64), (71, np.float64)]
CASES = [(name, *size) for name in NETWORKS for size in SIZES]
SHORT = [case for case in CASES if case[1:] == SIZES[0] and case[0] != "many tiles"]
SHORT += [
    (name, *SIZES[-1]) for name in ("dense only", "batch norm and a layer without a fast body")
]  # in unequal parts


@pytest.mark.parametrize("name, N, dtype", few(CASES, *SHORT))
def test_as_the_layers(rng, name, N, dtype):
    """Loss, gradients and, of these images alone, outputs; twice."""
    network = NETWORKS[name]
    X, y, params = make(rng, network, N, dtype)
    if "batch norm" not in name:  # there an image's outputs depend on which others there are
        X, y, params = make(rng, network, 3 * N + 9, dtype)
        chosen = np.flatnonzero(clear_of_zero(X, params, network))[:N]
        assert len(chosen) == N
        X, y = X[chosen], y[chosen]
    exact = [X.astype(float), y, [p.astype(float) for p in params], network]
    expected_loss, expected = loss_and_grads_as_written(*exact)
    grads = [np.full_like(p, np.nan) for p in params]
    loss, same = loss_and_grads(X, y, params, network, out=grads)
    assert same is grads and loss.dtype == dtype
    assert float(loss) == pytest.approx(float(expected_loss), rel=TOLERANCE[X.dtype])
    # A sum over 32 channels in Winograd's way rounds more than the layers do; LeNet's 20 keep to the layers' tolerance.
    tolerance = TOLERANCE[X.dtype] * (1 if network is LENET else 4)
    for grad, value in zip(grads, expected, strict=True):
        assert_close(grad, value, tolerance)
    assert_close(logits(X, params, network), logits_as_written(*exact[:1], *exact[2:]), tolerance)
    again_loss, again = loss_and_grads(X, y, params, network)
    assert again_loss == loss and all(np.array_equal(a, b) for a, b in zip(again, grads, strict=True))


@pytest.mark.parametrize("N, norm", [(40, [NORM]), (130, [NORM]), (130, [])])  # three parts wait at batch norm
def test_layers_before_the_last_forward_and_later_back(rng, N, norm):
    network = sequential((2, 9, 8), Conv2d(4, 3), *norm, RELU, FLATTEN, Dense(6))
    params = init_params(2, init="he", network=network, dtype=float)
    X, dy = rng.random((N, 2, 9, 8)), rng.random((N, 6))
    there = cpu.Pass(network, params, X.shape[1:], X.dtype, N, True, False, None, {})
    grads = [np.empty_like(param) for param in params]
    y, dx = there.forward(X, params), there.backward(params, grads, dy, scale=4)  # of a loss, which is not here
    expected, caches = forward(network, X, params, moments=there.moments)
    expected_dx, values = backward(network, dy, caches, input_grad=True)
    for found, value in zip((y.T, np.moveaxis(dx, -1, 0), *grads), (expected, expected_dx, *values), strict=True):
        np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-11)


def test_both_ways_of_convolution_are_in_use(rng):
    stages = []
    for network in NETWORKS.values():
        X, _, params = make(rng, network, 3)
        stages += Program(network, params, X.shape[1:], X.dtype, 3).stages
    kinds = {None, "average", "max"}
    assert {stage.squares.kind for stage in stages if type(stage) is Convolution} == kinds
    winograd_stages = [stage for stage in stages if type(stage) is WinogradConvolution]
    assert {row.squares.kind for stage in winograd_stages for row in stage.rows_of_tiles} == kinds
    # The gradients of few tiles are added up by one product, those of many by several, with seams between them.
    staircases = {tuple(len(side.staircases) for side in (s.along_h, s.along_w)) for s in winograd_stages}
    assert {(0, 0), (1, 1), (3, 2)} <= staircases
    lenet = Program(LENET, init_params(), (1, 28, 28), np.dtype(np.float32), 4).stages
    assert [type(stage) for stage in lenet[:2]] == [Convolution, WinogradConvolution]


def test_equal_inputs_of_a_max_pooling(rng):
    """Small whole numbers: squares with several largest ones, and all zero after the ReLU."""
    network = sequential((1, 6, 8), Conv2d(2, 1), RELU, MAX, FLATTEN, Dense(3))
    X, y = rng.integers(-1, 2, (20, 1, 6, 8)).astype(float), rng.integers(0, 3, 20)
    params = [np.array([[[[1.0]]], [[[-2.0]]]]), np.array([0.0, -1.0]), rng.normal(0, 1, (24, 3)), np.zeros(3)]
    expected = loss_and_grads_as_written(X, y, params, network)[1]
    for grad, value in zip(loss_and_grads(X, y, params, network)[1], expected, strict=True):
        assert_close(grad, value, 1e-13)


@pytest.mark.parametrize("name", ["LeNet", *long("wider LeNet", "many tiles"), "Winograd and max pooling"])
def test_black_patches_and_biases_of_0(rng, name):
    """There outputs are exactly 0, and so is ReLU's slope. (As float64, in which no other output is as near to 0.)"""
    network = NETWORKS[name]
    X, y, params = make(rng, network, 33, np.float64)
    X = np.maximum(X, 0)
    X[:, :, X.shape[2] * 2 // 5 :] = X[::2, :, :, : X.shape[3] // 2] = 0
    X[7] = 0
    for i, param in enumerate(params):
        if param.ndim == 1:
            param[...] = 0 if i == 1 else np.arange(len(param)) % 3 % 2  # only some of the other layers'
    expected = loss_and_grads_as_written(X, y, params, network)[1]
    for grad, value in zip(loss_and_grads(X, y, params, network)[1], expected, strict=True):
        assert_close(grad, value, TOLERANCE[X.dtype] * 4)


def test_arrays_that_a_kernel_would_read_beyond_are_refused():
    """NumPy would stretch them over the other numbers."""
    network = sequential((2, 5, 5), Conv2d(3, 3), FLATTEN, Dense(4))
    weight, bias, *rest = init_params(network=network)
    for params in ([weight, bias[:1], *rest], [weight, bias, *rest, bias]):
        with pytest.raises(ValueError, match="are not those of the network"):
            Program(network, params, (2, 5, 5), np.float32, 3)
    params = [np.ones(1, np.float32), np.zeros(1, np.float32)]
    with pytest.raises(ValueError, match="batch norm of 1 channels cannot take images of 2"):
        Program([NORM((1, 5, 5))], params, (2, 5, 5), np.float32, 3)


@pytest.mark.parametrize("rounds", [1, *long(4)])
def test_a_step_allocates_nothing(rng, rounds):
    """In the steady state: arrays are made by the first step only, also for a ragged batch and for evaluation."""
    X, y, params = rng.random((80, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, 80), init_params()
    params[3][...] = 0.1  # biases of exactly 0 are the first step's
    grads = [np.empty_like(p) for p in params]

    def steps():
        for N in (80, 33):
            cpu.loss_and_grads(X[:N], y[:N], params, LENET, grads)
        cpu.outputs(X, params, LENET)

    steps()
    held, left = traced_memory(steps, rounds)
    assert held < 200_000  # NumPy's own small buffers, and loops' views; one array of activations is 865 kB
    assert left < 2_000


def test_programs_are_kept_and_forgotten(monkeypatch):
    def borrow(N):
        return borrowed_programs(LENET, init_params(), np.zeros((N, 1, 28, 28), np.float32))

    with borrow(5) as first, borrow(5) as second, borrow(86) as large:
        assert first is not second and [program.n for program in large] == [43]
    with borrow(5) as again:
        assert again is first  # the one given back last
    for N in range(6, 6 + MAX_IDLE):
        with borrow(N):
            pass
    with borrow(5) as new:
        assert new is not first and new is not second
    with pytest.raises(RuntimeError), borrow(5) as spoilt:
        raise RuntimeError
    with borrow(5) as other:
        assert other is not spoilt
    monkeypatch.setattr("d2lmgpu.kernels.cpu.program.MAX_OUTPUTS", 3 * 41_000)  # LeNet's layers put out 40 thousand
    with borrow(86) as small:
        assert [program.n for program in small] == [3]


@pytest.mark.parametrize(("m", "r"), [(4, 5), (6, 3), (2, 3), (1, 8), (8, 1), (3, 2), (5, 4)])
def test_winograd_is_a_correlation(rng, m, r):
    A, G, Bt = winograd.transforms(m, r)
    d, g = rng.normal(0, 1, m + r - 1), rng.normal(0, 1, r)
    np.testing.assert_allclose(A.T @ ((G @ g) * (Bt @ d)), np.correlate(d, g), rtol=1e-11, atol=1e-12)
    assert np.all(A[winograd.ONE] == 1)  # so that a bias added at this point arrives at every output
    with pytest.raises(ValueError, match="9 points"):
        winograd.transforms(m, 10 - m)


def test_winograd_is_chosen_where_it_saves_work():
    assert winograd.choose_tile((5, 5), (8, 8), 2, C=20, O=50) == (4, 4)
    assert winograd.choose_tile((3, 3), (28, 28), 2, C=16, O=16) == (4, 4)
    assert winograd.choose_tile((3, 3), (26, 26), 2, C=1, O=20) is None
    assert winograd.choose_tile((3, 3), (32, 32), 2, C=3, O=32) is None  # too few channels for the transforms
    assert winograd.choose_tile((1, 1), (20, 20), 1, C=64, O=64) is None
    assert winograd.choose_tile((9, 9), (20, 20), 1, C=64, O=64) is None


@pytest.mark.parametrize(("M", "K", "L"), [(20, 10, 21632), (50, 40, 30000), (5, 200, 999), (1, 1, 1)])
def test_products_in_pieces(rng, M, K, L):
    a, b = rng.normal(0, 1, (M, K)), rng.normal(0, 1, (K, L))
    out = np.empty((M, L))
    products.product(a, b, out)()
    np.testing.assert_allclose(out, a @ b, rtol=1e-12, atol=1e-12)
    total = np.empty((M, K))
    products.long_product(out, b)(total)
    np.testing.assert_allclose(total, out @ b.T, rtol=1e-10, atol=1e-8)
