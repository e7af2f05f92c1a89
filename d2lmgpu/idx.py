"""IDX files, the format of MNIST and its relatives: an array of bytes, preceded by its sizes.

A file consists of two zero bytes, the type (8 for uint8), the number of axes, the size of each axis in four bytes, and
the data; most are compressed by gzip (LeCun, Cortes and Burges, "The MNIST database of handwritten digits", 1998).
"""

import gzip
import struct
import zlib
from pathlib import Path

import numpy as np

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
"""The names of a data set's four files, each perhaps with ``.gz`` at its end."""

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
    """The paths of a data set's four `FILES` in a folder, or None if the folder has none of them.

    Of a packed and an unpacked copy, the packed one is taken, because it has a checksum. Raises ValueError if the
    folder has only some of the files.
    """
    found = []
    for name in FILES:
        copies = Path(folder, f"{name}.gz"), Path(folder, name)
        found.append(next(filter(Path.is_file, copies), None))
    if not any(found):
        return None
    missing = [name for name, path in zip(FILES, found, strict=True) if path is None]
    if missing:
        raise ValueError(f"{folder} has only some of a data set's files; there is no {', no '.join(missing)}")
    return found


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
