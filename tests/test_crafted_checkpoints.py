"""Checkpoints that somebody has put together: whole, with the right checksum, and still nothing that a run wrote."""

import ast
import copy
import hashlib
import io
import json
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.checkpoints import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from d2lmgpu.training.resume import load_run

SETTINGS = {"network": "lenet-bn", "optimizer": "adam", "lr": 0.01, "batch_size": 200, "precision": "mixed"}


@pytest.fixture(scope="module")
def saved(small, tmp_path_factory):
    """A run's checkpoint, in the middle of its second epoch: on two devices, with everything that there is to keep."""
    file = tmp_path_factory.mktemp("saved") / "file"

    class Enough(d2l.Callback):
        def on_step(self, epoch, step, loss):
            return (epoch, step) == (1, 2)

    quick([d2l.cpu(0), d2l.cpu(1)], small, checkpoint=file, callbacks=[Enough()], loads=[1, 2], **SETTINGS)
    return load_run(file)


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def header(shape="(4,)", descr="'<f4'"):
    """The header of a .npy file, as it may be written by hand."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def whole(content):
    """A file with this content, and the header that belongs to it."""
    checksum = hashlib.sha256(content).hexdigest()
    first = {"format": "d2lmgpu checkpoint", "version": 1, "bytes": len(content), "sha256": checksum}
    return json.dumps(first).encode() + b"\n" + content


def zipped(members, method=zipfile.ZIP_STORED, times=1, listed_as=None):
    """A zip file, of whose members each is listed so many ``times``, in the same place, maybe with another method."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        for i in range(1, times):
            for member in archive.filelist[: len(members)]:
                archive.filelist.append(copy.copy(member))
                archive.filelist[-1].filename = f"{i}{member.filename}"
        for member in archive.filelist:
            member.compress_type = method if listed_as is None else listed_as
    return file.getvalue()


