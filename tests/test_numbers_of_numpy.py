"""Numbers, flags and lists as NumPy and pandas give them are taken as Python's own.

The checks of arguments return Python's own, whatever they are given. In a call that is right, each number, flag and
list is replaced in turn by the same value in another form, and the result must be the same, down to its types and its
text: an ``np.int64(3)`` in it would end in a file, and an ``np.uint8`` would silently count from 0 again after 255.
"""

import functools
import inspect
import re
import sys

import front_doors
import numpy as np
import pytest
from front_doors import DOORS, TINY, make_files, short_training, tiny_params

import d2lmgpu as d2l
from d2lmgpu import collectives, devices, layers, networks, plans
from d2lmgpu.base.arguments import check_flag, check_list, check_names, check_number, check_whole, plain, plain_numbers

try:
    import pandas
except ImportError:  # no dependency of the package
    pandas = None

WHOLE = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
LISTS = [tuple, np.array, *([pandas.Index, pandas.Series] if pandas else [])]


def same(found, expected):
    """Equal, and of the same types, also within lists."""
    return type(found) is type(expected) and found == expected and repr(found) == repr(expected)


@pytest.mark.parametrize("value", [1, 7, 127])
@pytest.mark.parametrize("dtype", [*WHOLE, "0-d"])
def test_a_whole_number(value, dtype):
    number = np.array(value) if dtype == "0-d" else np.dtype(dtype).type(value)
    assert same(check_whole("n", number), value) and same(check_number("n", number), value)
    assert same(plain({"n": [number, (number,)]}), {"n": [value, [value]]})
    assert plain_numbers(lambda n, scale: n * scale)(number, scale=number) == value**2  # 127² in an int8 is 1


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_number(dtype):
    number = np.dtype(dtype).type(0.25)
    assert same(check_number("x", number), 0.25) and same(plain(number), 0.25)


@pytest.mark.parametrize("value", [True, False])
def test_a_flag(value):
    for flag in (np.bool_(value), np.array(value), np.int64(value), int(value)):
        assert same(check_flag("flag", flag), value)


@pytest.mark.parametrize("make", LISTS)
def test_a_list(make):
    assert same(check_list("counts", make([1, 200]), of="numbers"), [1, 200])
    assert same(check_names("names", make(["cat", "dog"])), ["cat", "dog"])
    assert make is tuple or same(plain(make([0.5, 2])), [0.5, 2.0])


@pytest.mark.parametrize("value", [True, np.bool_(True), np.array(True), 2.0, np.float64(2), np.array([2]), "2", None])
def test_what_is_no_whole_number_of_any_library(value):
    with pytest.raises(ValueError, match="n is .*; it should be a whole number, at least 1"):
        check_whole("n", value)
    with pytest.raises(d2l.DeviceError, match="a device's index is a whole number from 0 to 4,095, not "):
        d2l.cpu(value)


def given(**arguments):
    return lambda folder: arguments


X = np.linspace(-1, 1, 2 * 3 * 6 * 6).reshape(2, 3, 6, 6).astype(np.float32)
K = np.linspace(-1, 1, 4 * 3 * 3 * 3).reshape(4, 3, 3, 3).astype(np.float32)
SWITCH = collectives.network.full_switch(3, 1e9)
PLAN = plans.PLANS["data"](2, 1, network=TINY)
CALLS = {
    "choose_devices": (d2l.choose_devices, given(environment="cpu", devices=[0, 2])),
    "conv2d": (layers.conv2d, given(x=X, weight=K, bias=K[:, 0, 0, 0], stride=2, padding=1)),
    "networks.known_network": (
        networks.known_network,
        given(name="cnn", classes=200, input_shape=(3, 20, 20), width=0.5),
    ),
    "Model.with_classes": (d2l.Model(TINY, tiny_params()).with_classes, given(classes=["a", "b"], seed=3)),
    "train split": (d2l.train, lambda folder: short_training() | {"devices": 2, "split": "zero1", "micro_batches": 2}),
    "collectives.ring": (collectives.ring, given(k=7, n=200)),
    "collectives.simulate": (
        collectives.simulate,
        given(schedule=collectives.ring(3, 12), network=SWITCH, itemsize=200),
    ),
    "plans.gpipe": (plans.gpipe, given(k=2, micro_batches=3, network=networks.LENET)),
    "plans.simulate": (plans.simulate, given(plan=PLAN, network=SWITCH, batch_size=200, contention=[1, 1.5])),
    "grid": (d2l.grid, given(lr=[0.5, 0.25], batch_size=6, devices=[1, 2])),
}


