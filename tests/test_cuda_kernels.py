"""The CUDA kernels: each compiles for every architecture at hand, and each equals loops in float64.

They run on the CPU through a small shim ("shim"), and on a real GPU through
CuPy ("gpu") where there is one.
"""

import shutil
import subprocess

import cuda_on_cpu
import numpy as np
import pytest
import references

from d2lmgpu.devices import find_gpus
from d2lmgpu.kernels.cuda import Convolution, launch, read

TOLERANCE = 1e-5  # of the largest magnitude


class OnCPU:
    """Runs a launch through the shim; arrays are NumPy arrays and written in place."""

    def run(self, launch, *args):
        module = cuda_on_cpu.RawModule(code=read(launch.file), options=launch.options)
        module.get_function(launch.name)(launch.grid, launch.block, args)


class OnGPU:
    """The same on a real GPU: arrays are copied there and back."""

    def run(self, launch, *args):
        import cupy

        module = cupy.RawModule(code=read(launch.file), options=("-std=c++17", *launch.options))
        on_gpu = {id(arg): cupy.asarray(arg) for arg in args if isinstance(arg, np.ndarray)}
        module.get_function(launch.name)(launch.grid, launch.block, tuple(on_gpu.get(id(arg), arg) for arg in args))
        for arg in args:
            if id(arg) in on_gpu:
                arg[...] = on_gpu[id(arg)].get()


@pytest.fixture(params=["shim", "gpu"])
def machine(request):
    if request.param == "gpu" and find_gpus()[0] == 0:
        pytest.skip(f"no real GPU: {find_gpus()[1]}")
    return OnCPU() if request.param == "shim" else OnGPU()


def unwritten(*shape, dtype=np.float32):
    """An array in which an element that no thread writes shows: NaN, or the largest integer."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max, dtype)


def close(actual, expected, tolerance=TOLERANCE):
    scale = np.abs(expected).max(initial=0)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


LENET_1 = Convolution(C=1, H=28, W=28, O=20, KH=3, KW=3, S=2, relu=True)
LENET_2 = Convolution(C=20, H=13, W=13, O=50, KH=5, KW=5, S=2, relu=True)
CONVOLUTIONS = [
    (3, LENET_1),
    (2, LENET_2),
    (5, Convolution(C=3, H=9, W=14, O=7, KH=2, KW=3, S=1)),
    (1, Convolution(C=2, H=12, W=11, O=5, KH=1, KW=2, S=3, max_pool=True, relu=True)),
    (3, Convolution(C=2, H=7, W=19, O=1, KH=3, KW=5, S=2, max_pool=True)),
    (1, Convolution(C=1, H=37, W=6, O=9, KH=5, KW=1, S=3, relu=True)),
    (2, Convolution(C=5, H=11, W=10, O=70, KH=1, KW=1, S=4)),
]


def conv_id(value):
    return "x".join(str(int(v)) for v in value) if isinstance(value, Convolution) else f"N{value}"


def normal(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def ladder(make, conv, N, versions):
    """The launches of all versions, with the options of the last, so that one compilation serves all."""
    options = make(conv, N).options
    return [make(conv, N, version)._replace(options=options) for version in range(1, versions + 1)]


def conv_arrays(rng, N, conv):
    """Random arrays and the float64 answers to them."""
    x = normal(rng, N, conv.C, conv.H, conv.W)
    weight, bias = normal(rng, conv.O, conv.C, conv.KH, conv.KW), normal(rng, conv.O)
    y, mask = references.conv_relu_pool(x, weight, bias, conv.S, conv.max_pool, conv.relu)
    dy = normal(rng, *y.shape)
    return x, weight, bias, y, mask, dy


@pytest.mark.parametrize("N, conv", CONVOLUTIONS, ids=conv_id)
def test_conv_forward(machine, rng, N, conv):
    x, weight, bias, y_expected, mask_expected, _ = conv_arrays(rng, N, conv)
    for step in ladder(launch.conv_forward, conv, N, versions=3):
        y, mask = unwritten(*y_expected.shape), unwritten(*y_expected.shape, dtype=np.uint16)
        machine.run(step, x, weight, bias, y, mask, np.int32(N))
        close(y, y_expected)
        np.testing.assert_array_equal(mask, mask_expected)


@pytest.mark.parametrize("N, conv", CONVOLUTIONS, ids=conv_id)
def test_conv_grads(machine, rng, N, conv):
    x, weight, _, _, mask, dy = conv_arrays(rng, N, conv)
    dz = references.unpool(dy, mask, (conv.H - conv.KH + 1, conv.W - conv.KW + 1), conv.S, conv.max_pool)
    dx_expected, dweight_expected, dbias_expected = references.conv2d_grad(dz, x.astype(float), weight.astype(float))
    for step in ladder(launch.conv_input_grad, conv, N, versions=3):
        dx = unwritten(*x.shape)
        machine.run(step, dy, mask, weight, dx, np.int32(N))
        close(dx, dx_expected)
    for step in [
        *ladder(launch.conv_weight_grad, conv, N, versions=2),
        launch.conv_weight_grad(conv, N, multiprocessors=2),  # several images in a group
    ]:
        dweight, dbias = unwritten(*weight.shape), unwritten(conv.O)
        if step.workspace:
            workspace, rows = unwritten(step.workspace), step.workspace // weight.size
            machine.run(step, x, dy, mask, workspace, np.int32(N))
            reduce = launch.conv_weight_grad_reduce(conv, step)
            machine.run(reduce, workspace, dy, mask, dweight, dbias, np.int32(rows), np.int32(N))
        else:
            machine.run(step, x, dy, mask, dweight, dbias, np.int32(N))
        close(dweight, dweight_expected)
        close(dbias, dbias_expected)
