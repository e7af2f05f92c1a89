"""The front doors with wrong arguments: what they raise is documented and says something, or nothing is wrong.

One argument at a time of a call that is right is replaced by each of `wrong_values`. An
error has to be raised by a ``raise`` of this package: what Python or NumPy says of
an index inside a function does not say what was given.
"""

import linecache
import re
import traceback
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from front_doors import DOORS, make_files

import d2lmgpu as d2l
from d2lmgpu.arguments import check_number, check_seed, check_whole

PACKAGE = str(Path(d2l.__file__).parent)
DOCUMENTED = (ValueError, d2l.DeviceError, OSError)  # in the package's docstring; others in the function's own


class Stranger:
    """Something of which nobody has heard."""


def wrong_values():
    """What people give by mistake, one of each kind."""
    return {
        "None": None,
        "True": True,
        "0": 0,
        "-1": -1,
        "1.5": 1.5,
        "nan": float("nan"),
        "inf": float("inf"),
        "1e30": 10**30,
        "1e400": 10**400,
        "complex": 1j,
        "no text": "",
        "text": "nonsense",
        "bytes": b"nonsense",
        "empty list": [],
        "list of None": [None],
        "list of texts": ["a", "b"],
        "list of numbers": [1.5, float("nan"), -2],
        "many": [0] * 7,
        "ragged": [[1], [2, 3]],
        "empty dict": {},
        "dict": {"a": 1},
        "set": {1, 2},
        "object": Stranger(),
        "empty array": np.zeros(0),
        "0-d array": np.array(3.5),
        "array": np.zeros((2, 3, 4, 5, 6)),
        "array of texts": np.array(["a", "b"]),
        "array of objects": np.array([None, {}]),
        "device": d2l.cpu(7),
        "array elsewhere": d2l.put(np.zeros((2, 3), np.float32), d2l.cpu(7)),
    }


def complaint(function, arguments):
    """What is wrong with how a function answers; None if nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = function(**arguments)
            if hasattr(result, "__next__"):
                list(result)
            d2l.synchronize([d2l.cpu(0), d2l.cpu(1), d2l.cpu(7)])
    except Exception as error:
        return complaint_of(error, function)
    return None


def complaint_of(error, function):
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(PACKAGE)]
    line = linecache.getline(frames[-1].filename, frames[-1].lineno).strip() if frames else "?"
    said = " ".join(f"{type(error).__name__}: {error}".split())[:150]
    documented = isinstance(error, DOCUMENTED) or type(error).__name__ in (function.__doc__ or "")
    if not documented:
        return f"not documented: {said} [{Path(frames[-1].filename).name if frames else ''}: {line}]"
    if not line.startswith("raise ") and not (isinstance(error, OSError) and error.filename is not None):
        return f"not its own: {said} [{Path(frames[-1].filename).name if frames else ''}: {line}]"
    if len(re.findall(r"\w+", str(error))) < 4 or "\n" in str(error) or len(str(error)) > 1000:
        return f"no sentence: {said}"
    return None


def findings(name, folder):
    function, arguments_of = DOORS[name]
    d2l.synchronize([d2l.cpu(0), d2l.cpu(1), d2l.cpu(7)])
    for parameter in arguments_of(folder):
        for kind, value in wrong_values().items():
            arguments = arguments_of(folder) | {parameter: value}
            found = complaint(function, arguments)
            if found:
                yield f"{name}({parameter}={kind}): {found}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folder")
    make_files(folder)
    return folder


@pytest.mark.parametrize("name", sorted(DOORS.keys() - {"gpu"}))
def test_a_call_that_is_right(name, folder):
    function, arguments_of = DOORS[name]
    assert complaint(function, arguments_of(folder)) is None


@pytest.mark.parametrize("name", sorted(DOORS))
def test_wrong_arguments(name, folder, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    found = list(findings(name, folder))
    assert not found, "\n" + "\n".join(found)


def test_numbers_of_other_libraries():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for value in (np.float16(0.5), np.float32(0.1), np.float64(0.1), Fraction(1, 3)):
            check_number("lr", value, above=0, most=1e6)
        for value in (np.float16(np.inf), np.float32(np.nan), np.float32(2e6), Fraction(10**400), 10**400):
            with pytest.raises(ValueError, match="lr is .*; it should be a finite number, above 0 and at most 1e"):
                check_number("lr", value, above=0, most=1e6)
    with pytest.raises(ValueError, match="batch_size is -1; it should be a whole number"):
        check_whole("batch_size", np.int64(-1))


def test_seeds_have_64_bits():
    check_seed(2**64 - 1)
    with pytest.raises(ValueError, match="seed is 18446744073709551616; it should be a whole number, at most"):
        check_seed(2**64)
