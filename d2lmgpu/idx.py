"""IDX files, the format of MNIST and its relatives: an array of bytes, preceded by its sizes.

A file consists of two zero bytes, the type (8 for uint8), the number of axes, the size of each axis in four bytes, and
the data; most are compressed by gzip (LeCun, Cortes and Burges, "The MNIST database of handwritten digits", 1998).
"""

import gzip
import math
import re
import zlib
from pathlib import Path

import numpy as np

NAMES = ("train.*images.*idx3", "train.*labels.*idx1", "(t10k|test).*images.*idx3", "(t10k|test).*labels.*idx1")
"""Patterns for the names of a data set's four files: train-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte, …"""


def read_idx(path):
    """The array in a file: uint8, read-only. Raises ValueError if the file is incomplete, OSError if unreadable."""
    data = Path(path).read_bytes()
    try:
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        axes = data[3]
        shape = np.frombuffer(data, ">u4", axes, offset=4).tolist()
        if data[:3] == b"\0\0\x08" and len(data) == 4 + 4 * axes + math.prod(shape):
            return np.frombuffer(data, np.uint8, offset=4 + 4 * axes).reshape(shape)
    except (IndexError, ValueError, EOFError, zlib.error, gzip.BadGzipFile):
        pass
    raise ValueError(f"{path} is not a complete IDX file of bytes")


def find_idx(folder):
    """The four files of a data set in a folder, in the order of `NAMES`, or None if the folder has none of them.

    Raises ValueError if the folder has only some of them, or several of a kind.
    """
    paths = sorted(path for path in Path(folder).glob("*") if path.is_file())  # empty if there is no such folder
    found = [[path for path in paths if re.search(name, path.name)] for name in NAMES]
    if not any(found):
        return None
    if any(len(each) != 1 for each in found):
        there = ", ".join(path.name for each in found for path in each)
        raise ValueError(f"{folder} has {there}; it should have images and labels, both for training and for testing")
    return [path for (path,) in found]
