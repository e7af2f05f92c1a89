"""Whole networks on the CUDA kernels, kernel by kernel, equal the layers as they are written, in every precision."""

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close, few
from cuda_machines import rounded
from gpus import TINY_NETWORK, assert_near, gpus, make_gpus, oblong  # noqa: F401
from small_networks import ON_GPUS, make

import d2lmgpu as d2l
from d2lmgpu import layers
from d2lmgpu.devices import array_module
from d2lmgpu.kernels import cuda
from d2lmgpu.kernels.cuda import PRECISIONS, SideStreams, has_kernels
from d2lmgpu.kernels.cuda.batch_norm import BatchNorm as NormStage
from d2lmgpu.kernels.cuda.dense import Dense as DenseStage, Head
from d2lmgpu.kernels.cuda.program import Program, borrowed_program
from d2lmgpu.kernels.cuda.stages import Convolution, WinogradConvolution
from d2lmgpu.networks import LENET, half_weights, in_half, init_params, init_statistics, logits, loss_and_grads
from d2lmgpu.networks.losses import CROSS_ENTROPY, SQUARED_ERROR
from d2lmgpu.networks.plain import sums_as_written

pytestmark = pytest.mark.threads


def as_written(X, y, params, network, precision="float32", scale=1.0, loss=CROSS_ENTROPY):
    """The loss and the gradients by the layers in float64, and batch norm's moments."""
    params = [param.astype(float) for param in params]
    if precision == "mixed":
        network, params = in_half(network), half_weights(params)
    grads, moments = [np.zeros_like(param) for param in params], layers.zero_moments(d2l.networks.channels(network))
    loss, _ = sums_as_written(X.astype(float), y, params, network, grads, loss, scale, moments=moments)
    return float(loss), grads


def assert_grads(grads, expected, tolerance, is_near=assert_close):
    """Biases right before batch norm have gradients of rounding alone."""
    largest = max(np.abs(value).max() for value in expected)
    for grad, value in zip(grads, expected, strict=True):
        if np.abs(value).max() > 1e-9 * largest:
            is_near(d2l.to_host(grad), value, tolerance)


CASES = [(name, precision) for name in ON_GPUS for precision in PRECISIONS]
for _name in "layers without a kernel", "batch norm everywhere", "batch norm before ReLU and pooling":
    CASES.remove((_name, "mixed"))  # which has no such layers; after batch norm, some gradients are but rounding


SHORT = [("tiny", "mixed"), *((name, "float32") for name in ("tiny", "Winograd", "padding", "batch norm everywhere"))]


@pytest.mark.parametrize("name, precision", few(CASES, *SHORT, parts=6))
def test_programs_are_the_layers(make_gpus, rng, name, precision):  # noqa: F811
    """With branches to the same bits, and again when everything is there already. In mixed precision sums in float32
    differ from those of `in_half`, and some are rounded the other way."""
    (device,) = make_gpus(1)
    network = ON_GPUS[name]
    X, y, params = make(rng, network, 5)
    scale = {"float32": 1.0, "mixed": 2.0**12}[precision]

    def compute(X, y, *raws):
        results = []
        for branches in (None, SideStreams(device.stream)) if has_kernels(network) else [None]:
            program = Program(network, raws, X.shape[1:], len(X), precision, branches)
            program.use_statistics(program.new_moments())
            program.scale.fill(scale)
            grads = [raw.copy() for raw in raws]
            for _ in range(2):
                program.forward(raws, X, y)
                program.backward(raws, grads)
                if branches:
                    branches.join()
                totals = program.epoch_loss, program.epoch_correct
                results.append([array.get() for array in (program.loss, *grads, program.logits)])
            results[-1] += [array.get() for array in totals]
            if precision == "mixed":
                check_rounding(program)
        return results

    arrays = [d2l.put(array, device).raw for array in (X, y.astype(np.int32), *params)]
    plain, again, *branched = device.submit(compute, *arrays).result()
    for others in ([plain, again], *([again, other] for other in branched[1:])):
        for one, other in zip(*others, strict=False):
            np.testing.assert_array_equal(one, other)
    loss, expected = as_written(X, y, params, network, precision, scale)
    tolerance, is_near = {"float32": (2e-5, assert_close), "mixed": (2e-3, assert_near)}[precision]
    assert float(plain[0][0]) == pytest.approx(loss, rel=tolerance)
    assert_grads(plain[1:-1], expected, tolerance, is_near)


def check_rounding(program):
    """What convolutions read is rounded, and the dx of whatever multiplies; what batch norm reads and writes is not."""

    def is_rounded(array):
        values = array.get()
        return np.array_equal(values, rounded(values))

    for stage in program.stages:
        if isinstance(stage, Convolution):
            assert is_rounded(stage.x)
        if isinstance(stage, (Convolution, DenseStage, Head)) and stage.dx is not None:
            assert is_rounded(stage.dx)
        if isinstance(stage, NormStage):
            assert not is_rounded(stage.x)
            assert stage.dx is None or not is_rounded(stage.dx)
    assert isinstance(program.stages[-1], Head) == is_rounded(program.logits)  # else they are rounded as they are read
    assert isinstance(program.stages[-1], Head) != is_rounded(program.dlogits)


