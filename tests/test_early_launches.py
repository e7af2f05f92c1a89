"""Kernels that are launched before the one that they follow has ended: which, how, and that they wait."""

import ctypes
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import standin_cupy
from cuda_machines import SOURCES
from test_gpu_rules import alone, assert_as, machine, train  # noqa: F401

import d2lmgpu as d2l
from d2lmgpu.kernels.cuda import early, read
from d2lmgpu.networks import LENET

pytestmark = pytest.mark.threads

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
EARLY = [file for file in SOURCES if "void wait_for_previous()" in read(file)]
KERNEL = re.compile(r'extern "C" __global__ void[^{;]*?(\w+)\(([^{;]*)\)\s*\{\s*(.*)')


def test_most_of_a_step_is_launched_early(machine, alone):  # noqa: F811
    """On new cards: elsewhere nothing is."""
    data, expected = alone
    machine(2)
    assert_as(train(data), expected)
    launched = early.driver().launched
    assert {"conv_forward", "dense_forward", "head", "dense_input_grad", "conv_weight_grad_sum", "add"} <= {*launched}
    machine(2, capability=(8, 9))
    assert_as(train(data), expected)
    assert early.driver().launched == [] and not {0, 1} & early.cards


def test_nothing_is_launched_early_outside_of_graphs(machine, alone):  # noqa: F811
    data, expected = alone
    machine(2)
    assert_as(train(data), expected)
    before = len(early.driver().launched)
    d2l.allreduce([d2l.put(np.ones(1001, np.float32), d2l.gpu(i)) for i in range(2)], "ring")
    for i in range(2):
        d2l.gpu(i).synchronize()
    assert len(early.driver().launched) == before > 0


@pytest.mark.parametrize("file", EARLY)
def test_kernels_wait_before_anything_else(file):
    """And do not promise that what they read stays as it is, for the compiler would read it before."""
    kernels = KERNEL.findall(read(file))
    assert len(kernels) == read(file).count("__global__") > 0
    for name, arguments, first in kernels:
        assert first == "wait_for_previous();" and "__restrict__" not in arguments, name


def test_others_do_not_mention_it():
    assert len(EARLY) >= 10
    assert not [file for file in SOURCES if file not in EARLY and "wait_for_previous();" in read(file)]


def test_the_machine_code_waits_before_it_touches_memory(tmp_path):
    """Compiled for the H100 by the real CuPy, for a step of LeNet."""
    pytest.importorskip("cupy_backends.cuda.libs.nvrtc", reason="needs cupy-cuda13x")
    from launches.compiler import compile_cubin
    from launches.record import record_step

    found = [file for folder in sys.path for file in Path(folder).glob("nvidia/*/bin/nvdisasm*")]
    nvdisasm = shutil.which("nvdisasm") or next(map(str, found), None)
    if nvdisasm is None:
        pytest.skip("reading machine code needs nvdisasm (pip install nvidia-cuda-nvdisasm)")

    kernels = {(step.code, step.options, step.name) for step in record_step(LENET, 256)}
    kernels = [kernel for kernel in kernels if "wait_for_previous" in kernel[0]]
    assert len(kernels) >= 10
    for code, options, name in kernels:
        cubin, _ = compile_cubin(code, options, 90)
        (tmp_path / "cubin").write_bytes(cubin + b"\0")  # CuPy strips the last one
        text = subprocess.run([nvdisasm, "-c", tmp_path / "cubin"], capture_output=True, text=True, check=True).stdout
        section = re.split(rf"\.section\s+\.text\.{name}\b", text)[1].split(".section")[0]
        names = re.findall(r"/\*[0-9a-f]{4,}\*/\s+\{?\s*(?:@\S+\s+)?([A-Z0-9]+)", section)
        assert names.count("ACQBULK") == 1 and names.count("PREEXIT") == 1, name
        before = names[: names.index("ACQBULK")]
        assert not {"LDG", "STG", "LDGSTS", "LD", "ST", "ATOM", "ATOMG", "RED", "BRA"} & {*before}, (name, before)


LAYOUT = """#include <cuda.h>
#include <cstddef>
#include <cstdio>
int main()
{
    printf("%zu %zu %zu %zu %zu %zu %zu %zu %d", sizeof(CUlaunchConfig), offsetof(CUlaunchConfig, blockDimX),
           offsetof(CUlaunchConfig, sharedMemBytes), offsetof(CUlaunchConfig, hStream),
           offsetof(CUlaunchConfig, attrs), offsetof(CUlaunchConfig, numAttrs), sizeof(CUlaunchAttribute),
           offsetof(CUlaunchAttribute, value), CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
}
"""


def test_structures_are_those_of_cuda_h(tmp_path):
    """Its sizes and places, as its compiler computes them where it is installed."""
    ours = [ctypes.sizeof(early.Config)]
    ours += [getattr(early.Config, name).offset for name in "block shared_bytes stream attributes count".split()]
    ours += [ctypes.sizeof(early.Attribute), early.Attribute.value.offset, early.PROGRAMMATIC_STREAM_SERIALIZATION]
    assert ours == [56, 12, 24, 32, 40, 48, 72, 8, 6]
    headers = [path for folder in sys.path for path in Path(folder).glob("nvidia/cu13/include/cuda.h")]
    if not headers or not shutil.which("g++"):
        pytest.skip("needs nvidia-cuda-runtime and g++")
    (tmp_path / "layout.cpp").write_text(LAYOUT)
    build = ["g++", f"-I{headers[0].parent}", str(tmp_path / "layout.cpp"), "-o", str(tmp_path / "layout")]
    subprocess.run(build, check=True)
    told = subprocess.run([str(tmp_path / "layout")], check=True, capture_output=True, text=True).stdout
    assert [*map(int, told.split())] == ours


def test_a_driver_that_refuses(machine):  # noqa: F811
    machine(1)
    driver = standin_cupy.Driver()
    driver.cuLaunchKernelEx = lambda *args: 1
    import cupy

    kernel = type("Kernel", (), {"kernel": type("Loaded", (), {"ptr": 5})})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(early, "driver", lambda: driver)
        with pytest.raises(RuntimeError, match="cuLaunchKernelEx: error 1 of CUDA's driver"):
            early.launch_early(kernel, (1,), (256,), (cupy.zeros(3, np.float32), np.int32(3)))
