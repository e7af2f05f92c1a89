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

from ..base.files import visible
from ..base.text import listed

_KINDS = {
    "training images": r"train.*images.*idx3",
    "training labels": r"train.*labels.*idx[12]",
    "test images": r"(t10k|test).*images.*idx3",
    "test labels": r"(t10k|test).*labels.*idx[12]",
}
"""Patterns for the names of a data set's four files: train-images-idx3-ubyte.gz, t10k-labels.idx1-ubyte, …"""
_END = r"[-.]?(ubyte|int)?(\.gz)?$"
"""How these names end, so that half a download is none of them."""

TYPES = {8: "u1", 12: ">i4"}
"""The types of data that are read: bytes, and the integers of QMNIST's labels."""


def read_idx(path):
    """The array in a file: uint8 or big-endian int32, read-only.

    Raises ValueError if the file is incomplete, OSError if it is unreadable.
    """
    data = Path(path).read_bytes()
    try:
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        zero, kind, axes = struct.unpack(">HBB", data[:4])
        begin = 4 + 4 * axes
        if zero == 0 < axes:  # the length must be right, too, or reshape raises ValueError
            return np.frombuffer(data, TYPES[kind], offset=begin).reshape(np.frombuffer(data[4:begin], ">u4"))
    except (KeyError, struct.error, ValueError, EOFError, zlib.error, gzip.BadGzipFile):
        pass
    raise ValueError(f"{path} is not a complete IDX file of bytes")


def find_idx(folder):
    """The four files of a data set in a folder, in the order of `_KINDS`, or None if the folder has none of them.

    Of copies, such as a packed and an unpacked one, the packed one is taken, because it has a checksum. Raises
    ValueError if the folder has only some of the files, or those of several data sets.
    """
    paths, found = visible(folder) if Path(folder).is_dir() else (), {}
    for kind, name in _KINDS.items():
        fitting = [path for path in paths if path.is_file() and re.search(name + _END, path.name, re.IGNORECASE)]
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

    Classes are numbered from 0, whatever their labels are. Prints in what way the arrays are not those of the files.
    Raises ValueError if the files do not fit together.
    """
    X_train, X_test = map(read_pictures, files[::2])
    y_train, y_test = (y[:, 0] if y.ndim == 2 else y for y in map(read_idx, files[1::2]))  # QMNIST's writers left out
    for X, y in ((X_train, y_train), (X_test, y_test)):
        if X.ndim != 4 or y.ndim != 1 or len(X) != len(y) or not len(X) or X.shape[1:] != X_train.shape[1:]:
            raise ValueError(f"images {X.shape} and labels {y.shape} do not fit together; give files of one data set")
    labels = np.unique(y_train)
    unknown = np.setdiff1d(y_test, labels)
    if unknown.size:
        raise ValueError(f"{files[3]} has labels {listed(unknown)}; {files[1]} has none of them to learn from")
    if _is_emnist(files[0]):
        print("EMNIST's pictures are stored transposed: they were turned upright")
    if labels[0] != 0 or labels[-1] != len(labels) - 1:
        these = listed(labels) if np.diff(labels).max(initial=1) > 1 else f"{labels[0]} to {labels[-1]}"
        print(f"labels {these} are read as classes 0 to {len(labels) - 1}")
    y_train, y_test = (
        np.searchsorted(labels, y).astype(np.min_scalar_type(len(labels) - 1)) for y in (y_train, y_test)
    )
    return X_train, y_train, X_test, y_test, _names(labels.tolist(), files[1])


def read_pictures(path):
    """The images in a file: uint8 (N, 1, H, W), with EMNIST's turned upright, which are stored column by column."""
    X = read_idx(path)[:, None]
    return X.swapaxes(-2, -1) if _is_emnist(path) else X


def _is_emnist(path):
    return "emnist" in path.name.lower()


def _names(labels, path):
    """The names of classes: the characters that EMNIST's mapping gives for labels, if it is there, or the labels."""
    mapping = path.with_name(re.sub("train.*", "mapping.txt", path.name))
    if not _is_emnist(path) or not mapping.is_file():
        return list(map(str, labels))
    try:  # a line is a label and the numbers of its characters, such as "1 65 97" for A and a
        codes = dict(np.loadtxt(mapping, int, usecols=(0, 1), ndmin=2).tolist())
        return [chr(codes[label]) for label in labels]
    except (ValueError, KeyError, OverflowError):
        raise ValueError(f"{mapping} should have a line for each label: the label, and a character's number") from None
