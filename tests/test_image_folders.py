"""Training on pictures in folders that are named for their classes, and predicting their names."""

import argparse
import json

import numpy as np
import pytest
from PIL import Image
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.cli.inputs import find_data
from d2lmgpu.networks import NETWORKS, known_network

CLASSES = ["bar", "dot", "sky"]
TRAIN = ["train", "--environment", "cpu", "--devices", "2", "--init", "he", "--batch-size", "8", "--lr", "0.1"]


def draw(name, rng):
    """A small colour picture: a vertical bar, a square in the middle, or nothing, on a dark noisy ground."""
    pixels = rng.integers(0, 60, (30, 20, 3)).astype(np.uint8)
    if name == "bar":
        pixels[:, 3:7] = 255
    if name == "dot":
        pixels[10:20, 8:16] = 220
    return Image.fromarray(pixels)


@pytest.fixture
def folder(tmp_path, rng):
    """Pictures of three classes: 8, 9 and 10 to train on, 2, 3 and 4 to test."""
    for part, count in (("train", 8), ("test", 2)):
        for more, name in enumerate(CLASSES):
            (tmp_path / "pictures" / part / name).mkdir(parents=True)
            for i in range(count + more):
                draw(name, rng).save(tmp_path / "pictures" / part / name / f"{i:02}.png")
    return tmp_path / "pictures"


def test_pictures_to_train_on_and_to_test(folder):
    X_train, y_train, X_test, y_test, names = d2l.load_image_data(folder, (1, 28, 28))
    assert X_train.shape == (27, 1, 28, 28) and X_test.shape == (9, 1, 28, 28) and names == CLASSES
    assert X_train.dtype == y_train.dtype == y_test.dtype == np.uint8
    assert np.bincount(y_train).tolist() == [8, 9, 10] and y_test.tolist() == [0, 0, 1, 1, 1, 2, 2, 2, 2]
    bars = X_test[y_test == 0]
    assert bars[..., 5:9].mean() > 200 > 60 > bars[..., 15:].mean()
    inverted = d2l.load_image_data(folder, (3, 30, 20), invert=True)[2]
    np.testing.assert_array_equal(inverted, 255 - d2l.load_image_data(folder, (3, 30, 20))[2])


@pytest.mark.parametrize("name", NETWORKS)
def test_known_networks_for_other_numbers_of_classes(name):
    ten, three = NETWORKS[name], known_network(name, 3)
    assert (three.classes, three.input_shape) == (3, ten.input_shape) and known_network(name, 10).classes == 10
    assert [layer.shapes for layer in three[:-1]] == [layer.shapes for layer in ten[:-1]]
    assert [shape[:-1] for shape in three[-1].shapes] == [shape[:-1] for shape in ten[-1].shapes]
    assert [shape[-1] for shape in three[-1].shapes] == [3, 3]


