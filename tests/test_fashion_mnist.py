"""The loader: right data, and one clear error where a file is missing, truncated or altered."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu.data import fashion_mnist

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
    for name, original in fashion_mnist.FILES.items():
        assert hashlib.md5((SHIPPED / name).read_bytes()).hexdigest() == original
    assert "Permission is hereby granted" in (SHIPPED / "LICENSE").read_text()


@pytest.fixture
def places(tmp_path, monkeypatch):
    """Two folders, in which alone files are looked for."""
    folders = tmp_path / "chosen", tmp_path / "further"
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(fashion_mnist, "_folders", lambda: iter(folders))
    return folders


def test_places_in_order(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LMGPU_DATA", str(tmp_path))
    folders = [str(folder) for folder in fashion_mnist._folders()]
    assert folders[:2] == [str(tmp_path), str(SHIPPED)]
    assert fashion_mnist.find_file(NAME) == SHIPPED / NAME  # not in the first place
    shutil.copy(SHIPPED / NAME, tmp_path)
    assert fashion_mnist.find_file(NAME) == tmp_path / NAME


def test_in_the_current_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(fashion_mnist, "shipped", lambda name: tmp_path / "nowhere")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SHIPPED, tmp_path / "data" / "fashion-mnist")
    assert fashion_mnist.find_file(NAME) == Path("data", "fashion-mnist", NAME).absolute()


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-100], lambda data: data[:50] + b"?" + data[51:], lambda data: b""]
)
def test_a_damaged_file(places, damage):
    chosen, further = places
    damaged = damage((SHIPPED / NAME).read_bytes())
    (chosen / NAME).write_bytes(damaged)
    shutil.copy(SHIPPED / NAME, further)  # a good one further on must not hide the damage
    with pytest.raises(d2l.DataError) as error:
        fashion_mnist.find_file(NAME)
    sums = (fashion_mnist.FILES[NAME], hashlib.md5(damaged).hexdigest())
    for part in (str(chosen / NAME), *sums, "truncated or altered"):
        assert part in str(error.value)
    assert (chosen / NAME).read_bytes() == damaged  # nothing is overwritten


def test_a_missing_file(places):
    with pytest.raises(d2l.DataError) as error:
        fashion_mnist.find_file(NAME)
    for part in (NAME, fashion_mnist.FILES[NAME], *map(str, places)):
        assert part in str(error.value)
    assert "Put the original file into a folder that you name in D2LMGPU_DATA" in str(error.value)


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_what_is_here_is_found_without_a_home(monkeypatch, tmp_path, home):
    """And with a folder that cannot be read before it; the home of this user, who has no entry, is not asked for."""
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    monkeypatch.delenv("HOME") if home is None else monkeypatch.setenv("HOME", home)
    closed = Path(tmp_path, "x" * 300)  # a name that the system refuses
    monkeypatch.setenv("D2LMGPU_DATA", str(closed))
    assert fashion_mnist.find_file(NAME) == SHIPPED / NAME
    monkeypatch.setattr(fashion_mnist, "shipped", lambda name: closed)
    monkeypatch.chdir(tmp_path)
    shutil.copytree(SHIPPED, tmp_path / "data" / "fashion-mnist")
    assert fashion_mnist.find_file(NAME) == tmp_path / "data" / "fashion-mnist" / NAME
