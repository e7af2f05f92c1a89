"""IDX files, the format of MNIST and its relatives: an array of bytes, preceded by its sizes.

A file consists of two zero bytes, the type (8 for uint8), the number of axes, the size of each axis in four bytes, and
the data; most are compressed by gzip (LeCun, Cortes and Burges, "The MNIST database of handwritten digits", 1998).
"""

import gzip
import re
import struct
import zlib
from pathlib import Path

import numpy as np

from .folders import visible
from .words import listed

KINDS = {
    "training images": r"train.*images.*idx3",
    "training labels": r"train.*labels.*idx1",
    "test images": r"(t10k|test).*images.*idx3",
    "test labels": r"(t10k|test).*labels.*idx1",
}
"""Patterns for the names of a data set's four files: train-images-idx3-ubyte.gz, t10k-labels.idx1-ubyte, …"""
END = r"[-.]?(ubyte)?(\.gz)?$"
"""How these names end, so that half a download is none of them."""

BYTES = 8
"""The type of the data that are read."""


def read_idx(path):
    """The array in a file: uint8, read-only.

    Raises ValueError if the file is incomplete, OSError if it is unreadable.
    """
    data = Path(path).read_bytes()
    try:
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        zero, kind, axes = struct.unpack(">HBB", data[:4])
        begin = 4 + 4 * axes
        if zero == 0 < axes and kind == BYTES:  # the length must be right, too, or reshape raises ValueError
            return np.frombuffer(data, np.uint8, offset=begin).reshape(np.frombuffer(data[4:begin], ">u4"))
    except (struct.error, ValueError, EOFError, zlib.error, gzip.BadGzipFile):
        pass
    raise ValueError(f"{path} is not a complete IDX file of bytes")


def find_idx(folder):
    """The four files of a data set in a folder, in the order of `KINDS`, or None if the folder has none of them.

    Of copies, such as a packed and an unpacked one, the packed one is taken, because it has a checksum. Raises
    ValueError if the folder has only some of the files, or those of several data sets.
    """
    paths, found = visible(folder) if Path(folder).is_dir() else (), {}
    for kind, name in KINDS.items():
        fitting = [path for path in paths if path.is_file() and re.search(name + END, path.name, re.IGNORECASE)]
        found[kind] = {re.sub(r"\.gz$|\W", "", path.name.lower()): path for path in fitting}  # of copies the last
    if not any(found.values()):
        return None
    for kind, files in found.items():
        if len(files) != 1:
            there = listed(path.name for path in files.values()) or "none"
            raise ValueError(f"{folder} should have images and labels of one data set; of {kind} it has {there}")
    return [path for files in found.values() for path in files.values()]


def load_idx(files):
    """The data set in four files: X_train uint8 (N, 1, H, W), y_train (N,), X_test, y_test, and its classes' names.

    The classes are called by their labels, from 0 on. Raises ValueError if the files do not fit together.
    """
    X_train, X_test = (read_idx(path)[:, None] for path in files[::2])
    y_train, y_test = map(read_idx, files[1::2])
    for X, y in ((X_train, y_train), (X_test, y_test)):
        if X.ndim != 4 or y.ndim != 1 or len(X) != len(y) or not len(X) or X.shape[1:] != X_train.shape[1:]:
            raise ValueError(f"images {X.shape} and labels {y.shape} do not fit together; give files of one data set")
    return X_train, y_train, X_test, y_test, [str(label) for label in range(y_train.max() + 1)]
