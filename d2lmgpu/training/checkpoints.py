"""Checkpoints: the state of training in a file, from which training resumes as if it had never stopped.

    {"format": "d2lmgpu checkpoint", "version": 1, "bytes": ..., "sha256": ...}    one line of JSON
    arrays and state                                                             NumPy's .npz

Reading a checkpoint never runs code from the file (nothing is unpickled). A file is written under another name and then
renamed, so there is never an incomplete file under its final name.
"""

import hashlib
import io
import json
from typing import NamedTuple

import numpy as np

from ..base.arguments import check_path
from ..base.files import as_json, read_json, write_file

_FORMAT = "d2lmgpu checkpoint"
VERSION = 1
LONGEST_HEADER = 1000


class CheckpointError(ValueError):
    """The file is not a checkpoint, or not a complete one."""


class Checkpoint(NamedTuple):
    """``state``: a dict of numbers, strings, lists and dicts. ``arrays``: lists of NumPy arrays by name.

    In the file, a number in the state that is not finite is null, as in any JSON.
    """

    state: dict
    arrays: dict


def save_checkpoint(path, checkpoint):
    """Write a `Checkpoint`. If this fails, or the machine stops in the meantime, an older file stays as it was.

    Raises OSError if the file cannot be written, ValueError unless ``path`` is a name.
    """
    check_path("path", path)
    named = {f"{name}.{i}": array for name, arrays in checkpoint.arrays.items() for i, array in enumerate(arrays)}
    buffer = io.BytesIO()
    np.savez(buffer, state=np.frombuffer(as_json(checkpoint.state).encode(), np.uint8), **named)
    content = buffer.getvalue()
    header = {
        "format": _FORMAT,
        "version": VERSION,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    write_file(path, lambda file: file.write(as_json(header).encode() + b"\n" + content))


def load_checkpoint(path):
    """The `Checkpoint` in a file.

    Raises CheckpointError if the file is not a checkpoint, comes from another version, or is truncated or altered;
    OSError if the file cannot be read.
    """
    check_path("load_checkpoint: path", path)
    with open(path, "rb") as file:
        header = _read_header(path, file.readline(LONGEST_HEADER))
        content = file.read()
    if len(content) < header["bytes"]:
        raise CheckpointError(f"{path} is cut short: {len(content):,} of {header['bytes']:,} bytes; use an older one")
    if len(content) > header["bytes"] or hashlib.sha256(content).hexdigest() != header["sha256"]:
        raise CheckpointError(f"{path} was altered: its checksum is not what it should be; use an older one")
    arrays = {}
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            named = dict(file)
        state = json.loads(named.pop("state").tobytes())
    except Exception as error:  # NumPy, zipfile and json raise many kinds of errors
        why = " ".join(str(error).split())[:200]
        raise CheckpointError(f"{path} is no checkpoint that this version can read: {why}") from error
    for key, array in named.items():
        arrays.setdefault(key.rpartition(".")[0], []).append(array)
    return Checkpoint(state, arrays)


def _read_header(path, line):
    header = read_json(line)
    kinds = {"format": str, "version": int, "bytes": int, "sha256": str}
    fits = isinstance(header, dict) and all(type(header.get(name)) is kind for name, kind in kinds.items())
    if not fits or header["format"] != _FORMAT:
        raise CheckpointError(f"{path} is no checkpoint of d2lmgpu")
    if header["version"] != VERSION:
        raise CheckpointError(f"{path} is of version {header['version']}; this program reads version {VERSION}")
    return header
