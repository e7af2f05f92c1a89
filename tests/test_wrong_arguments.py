"""The front doors with wrong arguments: what they raise is documented and says something, or nothing is wrong.

One argument at a time of a call that is right is replaced by each of `wrong_values`. An
error has to be raised by a ``raise`` of this package: what Python or NumPy says of
an index inside a function does not say what was given.
"""

import linecache
import os
import re
import traceback
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from front_doors import DOORS, TINY, images, labels, make_files, tiny_params, two
from PIL import Image

import d2lmgpu as d2l
from d2lmgpu.base.arguments import check_number, check_seed, check_whole
from d2lmgpu.data.minibatches import first_examples
from d2lmgpu.exercises.answers import grade
from d2lmgpu.parallel import measure_loads

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


TRAINED = d2l.Model(TINY, tiny_params())
ON_TWO = [d2l.get_params(tiny_params(), device) for device in two()]
TAKE_LABELS = {
    "minibatches": lambda X, y: d2l.minibatches(X, y, 4, 0, 0),
    "MinibatchQueue": lambda X, y: d2l.MinibatchQueue(X, y, two(), 4),
    "split_batch": lambda X, y: d2l.split_batch(X, y, two()),
    "train_batch": lambda X, y: d2l.train_batch(X, y, ON_TWO, two(), 0.1, network=TINY),
    "measure_loads": lambda X, y: measure_loads(X, y, tiny_params(), two(), 4, TINY),
    "loss_and_grads": lambda X, y: d2l.loss_and_grads(X, y, tiny_params(), TINY),
    "evaluate": lambda X, y: d2l.evaluate(tiny_params(), X, y, two(), TINY),
    "Model.evaluate": TRAINED.evaluate,
    "train": lambda X, y: d2l.train(two(), data=(X, y, X[:2], y[:2]), network=TINY, progress=False),
    "train, test set": lambda X, y: d2l.train(two(), data=(X[:2], y[:2], X, y), network=TINY, progress=False),
    "sweep": lambda X, y: d2l.sweep([{}], data=(X, y, X[:2], y[:2]), mode="sequential", progress=False),
    "--limit": lambda X, y: first_examples((X, y, X, y), 2),
    "confusion_matrix": lambda X, y: d2l.confusion_matrix(labels(len(X)), y, 3),
    "softmax_cross_entropy": lambda X, y: d2l.softmax_cross_entropy(X[:, 0, 0], y),
    "squared_error": lambda X, y: d2l.squared_error(X[:, 0, 0], y),
}


@pytest.mark.parametrize("few", [0, 4, 9])
@pytest.mark.parametrize("name", TAKE_LABELS)
def test_each_example_needs_a_label(name, few):
    """Otherwise examples get wrong labels, or are left out, silently."""
    with pytest.raises(ValueError, match="needs? (one|a label)|at least one|of shape"):
        TAKE_LABELS[name](images(6), labels(few))


@pytest.mark.parametrize("wrong", [-1, 2.5, None, "1", True])
@pytest.mark.parametrize("name", ["batch_size", "seed", "epoch"])
def test_minibatches_check_their_numbers_at_the_call(name, wrong):
    X, y, numbers = images(), labels(), {"batch_size": 4, "seed": 0, "epoch": 0} | {name: wrong}
    with pytest.raises(ValueError, match=f"{name} is .*; it should be a whole number, at least [01]"):
        d2l.minibatches(X, y, **numbers)
    epoch = numbers.pop("epoch")
    with pytest.raises(ValueError, match=f"{name} is .*; it should be a whole number, at least [01]"):
        d2l.MinibatchQueue(X, y, two(), **numbers).shuffle(epoch)


def test_there_is_an_example():
    for function in (TAKE_LABELS["minibatches"], TAKE_LABELS["MinibatchQueue"], TAKE_LABELS["measure_loads"]):
        with pytest.raises(ValueError, match="there are no examples; it needs at least one"):
            function(images(0), labels(0))
    with pytest.raises(ValueError, match="batch_size is 0; it should be a whole number, at least 1"):
        d2l.minibatches(images(), labels(), 0, 0, 0)


class Counts(d2l.Callback):
    def __init__(self):
        self.epochs = 0

    def on_epoch(self, history):
        self.epochs += 1


def test_one_picture_is_a_list_of_one(folder, monkeypatch):
    monkeypatch.chdir(folder)
    path = "pictures/train/cat/1.png"
    for one in (path, Path(path), iter([path]), {path}, os.scandir("pictures/train/cat")):
        np.testing.assert_array_equal(TRAINED.read(one), TRAINED.read([path]))
    with open(path, "rb") as file, Image.open(path) as picture:
        for wrong in (file, picture, [file], [picture], images(), None, 3, b"1.png", [None], [3], ""):
            with pytest.raises(
                ValueError, match="it should be the name of a file|should be a list of names of pictures"
            ):
                TRAINED.read(wrong)
    with pytest.raises(ValueError, match="pictures is a folder; give the names of the pictures in it"):
        TRAINED.read("pictures")
    with pytest.raises(ValueError, match="the list of paths is empty"):
        TRAINED.read(Path().glob("*.jpg"))
    with pytest.raises(OSError, match="No such file or directory: 'none.png'"):
        TRAINED.read("none.png")
    with pytest.raises(ValueError, match=r"images is 'pictures.*; it should be an array \(N, C, H, W\)"):
        TRAINED.predict(path)
    with pytest.raises(ValueError, match=r"images is an array of .* \(1, 4, 4\); it should be an array \(N, C, H, W\)"):
        TRAINED.predict(images()[0])


def test_one_is_a_list_of_one(folder, tmp_path):
    data, counts = (images(), labels(), images(), labels()), Counts()
    result = d2l.train(d2l.cpu(0), data=data, network=TINY, num_epochs=2, callbacks=counts, progress=False)
    assert counts.epochs == 2
    d2l.plot_history(result)
    rows = d2l.sweep({"network": TINY, "num_epochs": 1}, data=data, mode="sequential", progress=False)
    assert [row["status"] for row in rows] == ["done"]
    d2l.plot_sweep(rows[0]), d2l.plot_curves(rows[0])
    (found,) = d2l.collectives.measure_allreduce(d2l.cpu(0), "ring", 4096)
    assert (found.algorithm, found.bytes) == ("ring", 4096)
    d2l.synchronize("cpu:0")
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada" / "mine.py").write_text("")
    ((mark,),) = grade(tmp_path, "ring")
    assert (mark.student, mark.exercise) == ("ada", "ring")


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