STATE = npy(np.frombuffer(b"{}", np.uint8))
ZEROS = npy(np.zeros(10**6, np.float32))
STORED = zipped({"state.npy": STATE, "params.0.npy": npy(np.zeros(4, np.float32))})
CONTENTS = {
    "no zip": b"nothing of the kind",
    "nothing": b"",
    "an empty zip": zipped({}),
    "half a zip": STORED[: len(STORED) // 2],
    "a method that there is not": zipped({"state.npy": STATE}, listed_as=99),
    "no state": zipped({"params.0.npy": npy(np.zeros(4))}),
    "a state that is no JSON": zipped({"state.npy": npy(np.frombuffer(b"{'a'", np.uint8))}),
    "a state that is no text": zipped({"state.npy": npy(np.frombuffer(b"\xff\xfe{}", np.uint8))}),
    "a state that is a list": zipped({"state.npy": npy(np.frombuffer(b"[]", np.uint8))}),
    "a state of brackets": zipped({"state.npy": npy(np.frombuffer(b"[" * 100_000, np.uint8))}),
    "an empty array": zipped({"state.npy": STATE, "params.0.npy": b""}),
    "half an array": zipped({"state.npy": STATE, "params.0.npy": npy(np.zeros(4))[:-5]}),
    "more than an array": zipped({"state.npy": STATE, "params.0.npy": npy(np.zeros(4)) + b"more"}),
    "a text": zipped({"state.npy": STATE, "params.0.npy": b"text"}),
    "an array of objects": zipped({"state.npy": STATE, "params.0.npy": header(descr="'|O'") + b"\x80\x04K\x01."}),
    "an array of texts": zipped({"state.npy": STATE, "params.0.npy": npy(np.array(["text"]))}),
    "an array of records": zipped({"state.npy": STATE, "params.0.npy": npy(np.zeros(2, [("a", "f4")]))}),
    "a terabyte": zipped({"state.npy": STATE, "params.0.npy": header("(10**12,)") + bytes(16)}),
    "a terabyte of nothing": zipped({"state.npy": STATE, "params.0.npy": header("(1000000000000,)", "'|V0'")}),
    "a shape below 0": zipped({"state.npy": STATE, "params.0.npy": header("(-2, -2)") + bytes(16)}),
    "a shape that is none": zipped({"state.npy": STATE, "params.0.npy": header("'four'") + bytes(16)}),
    "a shape of brackets": zipped({"state.npy": STATE, "params.0.npy": header("(" * 3000) + bytes(16)}),
    "a type that there is not": zipped({"state.npy": STATE, "params.0.npy": header(descr="'<f3'") + bytes(16)}),
    "an array without a number": zipped({"state.npy": STATE, "params.npy": npy(np.zeros(4))}),
    "an array too many": zipped({"state.npy": STATE, "params.1.npy": npy(np.zeros(4))}),
    "a deflated array": zipped({"state.npy": STATE, "params.0.npy": ZEROS}, zipfile.ZIP_DEFLATED),
    "an array by LZMA": zipped({"state.npy": STATE, "params.0.npy": ZEROS}, zipfile.ZIP_LZMA),
    "arrays in one place": zipped({"state.npy": STATE, "params.0.npy": ZEROS[: 10**5]}, times=100),
    "encrypted": STORED.replace(b"PK\x03\x04\x14\x00\x00\x00", b"PK\x03\x04\x14\x00\x01\x00").replace(
        b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00"
    ),
}


@pytest.mark.parametrize("name", CONTENTS)
def test_contents(tmp_path, name):
    """Refused in one line, by the memory of the file at most, before anything is unpacked."""
    file = tmp_path / "file"
    file.write_bytes(whole(CONTENTS[name]))
    tracemalloc.start()
    with pytest.raises(CheckpointError, match="file is no checkpoint that this version can read") as caught:
        load_checkpoint(file)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500 and peak < 2 * 10**6


HEADERS = [
    b"[" * 900,
    b'{"format": "d2lmgpu checkpoint", "version": true, "bytes": 0, "sha256": ""}\n',
    b'{"format": "d2lmgpu checkpoint", "version": "1", "bytes": 0, "sha256": ""}\n',
    b'{"format": "d2lmgpu checkpoint", "version": 1, "bytes": 0.5, "sha256": ""}\n',
    b'{"format": "d2lmgpu checkpoint", "version": 1, "bytes": 0, "sha256": null}\n',
    b'{"format": "another", "version": 1, "bytes": 0, "sha256": ""}\n',
    b'"format version bytes sha256"\n',
]


@pytest.mark.parametrize("optimised", [[], ["-O"]], ids=["as usual", "without asserts"])
def test_headers(tmp_path, optimised):
    code = """
import sys
from d2lmgpu.checkpoints import CheckpointError, load_checkpoint
for file in sys.argv[1:]:
    try:
        load_checkpoint(file)
    except CheckpointError as error:
        print(error)
"""
    files = [tmp_path / str(i) for i in range(len(HEADERS))]
    for file, content in zip(files, HEADERS, strict=True):
        file.write_bytes(content)
    command = [sys.executable, *optimised, "-c", code, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{file} is no checkpoint of d2lmgpu" for file in files]


def test_no_check_is_an_assert():
    """Which vanish under ``python -O``."""
    for part in ("checkpoints.py", "output.py", "training"):
        path = Path(d2l.__file__).parent / part
        for file in path.glob("*.py") if path.is_dir() else [path]:
            assert not any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(file.read_text()))), file


def changed(change):
    """What makes a state with something else in it."""

    def make(checkpoint):
        state, arrays = copy.deepcopy(checkpoint.state), dict(checkpoint.arrays)
        change(state, arrays)
        return Checkpoint(state, arrays)

    return make


def put(place, value):
    *way, last = place.split()

    def change(state, arrays):
        for name in way:
            state = state[name]
        state[last] = value

    return changed(change)


