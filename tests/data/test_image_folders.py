"""A problem of one's own: pictures in folders that are named for their classes, and a network from a file."""

import json
import shutil

import numpy as np
import pytest
from conftest import long
from PIL import Image
from runs import brief, cpus

import d2lmgpu as d2l
from d2lmgpu.cli import main
from d2lmgpu.data.minibatches import first_examples

COLOURS = {"green": (0, 102, 0), "red": (200, 0, 0)}  # of equal brightness: 0.299 · 200 = 0.587 · 102
NETWORK = """
from d2lmgpu.networks import AvgPool2d, Conv2d, Dense, Flatten, ReLU, sequential


def network(input_shape, classes):
    return sequential(input_shape, Conv2d(4, 5), ReLU(), AvgPool2d(7), Flatten(), Dense(classes))
"""
TRAIN = "train --environment cpu --init he --batch-size 10 --lr 0.3"


@pytest.fixture
def squares(tmp_path):
    """A folder of pictures with squares somewhere on grey noise: 40 and 41 for training, 10 and 11 to test."""
    folder, rng = tmp_path / "squares", np.random.default_rng(7)
    for part, count in (("train", 40), ("test", 10)):
        for more, (name, colour) in enumerate(COLOURS.items()):
            (folder / part / name).mkdir(parents=True)
            for i in range(count + more):
                picture = np.repeat(rng.integers(0, 60, (32, 32, 1), np.uint8), 3, axis=2)
                top, left = rng.integers(0, 20, 2)
                picture[top : top + 12, left : left + 12] = colour
                Image.fromarray(picture).save(folder / part / name / f"{i:02}.png")
    (tmp_path / "network.py").write_text(NETWORK)
    return folder


def command(*words, status=0):
    assert main([part for word in words for part in str(word).split()]) == status


def json_of(file, *words, status=0):
    """The JSON that a command writes."""
    command(*words, "--json", file, status=status)
    return json.loads(file.read_text())


def test_pictures_to_train_on_and_to_test(squares):
    X_train, y_train, X_test, y_test, names = data = d2l.load_image_data(squares, (3, 20, 28))
    assert X_train.shape == (81, 3, 20, 28) and X_test.shape == (21, 3, 20, 28) and names == ["green", "red"]
    assert X_train.dtype == y_train.dtype == y_test.dtype == np.uint8
    assert np.bincount(y_train).tolist() == [40, 41] and y_test.tolist() == [0] * 10 + [1] * 11
    red, green, blue = X_test[y_test == 1].max(axis=(2, 3)).mean(axis=0)
    assert red > 190 > 70 > max(green, blue)
    inverted = d2l.load_image_data(squares, (3, 20, 28), invert=True)[2]
    np.testing.assert_array_equal(inverted, 255 - X_test)
    result = brief(cpus(1), data, num_epochs=1, network="cnn")
    assert result.history.classes == names and result.network.classes == 2 and result.params[-1].shape == (2,)
    assert brief(cpus(1), data[:4], num_epochs=1, network="cnn").history.classes is None


