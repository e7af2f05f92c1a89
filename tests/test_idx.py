"""The files of MNIST and its relatives, in a folder, as they were published."""

import gzip
import struct

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.idx import find_idx, read_idx


def idx(array):
    """The bytes of an IDX file, as its description has them."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


PARTS = {"X": np.random.default_rng(4).integers(0, 256, (90, 9, 12))}
PARTS |= {"y": np.arange(90) % 3, "X_test": PARTS["X"][:40] // 2, "y_test": np.arange(40)[::-1] % 3}
FILES = {
    "as published": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz"),
    "unpacked": ("train-images.idx3-ubyte", "train-labels.idx1-ubyte", "t10k-images.idx3-ubyte"),
    "EMNIST": ("emnist-a-train-images-idx3-ubyte.gz", "emnist-a-train-labels-idx1-ubyte", "emnist-a-test-images-idx3"),
}
LAST = {
    "as published": "t10k-labels-idx1-ubyte.gz",
    "unpacked": "t10k-labels.idx1-ubyte",
    "EMNIST": "x-test-labels-idx1",
}


def write(folder, kind):
    folder.mkdir()
    for name, part in zip((*FILES[kind], LAST[kind]), PARTS.values(), strict=True):
        data = idx(part)
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
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


def test_commands(tmp_path, capsys):
    folder, run = write(tmp_path / "mnist", "as published"), str(tmp_path / "run")
    words = ["--data", str(folder), "--network", "cnn", "--epochs", "2", "--init", "he", "--environment", "cpu"]
    assert cli.main(["train", *words, "--lr", "0.01", "--batch-size", "30", "--checkpoint", run]) == 0
    said = capsys.readouterr().out
    assert "90 for training, read as 12 × 9 in grey" in said
    assert cli.main(["predict", run, "--data", str(folder)]) == 0
    accuracy = float(capsys.readouterr().out.split("test acc: ")[1].split()[0])
    assert f"test acc: {accuracy:.2f}" in said
    assert cli.main(["train", *words, "--channels", "1"]) == 2
    assert "IDX files keep their size" in capsys.readouterr().err
    assert cli.main(["train", *words, "--plot", str(folder / "t10k-labels-idx1-ubyte.gz")]) == 2


def test_what_is_no_data_set(tmp_path):
    folder = write(tmp_path / "mnist", "unpacked")
    assert find_idx(tmp_path) is None
    with pytest.raises(ValueError, match=r"keep their size, \(1, 9, 12\)"):
        d2l.load_image_data(folder, (1, 28, 28))
    (folder / FILES["unpacked"][0]).rename(folder / "train-images.idx3.old.idx3-ubyte")
    (folder / "train-images.idx3-ubyte").write_bytes(idx(PARTS["X"][:3]))
    with pytest.raises(ValueError, match="it should have images and labels"):
        find_idx(folder)
    (folder / "train-images.idx3.old.idx3-ubyte").unlink()
    with pytest.raises(ValueError, match="do not fit together"):
        d2l.load_image_data(folder)


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1], lambda data: b"", lambda data: data[:7], lambda data: b"PNG" + data]
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_damaged_files(tmp_path, change, pack):
    (tmp_path / "file").write_bytes(pack(change(idx(PARTS["X"]))))
    with pytest.raises(ValueError, match="is not a complete IDX file"):
        read_idx(tmp_path / "file")
    (tmp_path / "file").write_bytes(gzip.compress(idx(PARTS["X"]))[:-9])
    with pytest.raises(ValueError, match="is not a complete IDX file"):
        read_idx(tmp_path / "file")
