"""A checkpoint or a model that is cut, has a flipped bit or is something else: one line, and what stood there stays.

Data files are tested in tests/data, a sweep's results in test_sweep.py.
"""

import hashlib
import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from runs import TINY

import d2lmgpu as d2l
from d2lmgpu import load_model
from d2lmgpu.networks import LENET, described
from d2lmgpu.training.checkpoints import Checkpoint, CheckpointError, load_checkpoint, save_checkpoint
from d2lmgpu.training.resume import load_run

FOLDER = Path(__file__).parents[1] / "earlier_version"
RUN, MODEL = ((FOLDER / name).read_bytes() for name in ("run.ckpt", "tiny.model"))


def refusal(file, content, load):
    """What is said of a file's content."""
    file.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        load(file)
    said = re.fullmatch(f"{re.escape(str(file))}:? (.+)", str(caught.value))  # in one line
    assert said, caught.value
    return said[1]


def sealed(content):
    """With a first line that is right."""
    header = {"format": "d2lmgpu checkpoint", "version": 1, "bytes": len(content)}
    return json.dumps(header | {"sha256": hashlib.sha256(content).hexdigest()}).encode() + b"\n" + content


@pytest.mark.parametrize(
    "content, said",
    [
        (sealed(pickle.dumps(print)), "is no checkpoint that this version can read"),
        (b"", "is no checkpoint of d2lmgpu"),
        (b"[1]\n", "is no checkpoint of d2lmgpu"),
        (b'"' + b"x" * 5000, "is no checkpoint of d2lmgpu"),
        (b'{"format": "d2lmgpu checkpoint"}', "is no checkpoint of d2lmgpu"),
        (pickle.dumps(print), "is no checkpoint of d2lmgpu"),
        (MODEL[:50], "is no checkpoint of d2lmgpu"),
        (MODEL[:-1], "is cut short"),
        (MODEL + b"more", "was altered"),
        (MODEL.replace(b'"version": 1', b'"version": 2', 1), "is of version 2; this program reads version 1"),
    ],
)
def test_what_is_no_checkpoint(tmp_path, content, said):
    assert refusal(tmp_path / "file", content, load_model).startswith(said)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=[pytest.mark.nightly]) for seed in range(1, 20))])
@pytest.mark.parametrize("content, load", [(RUN, load_run), (MODEL, load_model)], ids=["run", "model"])
def test_every_bit_counts(tmp_path, content, load, seed):
    """Bits of the first line, of the rest, and lengths, at random."""
    rng, first = np.random.default_rng(seed), content.index(b"\n") + 1
    for start, stop in [(0, first), (first, len(content))] * 60:
        changed = bytearray(content)
        changed[rng.integers(start, stop)] ^= 1 << rng.integers(8)
        refusal(tmp_path / "file", changed, load)
        refusal(tmp_path / "file", content[: rng.integers(start, stop)], load)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"classes": ["a", "b"]}, "classes: 2 given"),
        ({"classes": [1] * 4}, "element of classes is a int"),
        ({"invert": None}, "invert"),
        ({"network": described(LENET)}, "params"),
        ({"network": {"input_shape": [1, 8, 8]}}, "not a description of a network: .*layers"),
        ({"network": {"input_shape": [1, 8, 8], "layers": [["Dense", {"size": 4}]]}}, "Dense: .*argument: 'outputs'"),
    ],
)
def test_models_that_make_no_sense(tmp_path, change, said):
    """Whose checksum is right."""
    file = tmp_path / "file"
    d2l.Model(TINY, d2l.init_params(network=TINY), d2l.networks.init_statistics(TINY)).save(file)
    assert load_model(file).network.classes == 4
    state, arrays = load_checkpoint(file)
    save_checkpoint(file, Checkpoint(state | {"model": state["model"] | change}, arrays))
    assert re.search(said, refusal(file, file.read_bytes(), load_model))
