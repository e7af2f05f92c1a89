"""The performance model in benchmarks/: what it counts on kernels whose counts are known, and what a step asks for."""

import collections
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from d2lmgpu.networks import LENET

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import predict_gpu
from gpu_model import arithmetic, multiprocessor, sass, step, warps
from gpu_model.launches import record_step
from gpu_model.recorder import Memory, Node

pytestmark = pytest.mark.threads

LOOP = """
extern "C" __global__ void loop(const float* __restrict__ x, const int* __restrict__ count, float* y, int n)
{
    __shared__ float s[33 * 32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = x[i];
#pragma unroll 1
    for (int k = 0; k < n + count[0]; ++k) {
        s[threadIdx.x * STRIDE] = sum;
        __syncthreads();
        sum = __fmaf_rn(sum, s[threadIdx.x * STRIDE + k % 2], 1.0f);
        __syncthreads();
    }
    if (i < 40) y[i] = sum;
}
"""


@pytest.fixture
def compiled():
    """A function: the kernel of `LOOP`, and its node. Skips the test where the compiler's wheels are missing."""
    for name in ("cupy", "nvidia.cu13"):
        if importlib.util.find_spec(name.split(".")[0]) is None:
            pytest.skip(f"compiling as CuPy does needs {name}")
    if sass.find_nvdisasm() is None:
        pytest.skip("reading machine code needs nvdisasm (pip install nvidia-cuda-nvdisasm)")

    def make(n, count, stride=1, blocks=2):
        arguments = Memory(1 << 16, 4096, 0, None), Memory(1 << 17, 4, 0, np.int32([count]))
        arguments += Memory(1 << 18, 4096, 0, None), np.int32(n)
        options = (f"-DSTRIDE={stride}",)
        node = Node("kernel", "loop", 0, (), LOOP, options, (blocks,), (32,), 0, arguments)
        return sass.kernels(LOOP, ("-std=c++17", *options))["loop"], node

    return make


def follow(kernel, node, block):
    issued, touched = warps.trace(
        kernel, predict_gpu.constant_bank(node), (32, 1, 1), (block, 0, 0), 0, predict_gpu.reader(node)
    )
    counts = collections.Counter(kernel.code[pc].opcode.split(".")[0] for pc in issued)
    return counts, dict(zip(issued, touched, strict=True))


@pytest.mark.parametrize("n, count", [(7, 0), (3, 5), (0, 0)])
def test_a_loop_is_followed_as_often_as_its_arguments_say(compiled, n, count):
    """The bound is an argument and a number in memory: both are read."""
    counts, _ = follow(*compiled(n, count), block=0)
    assert counts["BAR"] == 2 * (n + count)
    assert counts["STS"] == n + count and counts["LDS"] == n + count
    assert counts["FFMA"] == n + count
    assert counts["EXIT"] >= 1


def test_stores_of_lanes_that_are_out_are_not_made(compiled):
    kernel, node = compiled(1, 0)
    stored = []
    for block in (0, 1):
        _, touched = follow(kernel, node, block)
        stored += [what for pc, what in touched.items() if kernel.code[pc].opcode.startswith("STG") and what]
    assert [len(sectors) for _, sectors in stored] == [4, 1]  # 32 floats, and 8
    assert min(stored[0][1]) == (1 << 18) // 32


@pytest.mark.parametrize("stride, wavefronts", [(1, 1), (2, 2), (32, 32), (33, 1)])
def test_bank_conflicts_are_counted(compiled, stride, wavefronts):
    kernel, node = compiled(2, 0, stride)
    _, touched = follow(kernel, node, 0)
    assert {what for pc, what in touched.items() if kernel.code[pc].opcode.startswith("STS")} == {wavefronts}