@pytest.mark.parametrize("name", few(ON_GPUS, "tiny", parts=5))
def test_what_users_call(make_gpus, rng, name):  # noqa: F811
    """For several images, one and none: loss, gradients and outputs are the layers', and arrays of their own."""
    (device,) = make_gpus(1)
    network = ON_GPUS[name]
    X, y, params = make(rng, network, 3)
    device_params = d2l.get_params(params, device)
    statistics = [value + rng.random(value.shape).astype(np.float32) for value in init_statistics(network)]
    for n, kind in ((3, CROSS_ENTROPY), (3, SQUARED_ERROR), (1, CROSS_ENTROPY), (0, CROSS_ENTROPY)):
        given = d2l.put(X[:n], device), device_params, network
        loss, grads = loss_and_grads(given[0], d2l.put(y[:n], device), *given[1:], loss=kind, scale=2.0)
        expected_loss, expected = as_written(X[:n], y[:n], params, network, scale=2.0, loss=kind)
        assert loss.shape == () and loss.dtype == np.float32 and loss.raw.base is None
        assert float(loss) == pytest.approx(expected_loss, rel=TOLERANCE[X.dtype])
        assert_grads(grads, expected, 2e-5)
        for fixed in [[], statistics] if statistics and n > 1 else [[]] * (n > 0):
            found = logits(*given, [d2l.put(array, device) for array in fixed])
            assert found.raw.base is None  # no view of memory which the next call writes to
            assert_close(found, logits(X[:n], params, network, fixed), 1e-4)


@pytest.mark.parametrize("name", few([name for name in ON_GPUS if "batch norm" not in name], "tiny", parts=5))
def test_a_part_forward_and_the_rest_at_once(make_gpus, rng, name):  # noqa: F811
    """The first layer goes forward, then all others forward and back, then it goes back, twice: as all layers do."""
    (device,) = make_gpus(1)
    network = ON_GPUS[name]
    X, y, params = make(rng, network, 3)
    _, expected = as_written(X, y, params, network)
    X, y, params = d2l.put(X, device), d2l.put(y, device), d2l.get_params(params, device)

    def compute():
        raws, n = [param.raw for param in params], len(network[0].shapes)
        grads, rest = [raw.copy() for raw in raws], tuple(network[1:])
        first = cuda.Pass(tuple(network[:1]), raws[:n], X.shape[1:], np.float32, 3, False, False, None, {})
        for _ in range(2):
            x = array_module(X.raw).moveaxis(first.forward(X.raw, raws[:n]), -1, 0)
            dx = x.copy()
            sums = cuda.loss_and_grads(x, y.raw, raws[n:], rest, grads[n:], dx=dx)
            whole = cuda.Pass(rest, raws[n:], x.shape[1:], np.float32, 3, True, True, None, {})
            assert whole.forward(x, raws[n:], y.raw).get().tolist() == sums.get().tolist()
            again = whole.backward(raws[n:], [raw.copy() for raw in raws[n:]])
            np.testing.assert_array_equal(again.get(), np.moveaxis(dx.get(), 0, -1))
            if n:  # otherwise a first layer has nothing to do backward
                first.backward(raws[:n], grads[:n], dx)
        return [grad.get() for grad in grads]

    assert_grads(device.submit(compute).result(), expected, 2e-5)


def test_the_last_layers_gradients_are_ready_first(make_gpus, rng):  # noqa: F811
    (device,) = make_gpus(1)
    X, y, params = make(rng, TINY_NETWORK, 3)
    X, y, *raws = (d2l.put(array, device).raw for array in (X, y, *params))
    grads, seen = [d2l.put(param, device).raw for param in params], []
    device.submit(cuda.loss_and_grads, X, y, raws, TINY_NETWORK, grads, seen.append).result()
    assert seen == [4, 2, 2, 0]


def test_winograds_method_is_in_use(make_gpus):  # noqa: F811
    """In every precision: only dense layers are multiplied on tensor cores."""
    (device,) = make_gpus(1)
    params = [param.raw for param in d2l.get_params(init_params(), device)]
    for precision in PRECISIONS:
        program = device.submit(Program, LENET, params, (1, 28, 28), 96, precision).result()
        assert [type(stage) for stage in program.stages[:2]] == [Convolution, WinogradConvolution]
    assert not has_kernels(ON_GPUS["layers without a kernel"][:1])  # a convolution's kernel of 33 × 3


def test_a_program_with_which_work_failed_is_not_used_again(make_gpus):  # noqa: F811
    """Its branches may still be under way, and what it should have written is not there."""
    (device,) = make_gpus(1)
    params = [param.raw for param in d2l.get_params(init_params(network=TINY_NETWORK), device)]
    X = d2l.put(np.zeros((2, 1, 9, 8), np.float32), device).raw

    def compute():
        with pytest.raises(ZeroDivisionError), borrowed_program(TINY_NETWORK, params, X, True) as failed:
            raise ZeroDivisionError
        with borrowed_program(TINY_NETWORK, params, X, True) as program:
            assert program is not failed

    device.submit(compute).result()
