"""BLAS keeps to one thread, or a person is told that it does not."""

import contextlib
import subprocess
import sys

import pytest

import d2lmgpu as d2l
from d2lmgpu.base import blas
from d2lmgpu.devices.cpu import CPU
from d2lmgpu.devices.probes import forget_probes

UNKNOWN = "threadpoolctl does not know the BLAS of NumPy"


def test_a_cpu_device_holds_blas_to_one_thread():
    from threadpoolctl import threadpool_info

    d2l.cpu(0)
    assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}


def test_blas_that_cannot_be_held_is_told_once(monkeypatch, capsys):
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: [{"user_api": "openmp", "num_threads": 2}])
    monkeypatch.setattr(sys, "platform", "linux")
    forget_probes()
    for i in range(2):
        CPU(i).set_up()
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("note: cpu: BLAS on one thread: does not work here") and UNKNOWN in told
    forget_probes()


@pytest.mark.parametrize(
    "in_time, threads, known, why",
    [
        (True, "1", False, None),
        (False, "1", False, "import d2lmgpu before NumPy"),
        (True, "4", False, "set VECLIB_MAXIMUM_THREADS to 1"),
        (False, "4", True, None),
    ],
)
def test_accelerate_keeps_to_one_thread_if_it_was_asked_in_time(monkeypatch, in_time, threads, known, why):
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: [{"user_api": "blas", "num_threads": 1}] * known)
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(blas, "IN_TIME", in_time)
    monkeypatch.setenv("VECLIB_MAXIMUM_THREADS", threads)
    with contextlib.nullcontext() if why is None else pytest.raises(RuntimeError, match=f"{UNKNOWN}; .*{why}"):
        blas.check_blas_threads()


LOOK = """
import os, sys
class Look:
    def find_spec(name, *rest):
        if name == "numpy":
            print(os.environ.get("VECLIB_MAXIMUM_THREADS"))
sys.meta_path.insert(0, Look)
import d2lmgpu
"""


@pytest.mark.parametrize("given, expected", [(None, "1"), ("3", "3")])
def test_accelerate_is_asked_before_numpy_is_imported(given, expected, monkeypatch):
    """What the variable is when NumPy is looked for; a user's own value stays."""
    monkeypatch.delenv("VECLIB_MAXIMUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("VECLIB_MAXIMUM_THREADS", given)
    assert subprocess.check_output([sys.executable, "-c", LOOK], text=True).split() == [expected]
