"""Find, check, download and read Fashion-MNIST (Xiao, Rasul and Vollgraf 2017; MIT licence).

The four original files are looked for in these places, in this order:

1. the folder named by the environment variable ``D2LMGPU_DATA``,
2. the package's own data: ``data/`` in a clone, or ``share/d2lmgpu/data/`` in an environment,
3. ``data/`` in the current folder,
4. the folder of Debian's package ``dataset-fashion-mnist``,
5. the user's cache.

If they are in none of these, they are downloaded to the user's cache. A file is used only if its MD5 sum is right. A
wrong file is never replaced and never silently ignored.
"""

import contextlib
import hashlib
import os
from pathlib import Path

import numpy as np

from .devices.errors import message_of
from .idx import read_idx
from .output import check_writable, write_file
from .shipped import shipped

CLASSES = ("t-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")
"""The names of the classes with labels 0 to 9."""

FILES = {  # MD5 sums of the published file, and of Debian's (the same data with a shorter gzip header)
    "train-images-idx3-ubyte.gz": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", "cf8536b0aa1a6ac5fa3f23001093305c"),
    "train-labels-idx1-ubyte.gz": ("25c81989df183df01b3e8a0aad5dffbe", "10bea18fdb374794d4bb42e356e600c9"),
    "t10k-images-idx3-ubyte.gz": ("bef4ecab320f06d8554ea6380940ec79", "f78720b4224f21cce2f2ccf2d7a94c9a"),
    "t10k-labels-idx1-ubyte.gz": ("bb300cfdad3c16e7a12a480ee83cd310", "0d30e22e447f3c33dab9ed536400ac01"),
}

SIZES = dict(zip(FILES, (26_421_880, 29_515, 4_422_102, 5_148), strict=True))
"""The sizes of the published files in bytes: a longer file is not downloaded."""

MIRRORS = (
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",  # which has no https
)

WAIT = 30.0
"""Seconds to wait for an answer from a mirror before trying the next one."""


class DataError(RuntimeError):
    """A data file is missing, truncated or altered; the message names the file and the places that were searched."""


def load_fashion_mnist() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The data set: X_train uint8 (60000, 1, 28, 28), y_train uint8 (60000,), X_test, y_test (10000 each).

    The arrays are read-only. Raises DataError if a file is missing, truncated or altered.
    """
    X_train, y_train, X_test, y_test = (read_idx(find_file(name)) for name in FILES)
    return X_train[:, None], y_train, X_test[:, None], y_test


def find_file(name):
    """The path of a data file with the right MD5 sum; it is downloaded if it is not found anywhere.

    Raises DataError if that fails, or if a file is truncated or altered.
    """
    path = next(filter(os.path.exists, (folder / name for folder in _folders())), None)
    if path is None:
        return _download(name, [str(folder / name) for folder in _folders()])
    found = hashlib.md5(path.read_bytes()).hexdigest()
    if found not in FILES[name]:
        raise DataError(
            f"{path} is truncated or altered: expected MD5 {FILES[name][0]}, found {found} "
            f"({path.stat().st_size:,} bytes). Replace or remove it"
        )
    return path


def cache_folder():
    """The folder for downloads. Raises DataError if the user has no known home folder."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no HOME, and no such user, as in some containers
        raise DataError(
            "Fashion-MNIST is not here, and there is no home folder to download it to; set HOME, or set D2LMGPU_DATA "
            "to the folder that has the files"
        ) from None
    return folder / "d2lmgpu" / "fashion-mnist"


def _folders():
    if os.environ.get("D2LMGPU_DATA"):
        yield Path(os.path.expanduser(os.environ["D2LMGPU_DATA"]))
    yield shipped("data/fashion-mnist")
    with contextlib.suppress(OSError):  # the current folder was deleted
        yield Path("data", "fashion-mnist").absolute()
    yield Path("/usr/share/datasets/fashion-mnist")
    yield cache_folder()


def _download(name, tried):
    """Download a file to the cache, if its MD5 sum is right. ``tried``: the places that were searched."""
    target = cache_folder() / name
    by_hand = f"Put the original file into {target.parent}, or into a folder that you name in D2LMGPU_DATA"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        check_writable(target)  # better before the download than after it
        for url in (mirror + name for mirror in MIRRORS):
            try:
                data = _fetch(url, name)
            except Exception as error:  # urllib raises many kinds of errors for answers that are not HTTP
                tried.append(f"{url} ({message_of(error)[:200]})")
            else:
                write_file(target, lambda file, data=data: file.write(data))
                return target
    except OSError as error:
        raise DataError(f"{name} cannot be downloaded to {target.parent}: {error}. {by_hand}") from error
    raise DataError(f"{name} was found nowhere: expected MD5 {FILES[name][0]}. {by_hand}. Tried: {', '.join(tried)}")


def _fetch(url, name):
    """The bytes of a file at ``url``. Raises RuntimeError for wrong bytes, and whatever urllib raises."""
    from urllib.request import urlopen

    with urlopen(url, timeout=WAIT) as response:
        data = response.read(SIZES[name] + 1)
    found = hashlib.md5(data).hexdigest()
    if found != FILES[name][0]:
        raise RuntimeError(f"{len(data):,} bytes of {SIZES[name]:,}, MD5 {found}")
    return data
