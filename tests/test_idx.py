"""The files of MNIST and its relatives, in a folder, as they were published."""

import gzip
import struct

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.idx import FILES, find_idx, read_idx


def idx(array):
    """The bytes of an IDX file, as its description has them."""
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


PARTS = {"X": np.random.default_rng(4).integers(0, 256, (90, 9, 12))}
PARTS |= {"y": np.arange(90) % 3, "X_test": PARTS["X"][:40] // 2, "y_test": np.arange(40)[::-1] % 3}


def write(folder, kind="packed", parts=None):
    """Write a data set."""
    folder.mkdir()
    for name, part in zip(FILES, (parts or PARTS).values(), strict=True):
        if kind == "packed":
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(part)))
        else:
            (folder / name).write_bytes(idx(part))
    (folder / "readme.txt").write_text("train images")
    return folder


@pytest.mark.parametrize("kind", ["packed", "unpacked"])
def test_a_data_set(tmp_path, kind):
    folder = write(tmp_path / "mnist", kind)
    *found, names = d2l.load_image_data(folder)
    for array, part in zip(found, PARTS.values(), strict=True):
        np.testing.assert_array_equal(array.reshape(part.shape), part)
        assert array.dtype == np.uint8
    assert found[0].shape == (90, 1, 9, 12) and names == ["0", "1", "2"]
    np.testing.assert_array_equal(d2l.load_image_data(folder, (1, 9, 12), invert=True)[2], 255 - found[2])


def test_labels_from_1(tmp_path):
    """As EMNIST's letters have: class 0 has no example."""
    y = np.arange(90) % 3 + 1
    folder = write(tmp_path / "letters", "unpacked", PARTS | {"y": y, "y_test": y[-40:]})
    _, y_train, _, _, names = d2l.load_image_data(folder)
    assert names == ["0", "1", "2", "3"] and y_train.tolist() == y.tolist()


def test_copies(tmp_path):
    """Of which the packed one has a checksum, so it is taken."""
    folder = write(tmp_path / "mnist")
    for path in find_idx(folder):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes())[:-1])  # unpacking was interrupted
    np.testing.assert_array_equal(d2l.load_image_data(folder)[0][:, 0], PARTS["X"])


def test_commands(tmp_path, capsys):
    folder, run = write(tmp_path / "mnist"), str(tmp_path / "run")
    words = ["--data", str(folder), "--network", "cnn", "--epochs", "2", "--init", "he", "--environment", "cpu"]
    assert cli.main(["train", *words, "--lr", "0.01", "--batch-size", "30", "--checkpoint", run]) == 0
    said = capsys.readouterr().out
    assert "90 for training, read as 12 × 9 in grey" in said
    assert cli.main(["predict", run, "--data", str(folder)]) == 0
    accuracy = float(capsys.readouterr().out.split("test acc: ")[1].split()[0])
    assert f"test acc: {accuracy:.2f}" in said
    assert cli.main(["train", *words, "--channels", "3"]) == 2
    assert "IDX files keep their size" in capsys.readouterr().err


def test_what_is_no_data_set(tmp_path):
    folder = write(tmp_path / "mnist", "unpacked")
    assert find_idx(tmp_path) is None
    with pytest.raises(ValueError, match=r"keep their size, \(1, 9, 12\)"):
        d2l.load_image_data(folder, (1, 28, 28))
    (folder / FILES[0]).write_bytes(idx(PARTS["X"][:3]))
    with pytest.raises(ValueError, match="do not fit together"):
        d2l.load_image_data(folder)
    (folder / FILES[0]).unlink()
    with pytest.raises(ValueError, match="only some of a data set's files; there is no train-images-idx3-ubyte"):
        find_idx(folder)


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1], lambda data: b"", lambda data: data[:7], lambda data: b"PNG" + data]
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_damaged_files(tmp_path, change, pack):
    (tmp_path / "file").write_bytes(pack(change(idx(PARTS["X"]))))
    with pytest.raises(ValueError, match="is not a complete IDX file"):
        read_idx(tmp_path / "file")
