"""The front doors with wrong arguments: what they raise is documented and says something, or nothing is wrong.

One argument at a time of a call that is right is replaced by values of `WRONG`. An error has to be raised by a
``raise`` of this package: what Python or NumPy says of an index inside a function does not say what was given.
"""

import linecache
import os
import random
import re
import traceback
import warnings
from pathlib import Path

import front_doors
import numpy as np
import pytest
from front_doors import MODEL, TINY, images, labels, make_files

import d2lmgpu as d2l

PACKAGE = str(Path(d2l.__file__).parent)
DOCUMENTED = (ValueError, d2l.DeviceError, OSError)  # in the package's docstring; others in the function's own
DOORS = front_doors.read(front_doors.DOORS)


class Stranger:
    """Something of which nobody has heard."""


WRONG = {"None": None, "True": True, "0": 0, "-1": -1, "1.5": 1.5, "nan": float("nan"), "inf": float("inf")}
WRONG |= {"1e30": 10**30, "1e400": 10**400, "complex": 1j, "no text": "", "text": "nonsense", "bytes": b"nonsense"}
WRONG |= {"empty list": [], "list of None": [None], "list of texts": ["a", "b"], "ragged": [[1], [2, 3]]}
WRONG |= {"many": [0] * 7, "numbers": [1.5, np.nan, -2], "empty dict": {}, "dict": {"a": 1}, "set": {1, 2}}
WRONG |= {"object": Stranger(), "empty array": np.zeros(0), "0-d array": np.array(3.5), "array": np.zeros((2, 3, 4, 5))}
WRONG |= {"array of texts": np.array(["a", "b"]), "array of objects": np.array([None, {}]), "device": d2l.cpu(7)}
WRONG["array elsewhere"] = d2l.put(np.zeros((2, 3), np.float32), d2l.cpu(7))
"""What people give by mistake, one of each kind."""


def complaint(function, arguments):
    """What is wrong with how a function answers; None if nothing is."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = function(**arguments)
            d2l.synchronize([d2l.cpu(0), d2l.cpu(1), d2l.cpu(7)])
    except Exception as error:
        return complaint_of(error, function)
    try:
        list(result if hasattr(result, "__next__") else [])
    except Exception as error:
        return f"not raised at the call, but later: {error!r}"
    return None


def complaint_of(error, function):
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(PACKAGE)]
    line = linecache.getline(frames[-1].filename, frames[-1].lineno).strip() if frames else "?"
    said = f"{' '.join(f'{type(error).__name__}: {error}'.split())[:150]} [{line}]"
    if not isinstance(error, DOCUMENTED) and type(error).__name__ not in (function.__doc__ or ""):
        return f"not documented: {said}"
    if not line.startswith("raise ") and not (isinstance(error, OSError) and error.filename is not None):
        return f"not its own: {said}"
    if len(re.findall(r"\w+", str(error))) < 4 or "\n" in str(error) or len(str(error)) > 1000:
        return f"no sentence: {said}"
    return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folder")
    make_files(folder)
    return folder


@pytest.mark.parametrize("count", [4, pytest.param(len(WRONG), marks=[pytest.mark.long, pytest.mark.nightly])])
@pytest.mark.parametrize("name", DOORS)
def test_wrong_arguments(name, count, folder, monkeypatch, tmp_path):
    """In the short run with some values for each argument, others for another argument."""
    monkeypatch.chdir(tmp_path)
    door = DOORS[name]
    if name != "d2l.gpu":  # where there is none, no call is right
        door.function(**door.arguments(folder))
    found = []
    for parameter in door.arguments(folder):
        for kind in random.Random(f"{name} {parameter}").sample(sorted(WRONG), count):
            said = complaint(door.function, door.arguments(folder) | {parameter: WRONG[kind]})
            found += [f"{name}({parameter}={kind}): {said}"] if said else []
    assert not found, "\n" + "\n".join(found)


def test_one_is_a_list_of_one(folder, monkeypatch):
    monkeypatch.chdir(folder)
    path = "pictures/train/cat/1.png"
    for one in (path, Path(path), iter([path]), {path}, os.scandir("pictures/train/cat")):
        np.testing.assert_array_equal(MODEL.read(one), MODEL.read([path]))
    data, epochs, callback = (images(), labels()) * 2, [], d2l.Callback()
    callback.on_epoch = epochs.append
    d2l.train(d2l.cpu(0), data=data, network=TINY, num_epochs=2, callbacks=callback, progress=False)
    assert len(epochs) == 2
    rows = d2l.sweep({"network": TINY, "num_epochs": 1}, data=data, mode="sequential", progress=False)
    assert [row["status"] for row in rows] == ["done"]
    d2l.plot_sweep(rows[0]), d2l.plot_curves(rows[0])
    (found,) = d2l.collectives.measure_allreduce(d2l.cpu(0), "ring", 4096)
    assert (found.algorithm, found.bytes) == ("ring", 4096)
