"""Fashion-MNIST (Xiao, Rasul and Vollgraf 2017; MIT licence), and other data sets in the format of MNIST.

Such a set has four files in the IDX format, each an array of bytes: two zero bytes, the type (8 for uint8), the number
of axes, the size of each axis in four bytes, and the data; most are compressed by gzip (LeCun, Cortes and Burges, "The
MNIST database of handwritten digits", 1998). Those of Fashion-MNIST are looked for in these places, in this order:

1. the folder named by the environment variable ``D2LMGPU_DATA``,
2. the package's own data: ``data/`` in a clone, or ``share/d2lmgpu/data/`` in an environment,
3. ``data/`` in the current folder.

A file is used only if its MD5 sum is right. A wrong file is never replaced and never silently ignored.
"""

import gzip
import hashlib
import os
import re
import struct
import zlib
from pathlib import Path

import numpy as np

from ..base.files import shipped, visible
from ..base.text import listed

CLASSES = ("t-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
"""The names of the classes with labels 0 to 9."""

FILES = {  # and their MD5 sums
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}


class DataError(RuntimeError):
    """A data file is missing, truncated or altered; the message names the file and the places that were searched."""


def load_fashion_mnist() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The data set: X_train uint8 (60000, 1, 28, 28), y_train uint8 (60000,), X_test, y_test (10000 each).

    The arrays are read-only. Raises DataError if a file is missing, truncated or altered.
    """
    X_train, y_train, X_test, y_test = (read_idx(find_file(name)) for name in FILES)
    return X_train[:, None], y_train, X_test[:, None], y_test


def find_file(name):
    """The path of a data file with the right MD5 sum. Raises DataError if it is missing, truncated or altered."""
    path = next(filter(os.path.exists, (folder / name for folder in _folders())), None)
    if path is None:
        raise DataError(
            f"{name} was found nowhere: expected MD5 {FILES[name]}. Put the original file into a folder that you "
            f"name in D2LMGPU_DATA. Tried: {', '.join(str(folder / name) for folder in _folders())}"
        )
    found = hashlib.md5(path.read_bytes()).hexdigest()
    if found != FILES[name]:
        raise DataError(
            f"{path} is truncated or altered: expected MD5 {FILES[name]}, found {found} "
            f"({path.stat().st_size:,} bytes). Replace or remove it"
        )
    return path


def _folders():
    if os.environ.get("D2LMGPU_DATA"):
        yield Path(os.path.expanduser(os.environ["D2LMGPU_DATA"]))
    yield shipped("data/fashion-mnist")
    yield Path("data", "fashion-mnist")


# Data sets in the format of MNIST:

_KINDS = {
    "training images": r"train.*images.*idx3",
    "training labels": r"train.*labels.*idx1",
    "test images": r"(t10k|test).*images.*idx3",
    "test labels": r"(t10k|test).*labels.*idx1",
}
"""Patterns for the names of a data set's four files: train-images-idx3-ubyte.gz, t10k-labels.idx1-ubyte, …"""
_END = r"[-.]?(ubyte)?(\.gz)?$"
"""How these names end, so that half a download is none of them."""


def read_idx(path):
    """The array in a file: uint8, read-only.

    Raises ValueError if the file is incomplete, OSError if it is unreadable.
    """
    data = Path(path).read_bytes()
    try:
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        zero, kind, axes = struct.unpack(">HBB", data[:4])
        begin = 4 + 4 * axes
        if zero == 0 < axes and kind == 8:  # the length must be right, too, or reshape raises ValueError
            return np.frombuffer(data, np.uint8, offset=begin).reshape(np.frombuffer(data[4:begin], ">u4"))
    except (struct.error, ValueError, EOFError, zlib.error, gzip.BadGzipFile):
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

    The names are the labels, from 0 to the highest. Raises ValueError if the files do not fit together.
    """
    X_train, y_train, X_test, y_test = map(read_idx, files)
    for X, y in ((X_train, y_train), (X_test, y_test)):
        if X.ndim != 3 or y.ndim != 1 or len(X) != len(y) or not len(X) or X.shape[1:] != X_train.shape[1:]:
            raise ValueError(f"images {X.shape} and labels {y.shape} do not fit together; give files of one data set")
    if y_test.max() > y_train.max():
        raise ValueError(f"{files[3]} has labels up to {y_test.max()}; {files[1]} only up to {y_train.max()}")
    return X_train[:, None], y_train, X_test[:, None], y_test, [str(label) for label in range(y_train.max() + 1)]