def drop(place):
    *way, last = place.split()

    def change(state, arrays):
        for name in way:
            state = state[name]
        del state[last]

    return changed(change)


STATES = {
    "no history": drop("history"),
    "a history that is a list": put("history", ["lr", 0.1]),
    "a history without lr": drop("history lr"),
    "lr that is a text": put("history lr", "fast"),
    "a seed that is a bool": put("history seed", True),
    "a network that is a list": put("history network", ["lenet"]),
    "a setting of a later version": put("history speed", 9),
    "devices that are numbers": put("history devices", [0, 1]),
    "classes that are lists": put("history classes", [["bag"]] * 10),
    "loads that are texts": put("history loads", ["1", "2"]),
    "a history without losses": drop("history train_loss"),
    "losses that are texts": put("history train_loss", ["low"]),
    "a loss that is a list": put("history loss", ["cross_entropy"]),
    "metrics that are a list": put("history metrics", [1.0]),
    "no position": drop("position"),
    "a position that is a number": put("position", 3),
    "a position without an epoch": drop("position epoch"),
    "steps that are a float": put("position steps", 2.0),
    "a sum that is a text": put("position losses", ["0"]),
    "right answers that are a text": put("position correct", "1"),
    "a sum beyond all floats": put("position losses", [10**400]),
    "steps that are a bool": put("position steps", True),
    "lr beyond all floats": put("history lr", 10**400),
    "a loss of brackets": put("history train_loss", json.loads("[" * 300 + "]" * 300)),
    "no checksum of the data": drop("data"),
    "a fingerprint that is a list": put("likeness", [1.0]),
    "a fingerprint of texts": put("likeness schedule", ["1"]),
    "no steps of the optimiser": drop("optimizer_steps"),
}


@pytest.mark.parametrize("name", STATES)
def test_states(tmp_path, saved, name):
    file = tmp_path / "file"
    save_checkpoint(file, STATES[name](saved))
    with pytest.raises(
        CheckpointError,
        match="file is no checkpoint of a run that this version can read: (its?|loads|maximum recursion) ",
    ):
        load_run(file)


def cut(name, change):
    return changed(lambda state, arrays: arrays.update({name: change(arrays[name])}))


ARRAYS = {
    "a parameter too few": cut("params", lambda arrays: arrays[:-1]),
    "parameters of other shapes": cut("params", lambda arrays: [array.T for array in arrays]),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_what_does_not_fit_the_run(tmp_path, small, saved, name):
    file = tmp_path / "file"
    save_checkpoint(file, ARRAYS[name](saved))
    with pytest.raises(CheckpointError):
        quick([d2l.cpu(0), d2l.cpu(1)], small, resume=file, loads=[1, 2], **SETTINGS)


def test_a_run_goes_on_from_what_was_saved(tmp_path, small, saved):
    """As it is: so nothing above is refused for another reason."""
    save_checkpoint(tmp_path / "file", saved)
    quick([d2l.cpu(0), d2l.cpu(1)], small, resume=tmp_path / "file", loads=[1, 2], **SETTINGS)


@pytest.mark.parametrize(
    "change, message",
    [
        (put("model", 5), "its model is a int, which should be a dict"),
        (put("model", {}), "its model has other names than it should: ['classes', 'invert', 'loss', 'network']"),
        (drop("model"), "its model is a NoneType, which should be a dict"),
        (put("model network", None), "its network has layers that are functions of your own"),
        (put("model network", {"input_shape": [1, 28, 28], "layers": [["exec", {}]]}), "layer 'exec' is unknown"),
        (put("model classes", ["bag"] * 10**5), "classes: 100000 given"),
        (ARRAYS["parameters of other shapes"], "do not have the shapes of those given"),
    ],
)
def test_the_command_predict(tmp_path, saved, capsys, change, message):
    save_checkpoint(tmp_path / "file", change(saved))
    assert cli.main(["predict", str(tmp_path / "file"), "picture.png"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and message in err and err.count("\n") == 1
