"""Devices as test parameters: every test that takes ``device_kind`` or ``devices`` runs on each kind.

"cpu" is always there. "gpu" is a real GPU; where there is none, these tests are left
out, and the summary says so. "standin" runs the GPU path on a stand-in for CuPy with
two cards.

Tests marked ``long`` take longer than their part in what everybody should run is worth. ``pytest --rest`` runs them and
what else the last run did not: continuous integration types ``pytest``, then this. Those marked ``nightly``, exhaustive
ones, are run by ``pytest --all`` alone. Tests marked ``timing`` measure time, and fail where another program has the
cores: they are tried twice. No test that is there to find races is marked so. Where devices have no threads
(D2LMGPU_THREADS=0, and under WebAssembly) tests marked ``threads`` are left out, and what needs stand-ins for cards or
processes is skipped.
"""

import contextlib
import ctypes
import functools
import gc
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import cuda_on_cpu
import numpy as np
import pytest
import standin_cupy
import website
from _pytest.runner import runtestprotocol

import d2lmgpu as d2l
from d2lmgpu.base import packages
from d2lmgpu.data import fashion_mnist
from d2lmgpu.devices import choose, find_gpus
from d2lmgpu.devices.discovery import count_cores
from d2lmgpu.devices.probes import forget_probes
from d2lmgpu.devices.workers import THREADS
from d2lmgpu.layers import exact

for folder in "docs", "benchmarks":  # what makes the website, and ways to train
    sys.path.append(str(Path(__file__).resolve().parents[1] / folder))

site, browser = website.site, website.browser  # fixtures

signal.signal(signal.SIGINT, signal.default_int_handler)  # tests send it; jobs of a shell's `&` begin with it ignored


SHIPPED = Path(__file__).resolve().parents[1] / "data" / "fashion-mnist"


def _once(read):
    """``read(path)``, but a file of the shipped data set is read once: to unpack all takes a quarter of a second."""
    once = functools.cache(read)
    return lambda path: (once if Path(path).parent == SHIPPED else read)(path)


fashion_mnist.read_idx = _once(fashion_mnist.read_idx)

REAL_GPU = pytest.param("gpu", marks=pytest.mark.real_gpu)
"""A fixture's parameter, left out where there is no GPU."""
LEFT_OUT = pytest.StashKey[list]()
CACHED = "d2lmgpu/passed"
TRIED_TWICE = "tried twice"


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="run all tests: the long and the nightly ones, too (an hour)")
    parser.addoption("--rest", action="store_true", help="run what did not pass in the last run: the long tests, too")


def pytest_configure(config):
    if not hasattr(config, "workerinput"):  # not in a process of pytest-xdist, whose reports all come to the first
        config.pluginmanager.register(Passed(config))
        if hasattr(config, "cache"):
            os.environ[cuda_on_cpu.COMPILED] = str(_without_old_files(config.cache.mkdir("cuda_on_cpu")))


def _without_old_files(folder):
    """A folder, from which the files that were made a week ago, or earlier, are removed."""
    for path in folder.glob("*/*"):
        with contextlib.suppress(OSError):  # another run removes it
            if path.stat().st_mtime < time.time() - 7 * 24 * 3600:
                path.unlink()
    return folder


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks
def pytest_cmdline_main(config):
    """A run of all files is shared by processes, if pytest-xdist is there; one of some files is not, unless asked to.

    More than four would want more memory than many a laptop has.
    """
    option = config.option
    is_whole = config.args_source == config.ArgsSource.TESTPATHS and not hasattr(config, "workerinput")
    if is_whole and getattr(option, "numprocesses", 0) is None and not option.usepdb:
        option.numprocesses = min(count_cores(), 4)


