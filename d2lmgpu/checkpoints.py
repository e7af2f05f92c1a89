"""Checkpoints: training as a file, from which it goes on as if it had never stopped.

    {"format": "d2lmgpu checkpoint", "version": 1, "bytes": ..., "sha256": ...}    one line of JSON
    arrays and state                                                             NumPy's .npz

Reading one runs no code that is in the file (nothing is unpickled). A file is
there whole or not at all: it is written under another name and then renamed.
"""

import hashlib
import io
import json
import zipfile
from typing import NamedTuple

import numpy as np

from .output import write_file

FORMAT = "d2lmgpu checkpoint"
VERSION = 1
LONGEST_HEADER = 1000


class CheckpointError(ValueError):
    """A file that is no checkpoint, or no complete one."""


class Checkpoint(NamedTuple):
    """``state``: a dict of numbers, texts, lists and dicts. ``arrays``: lists of NumPy arrays by name."""

    state: dict
    arrays: dict


def save_checkpoint(path, checkpoint):
    """Write a `Checkpoint`; a failure, or a machine that stops meanwhile, leaves an older file as it was.

    Raises OSError if it cannot be written.
    """
    named = {f"{name}.{i}": array for name, arrays in checkpoint.arrays.items() for i, array in enumerate(arrays)}
    buffer = io.BytesIO()
    np.savez(buffer, state=np.frombuffer(json.dumps(checkpoint.state).encode(), np.uint8), **named)
    content = buffer.getvalue()
    header = {"format": FORMAT, "version": VERSION, "bytes": len(content), "sha256": _sha256(content)}
    write_file(path, lambda file: file.write(json.dumps(header).encode() + b"\n" + content))


def load_checkpoint(path):
    """The `Checkpoint` in a file.

    Raises CheckpointError if it is no checkpoint, of a later version, cut short or
    altered; OSError if it cannot be read.
    """
    with open(path, "rb") as file:
        header = _read_header(path, file.readline(LONGEST_HEADER))
        content = file.read()
    if len(content) < header["bytes"]:
        raise CheckpointError(f"{path} is cut short: {len(content):,} of {header['bytes']:,} bytes; take an older one")
    if len(content) > header["bytes"] or _sha256(content) != header["sha256"]:
        raise CheckpointError(f"{path} was altered: its checksum is not what it should be; take an older one")
    arrays = {}
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            state = json.loads(file["state"].tobytes())
            for key in file.files:
                if key != "state":
                    arrays.setdefault(key.rpartition(".")[0], []).append(file[key])
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"{path} is no checkpoint that this version can read: {error}") from error
    return Checkpoint(state, arrays)


def _read_header(path, line):
    try:
        header = json.loads(line)
        assert header["format"] == FORMAT
        version, size, checksum = (header[name] for name in ("version", "bytes", "sha256"))
        assert isinstance(version, int) and isinstance(size, int) and isinstance(checksum, str)
    except (ValueError, TypeError, KeyError, AssertionError):
        raise CheckpointError(f"{path} is no checkpoint of d2lmgpu") from None
    if version > VERSION:
        raise CheckpointError(f"{path} is of version {version}, later than this program's {VERSION}; update d2lmgpu")
    return header


def _sha256(content):
    return hashlib.sha256(content).hexdigest()