@pytest.mark.parametrize("k", [2, *long(1, 3)])
def test_the_commands(squares, tmp_path, capsys, k):
    """Train with a checkpoint, go on from it, and predict. In grey there is nothing to learn, so it is the colour."""
    file, result, own = tmp_path / "trained", tmp_path / "result.json", tmp_path / "network.py"
    train = [f"{TRAIN} --devices {k} --drop-last --network {own} --data", squares]
    assert len(json_of(result, *train, "--epochs 2 --checkpoint", file)["train_loss"]) == 2
    history = json_of(result, *train, "--epochs 8 --checkpoint", file, "--resume", file)
    assert "pictures: 81 for training, read as 32 × 32 in colour" in capsys.readouterr().out
    accuracy = history["test_accuracy"][-1]
    assert accuracy >= 0.95 and history["classes"] == ["green", "red"] and history["drop_last"]
    assert json_of(result, *train, "--epochs 4 --channels 1", status=1)["diverged"].startswith("nothing was learned")
    own.unlink()  # the checkpoint is enough
    model = d2l.load_model(file)
    assert model.network.input_shape == (3, 32, 32) and model.classes == ["green", "red"]
    capsys.readouterr()

    predict, pictures = f"predict {file} --environment cpu", [squares / "test" / name / "03.png" for name in COLOURS]
    rows = json_of(result, predict, *pictures)["predictions"]
    assert [row["class"] for row in rows] == list(COLOURS) == list(rows[0]["probabilities"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1].split()[0] for line in lines] == list(COLOURS)
    found = json_of(result, predict, "--data", squares, "--confusion", tmp_path / "confusion.png")
    assert found["accuracy"] == accuracy and found["classes"] == list(COLOURS)
    assert np.array(found["confusion"]).sum(axis=1).tolist() == [10, 11]

    for part in ("test", "train"):
        (squares / part / "red").rename(squares / part / "crimson")
    for words, message in [
        ([], "other classes than Fashion-MNIST's (green, red): give pictures, or the folder with their test set"),
        (["--data", squares], "has classes crimson, green; the network was trained on green, red"),
    ]:
        command(predict, *words, status=2)
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("size, width, height", [("--image-size 48x20", 48, 20), *long(("--image-size 40", 40, 40))])
def test_a_named_network_takes_what_the_pictures_are(squares, tmp_path, capsys, size, width, height):
    """Of which a limit takes some of each class."""
    file = tmp_path / "file"
    words = [f"{TRAIN} --epochs 1 --data {squares} --checkpoint {file}", size, "--limit", 4]
    history = json_of(tmp_path / "result", *words)
    assert f"4 for training, read as {width} × {height} in colour" in capsys.readouterr().out
    assert d2l.load_model(file).network.input_shape == (3, height, width)
    few = first_examples(d2l.load_image_data(squares, (3, height, width)), 4)
    assert np.bincount(few[1]).tolist() == [2, 2] and len(few[2]) == 21
    again = brief(cpus(1), few, network="lenet", num_epochs=1, lr=0.3)
    assert history["train_loss"] == again.history.train_loss


@pytest.mark.parametrize("invert", [True, *long(False)])
def test_what_was_inverted_in_training_is_so_in_prediction(tmp_path, rng, invert):
    """A bright half of a picture is upper or lower; dark on bright is the opposite of bright on dark."""
    for part, count in (("train", 12), ("test", 3)):
        for name, rows in (("lower", slice(14, 28)), ("upper", slice(14))):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 40, (28, 28)).astype(np.uint8)
                pixels[rows] += 200
                Image.fromarray(pixels).save(tmp_path / part / name / f"{i}.png")
    file, result = tmp_path / "trained", tmp_path / "result.json"
    train = "train --environment cpu --epochs 4 --batch-size 4 --init he --lr 0.05 --network cnn --checkpoint"
    history = json_of(result, train, file, "--data", tmp_path, *["--invert"] * invert)
    assert history["invert"] is invert
    pictures = [tmp_path / "test" / name / "0.png" for name in ("lower", "upper")]
    for flag, right in (([], True), (["--invert"], invert), (["--no-invert"], not invert)):
        found = json_of(result, "predict", file, *pictures, *flag)["predictions"]
        assert [row["class"] for row in found] == (["lower", "upper"] if right else ["upper", "lower"])
        assert json_of(result, "predict", file, "--data", tmp_path, *flag)["accuracy"] == float(right)


@pytest.mark.parametrize(
    "removed, made, message",
    [
        (".", None, "squares: no such folder; give a folder with one folder of pictures for each class"),
        ("test", None, "squares should hold two folders, train and test"),
        ("test/red", None, "the same classes; there is no .*squares/test/red"),
        (None, "test/cat/", "the same classes; there is no .*squares/train/cat"),
        ("test", "test/", "squares/test has no folders in it"),
        ("train/red", "train/red/", "train/red has no pictures"),
        (None, "train/red/x.png", "red/x.png is not a readable picture"),
    ],
)
def test_folders_that_make_no_sense(squares, removed, made, message):
    if removed:
        shutil.rmtree(squares / removed)
    if made:
        (squares / made).mkdir() if made.endswith("/") else (squares / made).write_text("none")
    with pytest.raises(ValueError, match=message):
        d2l.load_image_data(squares)
