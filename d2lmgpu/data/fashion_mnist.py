"""Find, check and read Fashion-MNIST (Xiao, Rasul and Vollgraf 2017; MIT licence).

The four original files are looked for in these places, in this order:

1. the folder named by the environment variable ``D2LMGPU_DATA``,
2. the package's own data: ``data/`` in a clone, or ``share/d2lmgpu/data/`` in an environment,
3. ``data/`` in the current folder.

A file is used only if its MD5 sum is right. A wrong file is never replaced and never silently ignored.
"""

import contextlib
import hashlib
import os
from pathlib import Path

import numpy as np

from ..base.files import shipped
from .idx import read_idx

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
    with contextlib.suppress(OSError):  # the current folder was deleted
        yield Path("data", "fashion-mnist").absolute()
