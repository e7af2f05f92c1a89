"""What runs the CUDA kernels in tests: the CPU through the shim, or a GPU through CuPy. And arrays to try them on."""

from pathlib import Path

import cuda_on_cpu
import numpy as np

from d2lmgpu.kernels import cuda
from d2lmgpu.kernels.cuda.launch import read

SOURCES = sorted(file.name for file in Path(cuda.__file__).parent.glob("*.cu"))

TOLERANCE = 1e-5  # of the largest magnitude


class OnCPU:
    """Runs a launch through the shim; arrays are NumPy arrays and written in place."""

    def run(self, launch, *args):
        module = cuda_on_cpu.RawModule(code=read(launch.file), options=launch.options)
        module.get_function(launch.name)(launch.grid, launch.block, args)


class OnGPU:
    """The same on a real GPU: arrays are copied there and back, and keep their place relative to multiples of 16."""

    def run(self, launch, *args):
        import cupy

        def copy(array):
            offset = array.ctypes.data % 16 // array.itemsize
            buffer = cupy.empty(offset + array.size, array.dtype)
            buffer[offset:].set(array.reshape(-1))
            return buffer[offset:].reshape(array.shape)

        module = cupy.RawModule(code=read(launch.file), options=("-std=c++17", *launch.options))
        on_gpu = {id(arg): copy(arg) for arg in args if isinstance(arg, np.ndarray)}
        module.get_function(launch.name)(launch.grid, launch.block, tuple(on_gpu.get(id(arg), arg) for arg in args))
        for arg in args:
            if id(arg) in on_gpu:
                arg[...] = on_gpu[id(arg)].get()


def normal(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def unwritten(*shape, dtype=np.float32):
    """An array in which an element that no thread writes shows: NaN, or the largest integer."""
    return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max, dtype)


def close(actual, expected, tolerance=TOLERANCE, scale=None):
    scale = np.abs(expected).max(initial=0) if scale is None else scale
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * scale)


def rounded(x, wanted=True):
    """float32 numbers, rounded to float16 if that is wanted."""
    return x.astype(np.float16).astype(np.float32) if wanted else x
