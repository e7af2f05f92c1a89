"""Every public function with wrong arguments: what it raises is documented and says something, or nothing is wrong.

One argument at a time of a call that is right is replaced by each of `WRONG`. An
error has to be raised by a ``raise`` of this package: what Python or NumPy says of
an index inside somebody's function tells nobody what was given.
"""

import inspect
import linecache
import re
import traceback
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import public_calls
import pytest
from PIL import Image

import d2lmgpu as d2l
from d2lmgpu.arguments import check_number, check_seed, check_whole

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # animations nobody plays
PACKAGE = str(Path(d2l.__file__).parent)
DOCUMENTED = (ValueError, d2l.DeviceError, OSError)  # in the package's docstring; others in the function's own


class Stranger:
    """Something of which nobody has heard."""


def wrong_values():
    """What people give by mistake, each kind: 28 values."""
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
    positional = []
    for name in ("recipes", "schedules"):  # *arguments
        if name in arguments:
            positional = [*[arguments.pop(key) for key in list(arguments)[: list(arguments).index(name)]]]
            positional.append(arguments.pop(name))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = function(*positional, **arguments)
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


LONG = {("run_trial", "data", "None"), ("sweep", "data", "None")}
"""What is right, and would train on all of Fashion-MNIST."""


def findings(name, function, folder):
    d2l.synchronize([d2l.cpu(0), d2l.cpu(1), d2l.cpu(7)])
    for parameter in public_calls.CALLS[name](folder):
        for kind, value in wrong_values().items():
            if (name, parameter, kind) in LONG:
                continue
            arguments = public_calls.CALLS[name](folder) | {parameter: value}
            found = complaint(function, arguments)
            if found:
                yield f"{name}({parameter}={kind}): {found}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with pictures, a checkpoint and the rows of a sweep."""
    folder = tmp_path_factory.mktemp("folder")
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            (folder / "pictures" / part / name).mkdir(parents=True)
            Image.fromarray(np.zeros((4, 4), np.uint8)).save(folder / "pictures" / part / name / "1.png")
    d2l.sweep(
        [public_calls.TRIAL],
        mode="sequential",
        results=folder / "rows.json",
        data=public_calls.lenet_data(),
        progress=False,
    )
    settings = public_calls.CALLS["train"](folder) | {"checkpoint": folder / "run"}
    d2l.train(**settings)
    public_calls.save_checkpoint(folder / "checkpoint", public_calls.Checkpoint({"a": 1}, {}))
    return folder


PUBLIC = public_calls.public()


def test_every_public_function_has_a_call():
    assert set(PUBLIC) == set(public_calls.CALLS)


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_argument_is_in_its_call(name, folder):
    parameters = inspect.signature(PUBLIC[name]).parameters.values()
    named = {parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD}
    assert named - {"beta1", "beta2", "epsilon"} <= set(public_calls.CALLS[name](folder))


@pytest.mark.parametrize("name", sorted(PUBLIC.keys() - {"gpu", "LivePlot"}))  # they need a GPU, or a notebook
def test_a_call_that_is_right(name, folder):
    assert complaint(PUBLIC[name], public_calls.CALLS[name](folder)) is None


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_wrong_arguments(name, folder, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    found = list(findings(name, PUBLIC[name], folder))
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
