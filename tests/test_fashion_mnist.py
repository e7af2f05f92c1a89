"""The loader: right data, and one clear error where a file is missing, truncated or altered."""

import hashlib
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from website import serving

import d2lmgpu as d2l
from d2lmgpu import fashion_mnist

SHIPPED = Path(__file__).resolve().parents[1] / "data" / "fashion-mnist"
NAME = "t10k-labels-idx1-ubyte.gz"


def test_the_data_set():
    X_train, y_train, X_test, y_test = d2l.load_fashion_mnist()
    assert X_train.shape == (60000, 1, 28, 28) and X_test.shape == (10000, 1, 28, 28)
    assert X_train.dtype == y_train.dtype == np.uint8
    np.testing.assert_array_equal(np.bincount(y_train), [6000] * 10)
    np.testing.assert_array_equal(np.bincount(y_test), [1000] * 10)
    assert y_train[:5].tolist() == [9, 0, 0, 3, 0]  # ankle boot, t-shirt, t-shirt, dress, t-shirt
    assert X_train.mean() / 255 == pytest.approx(0.2860, abs=1e-4)
    assert X_train.std() / 255 == pytest.approx(0.3530, abs=1e-4)


def test_the_shipped_files_are_the_original_ones():
    for name, (original, _) in fashion_mnist.FILES.items():
        assert hashlib.md5((SHIPPED / name).read_bytes()).hexdigest() == original
    assert "Permission is hereby granted" in (SHIPPED / "LICENSE").read_text()


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Two folders to look in (chosen, cache) and mirrors on this machine; nothing else is looked at."""
    chosen, cache = tmp_path / "chosen", tmp_path / "cache" / "d2lmgpu" / "fashion-mnist"
    chosen.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fashion_mnist, "_folders", lambda: iter([chosen, cache]))
    monkeypatch.setattr(fashion_mnist, "MIRRORS", ())
    return chosen, cache


@pytest.fixture
def mirror(tmp_path):
    """A web server on this machine: (its address, the folder that it serves)."""
    folder = tmp_path / "mirror"
    folder.mkdir()

    with serving(folder) as address:
        yield address, folder


def test_places_in_order(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LMGPU_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    folders = [str(folder) for folder in fashion_mnist._folders()]
    assert folders[:2] == [str(tmp_path), str(SHIPPED)]
    assert folders[-2:] == ["/usr/share/datasets/fashion-mnist", "/somewhere/cache/d2lmgpu/fashion-mnist"]
    assert fashion_mnist.find_file(NAME) == SHIPPED / NAME  # not in the first place
    shutil.copy(SHIPPED / NAME, tmp_path)
    assert fashion_mnist.find_file(NAME) == tmp_path / NAME


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_what_is_here_is_found_without_a_home(monkeypatch, tmp_path, home):
    """And with a folder that cannot be read before it; the home of this user, who has no entry, is not asked for."""
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME") if home is None else monkeypatch.setenv("HOME", home)
    closed = Path(tmp_path, "x" * 300)  # a name that the system refuses
    monkeypatch.setenv("D2LMGPU_DATA", str(closed))
    assert fashion_mnist.find_file(NAME) == SHIPPED / NAME
    monkeypatch.setattr(fashion_mnist, "shipped", lambda name: closed)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SHIPPED, tmp_path / "data" / "fashion-mnist")
    assert fashion_mnist.find_file(NAME) == tmp_path / "data" / "fashion-mnist" / NAME


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-100], lambda data: data[:50] + b"?" + data[51:], lambda data: b""]
)
def test_a_damaged_file(places, damage):
    chosen, cache = places
    damaged = damage((SHIPPED / NAME).read_bytes())
    (chosen / NAME).write_bytes(damaged)
    cache.mkdir(parents=True)
    shutil.copy(SHIPPED / NAME, cache)  # a good one further on must not hide the damage
    with pytest.raises(d2l.DataError) as error:
        fashion_mnist.find_file(NAME)
    sums = (fashion_mnist.FILES[NAME][0], hashlib.md5(damaged).hexdigest())
    for part in (str(chosen / NAME), *sums, "truncated or altered"):
        assert part in str(error.value)
    assert (chosen / NAME).read_bytes() == damaged  # nothing is overwritten


def test_a_missing_file(places, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "MIRRORS", ("http://127.0.0.1:9/",))  # nobody answers there
    with pytest.raises(d2l.DataError) as error:
        fashion_mnist.find_file(NAME)
    for part in (NAME, fashion_mnist.FILES[NAME][0], *map(str, places), "http://127.0.0.1:9/" + NAME):
        assert part in str(error.value)
    assert f"Put the original file into {places[1]}, or into a folder that you name in D2LMGPU_DATA" in str(error.value)


def test_sizes_and_mirrors():
    for name, size in fashion_mnist.SIZES.items():
        assert (SHIPPED / name).stat().st_size == size
    assert [mirror.partition(":")[0] for mirror in fashion_mnist.MIRRORS] == ["https", "https", "http"]


def test_a_cache_that_takes_nothing(places, mirror, monkeypatch):
    """Is said before anything is downloaded."""
    monkeypatch.setattr(fashion_mnist, "MIRRORS", (mirror[0],))
    monkeypatch.setattr(fashion_mnist, "_fetch", None)
    places[1].parents[1].write_text("a file")
    with pytest.raises(d2l.DataError, match=f"{NAME} cannot be downloaded to {places[1]}: .*ot a directory"):
        fashion_mnist.find_file(NAME)


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_a_download_is_for_those_for_whom_the_users_files_are(places, mirror, monkeypatch, umask):
    shutil.copy(SHIPPED / NAME, mirror[1])
    monkeypatch.setattr(fashion_mnist, "MIRRORS", (mirror[0],))
    former = os.umask(umask)
    try:
        assert fashion_mnist.find_file(NAME).stat().st_mode & 0o777 == 0o666 & ~umask
    finally:
        os.umask(former)


def test_download(places, mirror, monkeypatch):
    """The first mirror is dead, the second has a wrong file, the third the right one."""
    address, folder = mirror
    (folder / "wrong").mkdir()
    (folder / "wrong" / NAME).write_bytes(b"no data set")
    shutil.copy(SHIPPED / NAME, folder)
    monkeypatch.setattr(fashion_mnist, "MIRRORS", ("http://127.0.0.1:9/", address + "wrong/", address))
    _, cache = places
    assert fashion_mnist.find_file(NAME) == cache / NAME
    assert [path.name for path in cache.iterdir()] == [NAME]  # no temporary file is left
    assert (cache / NAME).read_bytes() == (SHIPPED / NAME).read_bytes()


def test_a_wrong_download_is_never_kept(places, mirror, monkeypatch):
    address, folder = mirror
    (folder / NAME).write_bytes(b"no data set")
    monkeypatch.setattr(fashion_mnist, "MIRRORS", (address,))
    with pytest.raises(d2l.DataError, match=f"11 bytes of 5,148, MD5 {hashlib.md5(b'no data set').hexdigest()}"):
        fashion_mnist.find_file(NAME)
    assert list(places[1].iterdir()) == []


def test_debians_files_are_known():
    folder = Path("/usr/share/datasets/fashion-mnist")
    if not folder.exists():
        pytest.skip("Debian's package dataset-fashion-mnist is not installed")
    for name in fashion_mnist.FILES:
        assert hashlib.md5((folder / name).read_bytes()).hexdigest() in fashion_mnist.FILES[name]
        np.testing.assert_array_equal(fashion_mnist.read_idx(folder / name), fashion_mnist.read_idx(SHIPPED / name))
