"""The loader: right data, and one clear error where a file is missing, truncated or altered."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu.data import fashion_mnist

SHIPPED = Path(__file__).resolve().parents[2] / "data" / "fashion-mnist"
NAME = "t10k-labels-idx1-ubyte.gz"
GOOD = (SHIPPED / NAME).read_bytes()


def test_the_data_set():
    X_train, y_train, X_test, y_test = d2l.load_fashion_mnist()
    assert X_train.shape == (60000, 1, 28, 28) and X_test.shape == (10000, 1, 28, 28)
    assert X_train.dtype == y_train.dtype == np.uint8
    np.testing.assert_array_equal(np.bincount(y_train), [6000] * 10)
    np.testing.assert_array_equal(np.bincount(y_test), [1000] * 10)
    assert y_train[:5].tolist() == [9, 0, 0, 3, 0]  # ankle boot, t-shirt, t-shirt, dress, t-shirt
    assert X_test.mean() / 255 == pytest.approx(0.2868, abs=1e-4)
    for name, original in fashion_mnist.FILES.items():
        assert hashlib.md5((SHIPPED / name).read_bytes()).hexdigest() == original
    assert "Permission is hereby granted" in (SHIPPED / "LICENSE").read_text()


@pytest.mark.parametrize("content", [GOOD[:-100], GOOD[:50] + b"?" + GOOD[51:], b"", None])
def test_a_file_that_is_damaged_or_missing(monkeypatch, tmp_path, content):
    """A good one further on does not hide the damage, and nothing is overwritten."""
    chosen, further = folders = tmp_path / "chosen", tmp_path / "further"
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(fashion_mnist, "_folders", lambda: iter(folders))
    said = [*map(str, folders), "Put the original file into a folder that you name in D2LMGPU_DATA"]
    if content is not None:
        (chosen / NAME).write_bytes(content)
        shutil.copy(SHIPPED / NAME, further)
        said = [str(chosen / NAME), hashlib.md5(content).hexdigest(), "truncated or altered"]
    with pytest.raises(d2l.DataError) as error:
        fashion_mnist.find_file(NAME)
    assert [part for part in (*said, NAME, fashion_mnist.FILES[NAME]) if part not in str(error.value)] == []
    assert content is None or (chosen / NAME).read_bytes() == content


def test_places_in_order(monkeypatch, tmp_path):
    monkeypatch.setenv("D2LMGPU_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    places = [tmp_path, SHIPPED, Path("data", "fashion-mnist")]
    assert [*fashion_mnist._folders()] == places
    assert fashion_mnist.find_file(NAME) == SHIPPED / NAME  # not in the first place
    shutil.copy(SHIPPED / NAME, tmp_path)
    assert fashion_mnist.find_file(NAME) == tmp_path / NAME