def forms(value):
    """The other forms of a number, a flag or a list, by name."""
    if isinstance(value, bool):
        return {"np.bool_": np.bool_(value)}
    if isinstance(value, int):
        small = {"np.uint8": np.uint8(value)} if 0 <= value < 256 else {}
        return {"np.int64": np.int64(value), "0-d": np.array(value)} | small
    if isinstance(value, float):
        return {"np.float64": np.float64(value)}
    if type(value) in (list, tuple) and len({*map(type, value)}) == 1 and isinstance(value[0], (int, float, str)):
        return {make.__name__: make(value) for make in LISTS}
    return {}


def variants(value, path=""):
    """``value`` with one part in another form, and what was done, for each part and each form."""
    for name, other in forms(value).items():
        yield f"{path} as {name}", other
    if type(value) is dict:
        for key, part in value.items():
            yield from ((what, value | {key: other}) for what, other in variants(part, f"{path}[{key!r}]"))
    elif type(value) in (list, tuple):
        for i, part in enumerate(value):
            for what, other in variants(part, f"{path}[{i}]"):
                yield what, type(value)([*value[:i], other, *value[i + 1 :]])


TIMED = re.compile("second|busbw|algbw|phases|utilisation|time|examples_per|_device")


def plainly(value, seen=()):
    """A result as nested tuples with the types of all its parts, for comparing; times, which differ, only by type."""
    if id(value) in seen or inspect.isroutine(value) or isinstance(value, functools.partial):
        return type(value).__name__
    seen = (*seen, id(value))
    if isinstance(value, d2l.DeviceArray):
        return "on", str(value.device), plainly(d2l.to_host(value), seen)
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value).__name__, str(value.dtype), value.shape, value.tolist()
    if isinstance(value, dict):
        return [(key, type(of).__name__ if TIMED.search(str(key)) else plainly(of, seen)) for key, of in value.items()]
    parts = [plainly(part, seen) for part in value] if isinstance(value, (list, tuple)) else []
    about = vars(value) if hasattr(value, "__dict__") and not isinstance(value, (type, devices.Device)) else ""
    about = about and plainly(about, seen)
    return type(value).__name__, parts, about, "" if parts or about else re.sub("0x[0-9a-f]+", "", repr(value))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folder")
    make_files(folder)
    return folder


LEFT_OUT = ("gpu", "Animator", "plot_history", "plot_sweep")
CASES = {name: door for name, door in DOORS.items() if name not in LEFT_OUT} | CALLS


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_call(name, folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["d2lmgpu.collectives.benchmark"], "repeats_in", lambda *_: 1)
    function, make = CASES[name]

    def result_of(number=None):
        """The result of the call, or of its variant with this number: what was changed, and the result."""
        front_doors.rng = np.random.default_rng(4)  # the same pictures again
        arguments, what = make(folder), ""
        if number is not None:
            what, arguments = list(variants(arguments))[number]
        try:
            result = function(**arguments)
            return what, plainly(list(result) if hasattr(result, "__next__") else result)
        except ValueError as error:
            return what, repr(error)

    _, right = result_of()
    assert "np." not in repr(right) and "Error" not in repr(right)[:20]
    for number in range(len(list(variants(make(folder))))):
        what, found = result_of(number)
        assert found == right, what
