"""Numbers, flags and lists as NumPy and pandas give them are taken as Python's own.

The checks of arguments return Python's own, whatever they are given. In a call that is right, each number, flag and
list is replaced in turn by the same value in another form, and the result must be the same, down to its types and its
text: an ``np.int64(3)`` in it would end in a file, and an ``np.uint8`` would silently count from 0 again after 255.
"""

import functools
import inspect
import re
import sys
from fractions import Fraction

import front_doors
import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu import devices
from d2lmgpu.base import arguments
from d2lmgpu.base.arguments import check_number, check_whole, plain

try:
    import pandas
except ImportError:  # no dependency of the package
    pandas = None

WHOLE = [np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64)]
LISTS = [tuple, np.array, *([pandas.Index, pandas.Series] if pandas else [])]
DOORS = front_doors.read(front_doors.DOORS, front_doors.TAKE_NUMBERS)
TAKE_NONE = """DeviceArray DeviceError DeviceMismatchError DataError Callback LivePlot TensorBoard Timer History
to_float can_use_gpu num_gpus try_all_gpus device_table record_transfers synchronize load_fashion_mnist conv2d_grad
dense dense_grad flatten flatten_grad relu relu_grad softmax_cross_entropy softmax_cross_entropy_grad squared_error
squared_error_grad avg_pool2d avg_pool2d_grad max_pool2d max_pool2d_grad plot_curves sweep run_trial cluster gpu"""
"""What has no number among its arguments, or is given one by a setting of `train`; or needs what is not everywhere."""


def same(found, expected):
    """Equal, and of the same types, also within lists."""
    return type(found) is type(expected) and found == expected and repr(found) == repr(expected)


def test_the_checks_return_pythons_own():
    for make in (*WHOLE, np.array):
        for value in (1, 7, 127):
            number = make(value)
            assert same(check_whole("n", number), value) and same(check_number("n", number), value)
            assert same(plain({"n": [number, (number,)]}), {"n": [value, [value]]})
            assert (
                arguments.plain_numbers(lambda n, scale: n * scale)(number, scale=number) == value**2
            )  # 127² in int8 is 1
    for make in (np.float16, np.float32, np.float64):
        assert same(check_number("x", make(0.25)), 0.25) and same(plain(make(0.25)), 0.25)
    for value in (True, False):
        for flag in (np.bool_(value), np.array(value), np.int64(value), int(value)):
            assert same(arguments.check_flag("flag", flag), value)
    for make in LISTS:
        assert same(arguments.check_list("counts", make([1, 200]), of="numbers"), [1, 200])
        assert same(arguments.check_names("names", make(["cat", "dog"])), ["cat", "dog"])
        assert make is tuple or same(plain(make([0.5, 2])), [0.5, 2.0])
    arguments.check_seed(2**64 - 1)


def test_what_is_no_number_of_any_library():
    for value in (True, np.bool_(True), np.array(True), 2.0, np.float64(2), np.array([2]), "2", None, np.int64(-1)):
        with pytest.raises(ValueError, match="n is .*; it should be a whole number, at least 1"):
            check_whole("n", value)
    check_number("lr", Fraction(1, 3), above=0, most=1e6)
    for value in (np.float16(np.inf), np.float32(np.nan), np.float32(2e6), Fraction(10**400), 10**400):
        with pytest.raises(ValueError, match="lr is .*; it should be a finite number, above 0 and at most 1e"):
            check_number("lr", value, above=0, most=1e6)


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


def test_each_public_function_has_a_row():
    """Those of d2l, which people call: here or in `front_doors`."""
    public = {name for name, value in vars(d2l).items() if callable(value) and not name.startswith("_")}
    assert public - {name.split(".")[1].split(" ")[0] for name in DOORS} - {*TAKE_NONE.split()} == {"Model"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folder")
    front_doors.make_files(folder)
    return folder


MAKE_FIGURES = {"d2l.Animator", "d2l.plot_history", "d2l.plot_sweep"}


@pytest.mark.parametrize("name", sorted(DOORS.keys() - MAKE_FIGURES - {"d2l.gpu"}))
def test_a_call(name, folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys.modules["d2lmgpu.collectives.benchmark"], "repeats_in", lambda *_: 1)
    door = DOORS[name]

    def result_of(number=None):
        """The result of the call, or of its variant with this number: what was changed, and the result."""
        front_doors.rng = np.random.default_rng(4)  # the same pictures again
        arguments, what = door.arguments(folder), ""
        if number is not None:
            what, arguments = list(variants(arguments))[number]
        try:
            result = door.function(**arguments)
            return what, plainly(list(result) if hasattr(result, "__next__") else result)
        except ValueError as error:
            return what, repr(error)

    _, right = result_of()
    assert "np." not in repr(right) and "Error" not in repr(right)[:20]
    for number in range(len(list(variants(door.arguments(folder))))):
        what, found = result_of(number)
        assert found == right, what
