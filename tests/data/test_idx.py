"""The files of MNIST and its relatives, in a folder, as they were published."""

import gzip
import struct

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.data.fashion_mnist import find_idx, read_idx


def idx(array):
    """The bytes of an IDX file, as its description has them."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


PARTS = {"X": np.random.default_rng(4).integers(0, 256, (90, 9, 12))}
PARTS |= {"y": np.arange(90) % 3, "X_test": PARTS["X"][:40] // 2, "y_test": np.arange(40)[::-1] % 3}
FILES = {
    "as published": ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-{}-idx{}-ubyte.gz"],
    "unpacked": ["train-images.idx3-ubyte", "train-labels.idx1-ubyte", "t10k-{}.idx{}-ubyte"],
}


def write(folder, kind, parts=PARTS):
    """Write a data set."""
    folder.mkdir()
    *names, test = FILES[kind]
    for name, part in zip([*names, test.format("images", 3), test.format("labels", 1)], parts.values(), strict=True):
        data = idx(part)
        (folder / name).write_bytes(gzip.compress(data, mtime=0) if name.endswith(".gz") else data)
    (folder / "readme.txt").write_text("train images")
    return folder


@pytest.mark.parametrize("kind", FILES)
def test_a_data_set(tmp_path, kind):
    folder = write(tmp_path / "mnist", kind)
    *found, names = d2l.load_image_data(folder)
    for array, part in zip(found, PARTS.values(), strict=True):
        np.testing.assert_array_equal(array.reshape(part.shape), part)
        assert array.dtype == np.uint8
    assert found[0].shape == (90, 1, 9, 12) and names == ["0", "1", "2"]
    np.testing.assert_array_equal(d2l.load_image_data(folder, (1, 9, 12), invert=True)[2], 255 - found[2])


def test_what_else_is_in_the_folder(tmp_path):
    """What systems and browsers leave there, halves of downloads, and packed and unpacked copies."""
    folder = write(tmp_path / "mnist", "as published", PARTS | {"y_test": np.arange(40) % 2})
    expected = find_idx(folder)
    for path in expected:
        for name in ("._{}", "{}.part", "{}.crdownload", "{}~", "{}.tmp", "{}.md5", ".{}.swp", "{} (1).gz", "{}.1"):
            (folder / name.format(path.name)).write_bytes(b"\0\5\x16\7Mac OS X")
    for name in ("__MACOSX", ".ipynb_checkpoints", "t10k-images-idx3", "train", "test"):
        (folder / name).mkdir(exist_ok=True)
    assert find_idx(folder) == expected
    for path in expected:
        (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes())[:-1])  # unpacking was interrupted
    *found, names = d2l.load_image_data(folder)
    np.testing.assert_array_equal(found[0][:, 0], PARTS["X"])
    assert names == ["0", "1", "2"]  # of which one is not tested


IMAGES = idx(PARTS["X"])
BAD_FILES = {
    "train-images.idx3-ubyte": [idx(PARTS["X"][:3]), "do not fit together"],
    "t10k-labels.idx1-ubyte": [idx(np.arange(40) % 5), "has labels up to 4; .*train-labels.* only up to 2"],
    "kmnist-train-images.idx3-ubyte": [b"", "of training images it has kmnist-train-images.*, train-images.idx3"],
    "train-labels.idx1-ubyte": [None, "images and labels of one data set; of training labels it has none"],
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_what_is_no_data_set(tmp_path, name):
    """One file of the folder has something else, is missing, or is one too many."""
    content, said = BAD_FILES[name]
    folder = write(tmp_path / "mnist", "unpacked")
    assert find_idx(tmp_path) is None
    (folder / name).unlink() if content is None else (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=said):
        d2l.load_image_data(folder)


BROKEN = [IMAGES[:-1], b"", IMAGES[:7], b"PNG" + IMAGES]


def packed(data):
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize("content", [*BROKEN, *map(packed, BROKEN), packed(IMAGES)[:-9]])
def test_damaged_files(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="is not a complete IDX file"):
        read_idx(tmp_path / "file")


def test_commands(tmp_path, capsys):
    folder, run = write(tmp_path / "mnist", "as published"), str(tmp_path / "run")
    words = ["--data", str(folder), "--network", "cnn", "--epochs", "2", "--init", "he", "--environment", "cpu"]
    assert cli.main(["train", *words, "--lr", "0.01", "--batch-size", "30", "--checkpoint", run]) == 0
    said = capsys.readouterr().out
    assert "90 for training, read as 12 × 9 in grey" in said
    assert cli.main(["predict", run, "--data", str(folder)]) == 0
    accuracy = float(capsys.readouterr().out.split("test acc: ")[1].split()[0])
    assert f"test acc: {accuracy:.2f}" in said
    assert cli.main(["train", *words, "--channels", "3"]) == 2
    assert "IDX files keep their size" in capsys.readouterr().err