@pytest.hookimpl(trylast=True)  # after -k and the like
def pytest_collection_modifyitems(config, items):
    """Deselects what is not to be run here, and keeps for the summary how much of what that is."""
    cards, reason = find_gpus()
    leave_out = {} if cards else {"real_gpu": f"of real GPUs ({reason})"}
    if not config.getoption("all") and not config.getoption("rest"):
        leave_out["long"] = "that take long (pytest --rest runs them)"
    if not config.getoption("all"):
        leave_out["nightly"] = "that look at every case (pytest --all runs them, too)"
    if not THREADS:
        leave_out["threads"] = "about threads, processes, GPUs or clusters"
    config.stash[LEFT_OUT] = []
    if config.getoption("rest"):
        _leave_out_what_passed(config, items)
    for mark, which in leave_out.items():
        left_out = [item for item in items if item.get_closest_marker(mark)]
        if left_out:
            items[:] = [item for item in items if not item.get_closest_marker(mark)]
            config.hook.pytest_deselected(items=left_out)
            config.stash[LEFT_OUT].append(f"left out: {len(left_out)} tests {which}")


def _leave_out_what_passed(config, items):
    """But for tests that do something else where more packages are installed, as they may be since."""
    passed = {*config.cache.get(CACHED, ())}
    left_out, rest = [], []
    for item in items:
        (left_out if item.nodeid in passed and not item.get_closest_marker("packages") else rest).append(item)
    items[:] = rest
    config.hook.pytest_deselected(items=left_out)
    config.stash[LEFT_OUT].append(f"left out: {len(left_out)} tests that passed in the last run")


class Passed:
    """Keeps which tests passed, for ``--rest``, and says which were tried twice."""

    def __init__(self, config):
        self.passed, self.tried_twice, self.config = set(), [], config

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)
            self.tried_twice += [(report.nodeid, why) for name, why in report.user_properties if name == TRIED_TWICE]
        if report.failed:
            self.passed.discard(report.nodeid)

    def pytest_sessionfinish(self):
        if self.passed and hasattr(self.config, "cache"):
            self.config.cache.set(CACHED, sorted(self.passed))

    def pytest_terminal_summary(self, terminalreporter):
        for name, why in self.tried_twice:
            terminalreporter.write_line(f"tried twice: {name} ({why})")


def pytest_runtest_protocol(item, nextitem):
    """A test marked ``timing`` that fails is tried once more."""
    if item.get_closest_marker("timing") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    failed = [report for report in reports if report.failed]
    if failed:
        why = str(failed[0].longrepr).splitlines()[-1]
        item.user_properties.append((TRIED_TWICE, why))
        item._initrequest()  # its fixtures are made anew
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_collection_finish():
    """The garbage collections that tests ask for need not look through thousands of tests."""
    gc.freeze()