@pytest.mark.parametrize("network", ["lenet", "lenet-bn"])
def test_the_commands(folder, tmp_path, capsys, network):
    """Train with a checkpoint, go on from it, and predict: single pictures and the test set."""
    file, result = tmp_path / "trained", tmp_path / "result.json"
    command = [*TRAIN, "--data", str(folder), "--network", network, "--drop-last", "--json", str(result)]
    assert cli.main([*command, "--epochs", "2", "--checkpoint", str(file)]) == 0
    history = json.loads(result.read_text())
    assert history["classes"] == CLASSES and history["drop_last"] and len(history["train_loss"]) == 2
    assert cli.main([*command, "--epochs", "30", "--checkpoint", str(file), "--resume", str(file)]) == 0
    accuracy = json.loads(result.read_text())["test_accuracy"]
    assert len(accuracy) == 30 and accuracy[-1] > 0.8
    capsys.readouterr()

    predict = ["predict", str(file), "--environment", "cpu", "--devices", "2", "--json", str(result)]
    pictures = [str(folder / "test" / name / "01.png") for name in CLASSES]
    assert cli.main([*predict, *pictures]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = json.loads(result.read_text())["predictions"]
    assert [line.split(": ")[1].split()[0] for line in lines] == [row["class"] for row in rows]
    assert sum(row["class"] == name for row, name in zip(rows, CLASSES, strict=True)) >= 2
    assert all(list(row["probabilities"]) == CLASSES for row in rows)
    plots = ["--confusion", str(tmp_path / "confusion.png")]
    assert cli.main([*predict, "--data", str(folder), *plots]) == 0
    found = json.loads(result.read_text())
    assert found["accuracy"] == accuracy[-1] and found["classes"] == CLASSES
    assert np.array(found["confusion"]).sum(axis=1).tolist() == [2, 3, 4]
    capsys.readouterr()

    (folder / "test" / "dot").rename(folder / "test" / "dots")
    for arguments, message in [
        ([], "other classes than Fashion-MNIST's (bar, dot, sky): give pictures, or the folder with their test set"),
        (["--data", str(folder)], "has classes bar, dots, sky; the network was trained on bar, dot, sky"),
        (["--data", str(folder), pictures[0]], "are for the test set; leave out the files"),
        (["--data", str(tmp_path / "none")], "none/test: no such folder; give a folder with"),
    ]:
        assert message in one_line(capsys, *predict, *arguments)


def one_line(capsys, *arguments):
    """What a command that should fail says."""
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" or out.startswith("pictures: ") and out.count("\n") == 1
    assert err.count("\n") == 1
    return err


def test_a_part_of_the_pictures(folder, tmp_path, capsys):
    """--limit takes some of each class; --invert is for them, too."""
    (folder / "train" / "dot" / "notes.txt").write_text("left alone")
    options = argparse.Namespace(data=folder, image_size=(28, 28), channels=1, invert=True)
    data = find_data(options, limit=9)
    whole = d2l.load_image_data(folder, (1, 28, 28))
    assert np.bincount(data[1]).tolist() == [3, 3, 3] and len(data[3]) == 9
    np.testing.assert_array_equal(255 - data[0], whole[0][::3])
    options.invert = False
    assert len(find_data(options, limit=100)[0]) == 27
    said = "pictures: {} for training, read as 28 × 28 in grey\n"
    assert capsys.readouterr().out == said.format(9) + said.format(27)
    assert "--invert is for your own pictures" in one_line(capsys, *TRAIN, "--invert", "--limit", "30")
    assert "drop_last leaves nothing of 7 examples" in one_line(
        capsys, *TRAIN, "--data", str(folder), "--limit", "7", "--drop-last"
    )


def remove(path):
    for inner in path.iterdir() if path.is_dir() else ():
        remove(inner)
    path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    "spoil, message",
    [
        (remove, "{}: no such folder; give a folder with one folder of pictures for each class"),
        (lambda folder: remove(folder / "test"), "pictures should hold two folders, train and test"),
        (lambda folder: remove(folder / "test" / "dot"), "the same classes; there is no {}/test/dot"),
        (lambda folder: (folder / "test" / "cat").mkdir(), "the same classes; there is no {}/train/cat"),
        (lambda folder: [remove(path) for path in (folder / "test").iterdir()], "{}/test has no folders in it"),
        (lambda folder: [remove(path) for path in (folder / "train" / "sky").iterdir()], "train/sky has no pictures"),
        (lambda folder: (folder / "train" / "sky" / "x.png").write_text("none"), "sky/x.png is not a readable picture"),
        (lambda folder: cut_short(folder / "train" / "sky" / "00.png"), "sky/00.png is not a readable picture"),
        (
            lambda folder: [remove(folder / p / n) for p in ("train", "test") for n in CLASSES[1:]],
            "give at least two",
        ),
    ],
)
def test_folders_that_make_no_sense(folder, tmp_path, capsys, spoil, message):
    spoil(folder)
    file = tmp_path / "trained"
    assert message.format(folder) in one_line(capsys, *TRAIN, "--data", str(folder), "--checkpoint", str(file))
    assert not file.exists()


def cut_short(file):
    file.write_bytes(file.read_bytes()[:500])


def test_names_of_classes(folder, small):
    data = d2l.load_image_data(folder, (1, 28, 28))
    device = [d2l.cpu(0)]
    result = quick(device, data, num_epochs=1)
    assert result.history.classes == CLASSES and result.network.classes == 3 and result.params[-1].shape == (3,)
    assert quick(device, small, num_epochs=1).history.classes is None
    for names, network, message in [
        (["bar", "dot"], "lenet", "labels from 0 to 2; they should be whole numbers from 0 to 1"),
        (["bar", "dot", "dot"], "lenet", "classes are bar, dot, dot; give at least two, with different names"),
        (CLASSES, known_network("cnn", 4), "the network has 4 classes and the data 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            quick(device, (*data[:4], names), network=network)
