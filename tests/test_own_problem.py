"""A problem of one's own, by command, from pictures in colour to predictions, with a network from a file."""

import json
import re

import numpy as np
import pytest
from PIL import Image

import d2lmgpu as d2l
from d2lmgpu.cli import main

COLOURS = {"red": (200, 0, 0), "green": (0, 102, 0)}  # of equal brightness: 0.299 · 200 = 0.587 · 102
NETWORK = """
from d2lmgpu.networks import AvgPool2d, Conv2d, Dense, Flatten, ReLU, sequential


def network(input_shape, classes):
    return sequential(input_shape, Conv2d(4, 5), ReLU(), AvgPool2d(7), Flatten(), Dense(classes))
"""


def save_squares(folder, rng, count, size=32):
    """Squares somewhere on noise, which is grey."""
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            picture = np.repeat(rng.integers(0, 60, (size, size, 1), np.uint8), 3, axis=2)
            top, left = rng.integers(0, size - 12, 2)
            picture[top : top + 12, left : left + 12] = colour
            Image.fromarray(picture).save(folder / name / f"{i}.png")


@pytest.fixture(scope="module")
def squares(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("squares"), np.random.default_rng(7)
    save_squares(folder / "train", rng, 60)
    save_squares(folder / "test", rng, 50)
    (folder / "network.py").write_text(NETWORK)
    return folder


def command(*words, status=0):
    assert main(list(map(str, words))) == status


@pytest.mark.parametrize("k", [1, 2, 3])
def test_colours_that_are_equally_bright(squares, tmp_path, capsys, k):
    checkpoint, result = tmp_path / "squares.ck", tmp_path / "result.json"
    file = tmp_path / "network.py"
    file.write_text(NETWORK)
    command(
        *("train", "--environment", "cpu", "--devices", k, "--data", squares, "--network", file, "--init", "he"),
        *("--batch-size", 25, "--lr", 0.3, "--epochs", 8, "--checkpoint", checkpoint, "--json", result),
    )
    assert "pictures: 120 for training, read as 32 × 32 in colour" in capsys.readouterr().out
    assert json.loads(result.read_text())["test_accuracy"][-1] >= 0.99
    file.unlink()  # the checkpoint is enough
    command("predict", checkpoint, "--environment", "cpu", "--devices", k, "--data", squares, "--json", result)
    assert json.loads(result.read_text())["accuracy"] >= 0.99
    pictures = [squares / "test" / name / "3.png" for name in COLOURS]
    command("predict", checkpoint, "--environment", "cpu", *pictures, "--json", result)
    assert [row["class"] for row in json.loads(result.read_text())["predictions"]] == list(COLOURS)
    model = d2l.load_model(checkpoint)
    assert model.network.input_shape == (3, 32, 32) and model.classes == ["green", "red"]
    X, y, _ = d2l.load_image_folder(squares / "test", (3, 32, 32))
    assert model.evaluate(X, y) >= 0.99


def test_grey_knows_nothing_of_them(squares, tmp_path):
    """So it is the colour that is learned."""
    result = tmp_path / "result.json"
    command(
        *("train", "--environment", "cpu", "--data", squares, "--network", squares / "network.py", "--channels", 1),
        *("--init", "he", "--batch-size", 25, "--lr", 0.3, "--epochs", 8, "--json", result),
        status=1,
    )
    assert "nothing was learned" in json.loads(result.read_text())["diverged"]


def test_a_named_network_takes_what_the_pictures_are(squares, tmp_path, capsys):
    checkpoint = tmp_path / "file"
    for size, options in (((48, 20), ("--image-size", "48x20")), ((40, 40), ("--image-size", "40")), ((32, 32), ())):
        command("train", "--environment", "cpu", "--data", squares, "--epochs", 1, "--checkpoint", checkpoint, *options)
        assert f"read as {size[0]} × {size[1]} in colour" in capsys.readouterr().out
        assert d2l.load_model(checkpoint).network.input_shape == (3, size[1], size[0])
        checkpoint.unlink()


def test_a_sweep_trains_as_train_does(squares, tmp_path, capsys):
    """Of pictures in folders, in order of their classes, a limit takes from all; files of networks have their names."""
    (tmp_path / "flat.py").write_text(NETWORK.replace("Conv2d(4, 5), ReLU(), AvgPool2d(7), ", ""))
    same = ["--environment", "cpu", "--data", squares, "--image-size", "24x20", "--channels", 1, "--invert"]
    same += ["--epochs", 1, "--batch-size", 8, "--lr", 0.01, "--init", "he", "--preprocess", "flip"]
    files = [squares / "network.py", tmp_path / "flat.py", "lenet"]
    file, result = tmp_path / "rows.json", tmp_path / "result.json"
    words = ["--network", ",".join(map(str, files)), "--limit", "30,120", "--mode", "sequential", "--json", file]
    words += ["--keep-models", tmp_path / "models"]
    command("sweep", *same, *words)
    assert "pictures: 120 for training, read as 24 × 20 in grey" in capsys.readouterr().out
    rows = json.loads(file.read_text())["rows"]
    names = [row["settings"]["network"] for row in rows]
    names = [name if name == "lenet" else name["name"] for name in names]
    assert names == ["network", "flat", "lenet"] * 2
    for row, file in zip(rows, files * 2, strict=True):
        command("train", *same, "--network", file, "--limit", row["settings"]["limit"], "--json", result)
        history = json.loads(result.read_text())
        for about in ("train_loss", "test_accuracy", "final_parameters_sha256", "invert", "classes", "network"):
            assert row["history"][about] == history[about]
    command("predict", row["model"], "--environment", "cpu", "--data", squares, "--json", result)
    assert json.loads(result.read_text())["accuracy"] == history["test_accuracy"][-1]


def test_scaling_with_all_of_it(squares, tmp_path):
    file = tmp_path / "result.json"
    words = ["--data", squares, "--image-size", "24", "--channels", 1, "--network", squares / "network.py"]
    words += ["--limit", 20, "--devices", "1,2"]
    command("scaling", "--environment", "cpu", *words, "--batch-size", 10, "--repeats", 1, "--json", file)
    result = json.loads(file.read_text())
    assert (result["network"], result["steps"], result["parameters"]) == ("custom", 2, 4 * 25 + 4 + 4 * 4 * 2 + 2)


OWN_LAYERS = """
from d2lmgpu.networks import Dense, Flatten, sequential


def network(input_shape, classes):
    return sequential(input_shape, lambda shape: Flatten()(shape), Dense(classes))
"""


def test_predict_with_layers_that_no_checkpoint_holds(squares, tmp_path, capsys):
    file, checkpoint = tmp_path / "own.py", tmp_path / "run"
    file.write_text(OWN_LAYERS)
    words = ["--environment", "cpu", "--data", squares]
    command("train", *words, "--network", file, "--lr", 0.01, "--epochs", 1, "--checkpoint", checkpoint)
    capsys.readouterr()
    command("predict", checkpoint, *words, status=2)
    assert "its network has layers that are functions of your own: call load_model" in capsys.readouterr().err


def test_metrics_from_a_file(squares, tmp_path, capsys):
    file, result = tmp_path / "metrics.py", tmp_path / "result.json"
    file.write_text("def wrong(outputs, y):\n    return (outputs.argmax(1) != y).sum()\nmetrics = {'wrong': wrong}\n")
    words = "--data", squares, "--devices", 2, "--epochs", 1, "--batch-size", 16, "--metrics", file
    command("train", *words, "--json", result)
    assert "wrong" in capsys.readouterr().out
    history = json.loads(result.read_text())
    assert history["metrics"]["wrong"] == [pytest.approx(1 - history["test_accuracy"][0])]


def test_files_of_networks_with_one_name(squares, tmp_path, capsys):
    (tmp_path / "network.py").write_text(NETWORK)
    files = f"{squares / 'network.py'},{tmp_path / 'network.py'}"
    command("sweep", "--data", squares, "--network", files, status=2)
    error = "d2lmgpu sweep: error: --network: two networks are called network; give the files different names\n"
    assert capsys.readouterr() == ("pictures: 120 for training, read as 32 × 32 in colour\n", error)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--image-size", "32"], "--image-size is for your own pictures; add --data FOLDER"),
        (["--data", "FOLDER", "--image-size", "big"], "'big' should be width and height in pixels"),
        (["--data", "FOLDER", "--channels", "2"], "the network takes 2 channels; pictures have 1 (grey) or 3 (colour)"),
        (["--data", "FOLDER", "--image-size", "4x4"], "layer 4 does not take images"),
        (["--network", "nothere.py"], "--network nothere.py: there is no such file"),
        (["--network", "empty.py"], "it should define network(input_shape, classes)"),
        (["--network", "wrong.py"], "network is 5; it should be what networks.sequential makes"),
        (["--network", "broken.py"], "broken.py: ZeroDivisionError: division by zero"),
        (["--metrics", "nothere.py"], "--metrics nothere.py: there is no such file"),
        (["--metrics", "empty.py"], "it should define metrics, a dict of functions of outputs and labels"),
        (["--metrics", "sums.py"], "metric sums is 3; it should be a function"),
        (["--network", "ends.py"], "ends.py: SystemExit: 0"),
        (["--network", "calls.py"], "calls.py: SystemExit: 0"),
        (["--metrics", "ends.py"], "ends.py: SystemExit: 0"),
        (["--metrics", "measures.py"], "metric ends failed: SystemExit: 0"),
    ],
)
def test_wrong_words(squares, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    files = {"empty": "", "wrong": "def network(*_): return 5", "broken": "1 / 0", "sums": "metrics = {'sums': 3}"}
    files |= {"ends": "exit(0)", "calls": "def network(*_): exit(0)"}
    files["measures"] = "metrics = {'ends': lambda *_: exit(0)}"
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    words = [str(squares) if word == "FOLDER" else word for word in words]
    try:
        status = main(["train", "--environment", "cpu", "--epochs", "1", *words])
    except SystemExit as end:
        status = end.code
    error = capsys.readouterr().err
    assert status == 2 and message in error and re.fullmatch(".*\n", error)