def pytest_sessionfinish(session):
    """A process of pytest-xdist tells the first what it left out."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = session.config.stash.get(LEFT_OUT, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left out", [])


def pytest_terminal_summary(terminalreporter, config):
    for line in config.stash.get(LEFT_OUT, ()):
        terminalreporter.write_line(line)


def long(*values):
    """Values for ``parametrize`` that only ``pytest --all`` tries; tuples are values of several arguments."""
    return [pytest.param(*(value if type(value) is tuple else (value,)), marks=pytest.mark.long) for value in values]


def sampled(values, parts):
    """Long values for ``parametrize`` of which only one in ``parts`` is tried, others for each commit.

    All of them are tried with D2LMGPU_SAMPLE=all, and those of a word with D2LMGPU_SAMPLE=word.
    """
    values = list(values)
    word = os.environ.get("D2LMGPU_SAMPLE") or _commit()
    chosen = values if word == "all" else random.Random(word).sample(values, -(-len(values) // parts))
    return long(*chosen)


def _commit():
    try:
        found = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent)
    except OSError:
        return ""
    return found.stdout.strip()


def few(values, *kept, parts=2):
    """The values ``kept`` for ``parametrize``, and of the others those `sampled`, which ``pytest --all`` only tries."""
    values = list(values)
    return [*(v for v in values if v in kept), *sampled([v for v in values if v not in kept], parts)]


LONG_ON_STANDIN = pytest.mark.parametrize("device_kind", ["cpu", *long("standin"), REAL_GPU], indirect=True)
"""For tests that train, which the stand-in does slowly."""


def use_tiny_granules(patch):
    """Of two examples, so that small minibatches have several."""
    patch.setattr(exact, "GRANULE", 2)
    patch.setitem(exact.SUMS, "exact", 2)


def forget_gpus():
    """What their threads still have to do, they do now: later ``import cupy`` may give something else."""
    for key in [key for key in choose._devices if key[0] is choose.GPU]:
        device = choose._devices.pop(key)
        with contextlib.suppress(Exception):
            device.synchronize()
        queues = [device, *filter(None, [vars(device).get("_comm_stream")])]
        queues += filter(None, [vars(queue).get("_staging") for queue in queues])
        for queue in queues:  # whose threads would stay, thousands in a whole run
            queue._workers._count = 0
            queue._workers._in_line.put(queue)
    forget_probes()
    packages._failed.clear()
    sys.modules["d2lmgpu.kernels.cuda.launch"]._thread.__dict__.clear()  # kernels that this thread has compiled


@pytest.fixture(autouse=True, scope="module")
def give_memory_back():
    """Freed memory, which the library asks glibc to keep, goes back after each file: thousands of tests kept 15 GB."""
    yield
    with contextlib.suppress(OSError, TypeError, AttributeError):  # of what is no glibc
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True)
def dismiss_workers():
    """Those of clusters in threads, after each test."""
    yield
    if "clusters_in_threads" in sys.modules:
        sys.modules["clusters_in_threads"].dismiss()


@pytest.fixture
def standin(monkeypatch):
    """A stand-in for CuPy with two cards; CUDA kernels run on the CPU, so only for a few small images."""
    forget_gpus()
    standin_cupy.install(monkeypatch, cards=2)
    yield
    forget_gpus()


@pytest.fixture(params=["cpu", "standin", REAL_GPU])
def device_kind(request, monkeypatch):
    if request.param == "standin":
        request.getfixturevalue("standin")
        monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)  # they would take minutes
        yield "standin"
        return
    yield request.param


@pytest.fixture
def make_devices(device_kind):
    """A function: k devices of this kind."""
    make = d2l.cpu if device_kind == "cpu" else d2l.gpu
    return lambda k: [make(i) for i in range(k)]


@pytest.fixture(scope="module")
def small():
    """600 training and 100 test images."""
    X_train, y_train, X_test, y_test = d2l.load_fashion_mnist()
    return X_train[:600], y_train[:600], X_test[:100], y_test[:100]


@pytest.fixture
def rng():
    return np.random.default_rng(20171031)


def traced_memory(steps, rounds):
    """Bytes of memory that ``rounds`` calls of ``steps`` hold at most, and that they leave, after a first one.

    The least of three times: what other threads of the process allocate meanwhile counts, too.
    """
    tracemalloc.start()
    try:
        steps()
        tries = [_held_and_left(steps, rounds) for _ in range(3)]
    finally:
        tracemalloc.stop()
    return tuple(map(min, zip(*tries, strict=True)))


def _held_and_left(steps, rounds):
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    for _ in range(rounds):
        steps()
    _, peak = tracemalloc.get_traced_memory()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    return peak - before, after - before


def assert_close(actual, expected, tolerance):
    """Within ``tolerance`` of the largest magnitude in ``expected``."""
    actual, expected = d2l.to_host(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    scale = np.abs(expected).max(initial=0)
    error = np.abs(actual - expected).max(initial=0)
    assert error <= tolerance * scale, f"off by {error:.3g}, {error / scale if scale else np.inf:.3g} of the largest"


TOLERANCE = {np.dtype(np.float32): 1e-5, np.dtype(np.float64): 1e-12}
"""Of each array's largest magnitude: some hundred roundings of float32, some thousand of float64."""
