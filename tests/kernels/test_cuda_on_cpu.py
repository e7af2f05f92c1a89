"""The shim that runs CUDA kernels on the CPU: what works, and that it finds each kind of mistake."""

from pathlib import Path

import cuda_on_cpu
import numpy as np
import pytest

pytestmark = pytest.mark.threads

CODE, COPIES = (Path(__file__).with_name(f"with_{what}.cu").read_text("utf-8") for what in ("mistakes", "copies"))


def launched(name, n, size=64):
    """What a kernel makes of 0, 1, 2, ..."""
    kernel = cuda_on_cpu.RawModule(code=CODE, options=("-std=c++17", "-DSIZE=64")).get_function(name)
    x, y = np.arange(2 * size, dtype=np.float32), np.zeros(2 * size, np.float32)
    kernel((2,) if name == "reverse" else (1,), (size,), (x, y, np.int32(n)))
    return y


def test_threads_meet_at_barriers_and_lanes_by_shuffles():
    np.testing.assert_array_equal(launched("reverse", 1).reshape(2, 64), np.arange(128).reshape(2, 64)[:, ::-1])
    sums = np.arange(96).reshape(3, 32).sum(axis=1)
    np.testing.assert_array_equal(launched("warp_sum", 0, 96)[:96], np.repeat(sums, 32))
    assert launched("vector_at", 8)[0] == 11
    assert np.isnan(launched("reverse", 0)).sum() == 64  # what was not written yet is not a number


@pytest.mark.parametrize(
    "name, n, message",
    [
        ("half_a_barrier", 20, "20 of 64 threads"),
        ("two_barriers", 20, "64 of 64 threads"),
        ("beyond", -1, "y: written outside"),
        ("beyond", 128, "y: written outside"),
        ("into_const", 0, "x: const, but written"),
        ("vector_at", 9, "no multiple of its size"),
    ],
)
def test_a_mistake_is_an_error(name, n, message):
    with pytest.raises(cuda_on_cpu.KernelError, match=message):
        launched(name, n)
    assert launched("vector_at", 0)[0] == 3  # the next launch works


def copied(right="", wrong=""):
    """What a kernel finds of x, which it copied asynchronously in two groups, and of other numbers."""
    assert right in COPIES
    x, y = np.arange(128, dtype=np.float32), np.empty((3, 64), np.float32)
    module = cuda_on_cpu.RawModule(code=COPIES.replace(right, wrong, 1))
    module.get_function("copies")((1,), (64,), (x, y))
    return y


WAIT = "wait_for_groups<0>();"


@pytest.mark.long
def test_asynchronous_copies_are_there_after_a_wait_and_a_barrier():
    expected = np.stack([np.arange(64), np.arange(64, 128), np.full(64, 5)])
    expected[1, 3] = 0
    np.testing.assert_array_equal(copied(), expected)


@pytest.mark.long
@pytest.mark.parametrize(
    "right, wrong, expected",
    [
        (WAIT, "wait_for_groups<1>();", [0, 64, 0]),
        ("__syncthreads();  // all is there", "", [32, 32, 0]),  # the copies of other threads
        (WAIT, f"{WAIT} copy(mine, 128, x, true);", [0, 0, 64]),  # over what is read
        (WAIT, f"if (i == 7) x[7] = x[71] = -1; {WAIT}", [1, 1, 0]),  # what is copied
        (f"{WAIT}  // whatever is left", "copy(mine, 0, x, true);", None),
        (f"{WAIT}  // whatever is left", "copy(mine, 0, x, true); end_of_group();", None),
    ],
)
def test_what_an_asynchronous_copy_may_have_changed_or_not_is_not_a_number(right, wrong, expected):
    """And copies for which nobody waits, None here, are an error."""
    if expected is None:
        with pytest.raises(cuda_on_cpu.KernelError, match="copies: .* nobody waits"):
            copied(right, wrong)
    else:
        np.testing.assert_array_equal(np.isnan(copied(right, wrong)).sum(axis=1), expected)