def test_more_work_takes_longer(compiled):
    seconds = []
    for n, blocks in [(100, 1), (200, 1), (20, 132 * 16), (20, 132 * 32), (20, 132 * 64)]:
        kernel, node = compiled(n, 0, blocks=blocks)
        seconds.append(predict_gpu.count(node, kernel)["seconds"] - step.KERNEL_START)
    assert 1.8 < seconds[1] / seconds[0] < 2.2
    assert seconds[3] > seconds[2]
    assert 1.7 < seconds[4] / seconds[3] < 2.3  # two waves


def test_addition_and_its_carry():
    a, b = np.array([0xFFFFFFFF, 5]), np.array([1, 6])
    total, carry = arithmetic.VALUES["IADD3"]([], a, b, 0)
    assert total.tolist() == [0, 11] and carry.tolist() == [True, False]
    minus_three = 2**32 - 3
    product = arithmetic.VALUES["IMAD"](["WIDE"], np.array([minus_three]), np.array([5]), 0)
    assert product.tolist() == [-15]
    assert arithmetic.VALUES["IMAD"](["HI", "U32"], np.array([minus_three]), np.array([5]), 0).tolist() == [4]


@pytest.mark.parametrize("a", range(0, 256, 37))
def test_tables_of_three_bits(a):
    """LOP3's table 0x96 is exclusive or, 0xe8 the majority."""
    b, c = 0b11001010, 0b01010111
    lop3 = arithmetic.VALUES["LOP3"]
    assert lop3(["LUT"], a, b, c, 0x96)[0] == a ^ b ^ c
    assert lop3(["LUT"], a, b, c, 0xE8)[0] == (a & b) | (a & c) | (b & c)


def test_blocks_that_fit():
    fit = multiprocessor.blocks_resident
    assert fit(78, 0, 455) == 1  # of registers: 15 warps, taken as 16, of 80 x 32
    assert fit(32, 0, 1024) == 2 and fit(32, 0, 1024, arch=75) == 1
    assert fit(16, 47 * 1024, 64) == 4 and fit(16, 47 * 1024, 64, arch=120) == 2
    assert fit(16, 300 * 1024, 64) == 0


def test_nodes_wait_for_each_other_and_share_a_card():
    def row(seconds, after, part=1.0, card=0):
        return {"seconds": seconds, "after": after, "part_of_the_card": part, "card": card}

    us = 1e-6
    alone = [row(10 * us, []), row(10 * us, [0])]
    assert step.schedule(alone) == pytest.approx(20 * us + step.NODE)
    both = [row(10 * us, [], 0.5), row(10 * us, [], 0.5)]
    assert step.schedule(both) == pytest.approx(10 * us)
    full = [row(10 * us, []), row(10 * us, [])]
    assert 19 * us < step.schedule(full) <= 20 * us
    apart = [row(10 * us, [], card=0), row(10 * us, [], card=1)]
    assert step.schedule(apart) == pytest.approx(10 * us)
    across = [row(10 * us, []), row(10 * us, [0], card=1), row(10 * us, [1], card=1)]
    assert step.schedule(across) == pytest.approx(30 * us + step.ACROSS + step.NODE)


@pytest.mark.parametrize("precision, cards", [("float32", 1), ("mixed", 2)])
def test_a_steps_launches_are_those_of_the_package(precision, cards):
    nodes = record_step(LENET, 16, precision, cards)
    names = collections.Counter(node.name for node in nodes if node.kind == "kernel")
    assert names["next_step"] == cards or "next_step" not in names
    assert any(name.startswith("conv") for name in names) and {node.card for node in nodes} == set(range(cards))
    assert all(number < i for i, node in enumerate(nodes) for number in node.after)
    assert sum(node.after == () for node in nodes) <= 2 * cards
    starts = [a.values for node in nodes for a in node.arguments if isinstance(a, Memory) and a.values is not None]
    assert any(np.array_equal(values.reshape(-1)[:2], [0, 16 // cards]) for values in starts)  # of this device's shard
    between = any(node.kind == "copy" for node in nodes)
    far = any(isinstance(a, Memory) and a.card != node.card for node in nodes for a in node.arguments)
    assert (between or far) == (cards > 1)
