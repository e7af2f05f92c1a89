"""What a trained network says of images: from arrays, from files, from a checkpoint."""

import dataclasses
import json

import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import long
from PIL import Image
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.data.fashion_mnist import CLASSES
from d2lmgpu.data.images import read_images
from d2lmgpu.networks import CNN, LENET, LENET_BN, init_params, init_statistics
from d2lmgpu.pictures.plots import plot_confusion
from d2lmgpu.training import confusion_matrix, predict


@pytest.mark.parametrize("network", [LENET, LENET_BN], ids=["lenet", "lenet-bn"])
@pytest.mark.parametrize("k", [1, 3])
def test_probabilities_in_the_images_order(make_devices, small, monkeypatch, network, k):
    monkeypatch.setattr("d2lmgpu.training.accuracy.PREDICTION_BATCH", 13)
    X, devices = small[2][:30], make_devices(k)
    params = init_params(1, init="he", network=network)
    statistics = [array + 0.3 for array in init_statistics(network)]
    found = predict(params, X, devices, network, statistics)
    assert found.shape == (30, 10)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    for i in (0, 12, 13, 29):
        scores = d2l.networks.logits_as_written(d2l.to_float(X[i : i + 1]), params, network, statistics)[0].astype(
            float
        )
        np.testing.assert_allclose(found[i], np.exp(scores) / np.exp(scores).sum(), rtol=1e-4)
    assert (found.argmax(axis=1) == small[3][:30]).mean() == d2l.evaluate(
        params, X, small[3][:30], devices, network, statistics
    )
    assert predict(params, X[:0], devices, network, statistics).shape == (0, 10)
    with pytest.raises(ValueError, match=r"the network takes \(1, 28, 28\)"):
        predict(params, X[:, :, 1:], devices, network)


@pytest.mark.threads
@pytest.mark.parametrize("split", [(1, 1), (1, 3, 1), *long([2, 1], [1, 1, 1])])
def test_on_a_cluster_all_processes_get_all(small, monkeypatch, split):
    """Parts of 13 images, then one of 4, which are fewer than five devices: what one process gives, bit for bit."""
    monkeypatch.setattr("d2lmgpu.training.accuracy.PREDICTION_BATCH", 13)
    (X, y), devices = (part[:30] for part in small[2:]), [d2l.cpu(i) for i in range(sum(split))]
    params = init_params(1, init="he", network=LENET_BN)
    model = d2l.Model(LENET_BN, params, [array + 0.3 for array in init_statistics(LENET_BN)])

    def everything(cluster):
        on_each = [d2l.get_params(params, device) for device in getattr(cluster, "mine", cluster)]
        yield predict(on_each, X, cluster, LENET_BN, model.statistics).tobytes()
        yield predict(params, X, cluster, LENET_BN, model.statistics, "squared_error").tobytes()
        yield model.predict(X[:0], cluster).shape
        yield model.evaluate(X, y, cluster)

    expected = [*everything(devices)]
    assert in_each(split, lambda cluster: [*everything(cluster)]) == [expected] * len(split)


def test_confusion_matrix(rng):
    y, predicted = rng.integers(0, 4, 200), rng.integers(0, 4, 200)
    expected = [[sum((y == i) & (predicted == j)) for j in range(4)] for i in range(4)]
    assert confusion_matrix(y.astype(np.uint8), predicted, 4).tolist() == expected
    assert confusion_matrix(y, predicted.astype(np.uint64), 4).tolist() == expected  # beyond the type of indices


def test_plots(rng):
    y = rng.integers(0, 10, 60)
    probabilities = rng.dirichlet(np.ones(10), 60)
    matrix = confusion_matrix(y, probabilities.argmax(axis=1), 10)
    axes = plot_confusion(matrix, CLASSES).axes[0]
    share = round(100 * matrix[0, 0] / matrix[0].sum())
    assert [text.get_text() for text in axes.texts if text.get_position() == (0, 0)] == [str(share)] * bool(
        matrix[0, 0]
    )
    assert [label.get_text() for label in axes.get_yticklabels()] == list(CLASSES)


def test_reading_pictures(tmp_path, rng):
    grey = rng.integers(0, 256, (28, 28)).astype(np.uint8)
    colour = rng.integers(0, 256, (56, 14, 3)).astype(np.uint8)
    Image.fromarray(grey).save(tmp_path / "grey.png")
    Image.fromarray(colour).save(tmp_path / "colour.bmp")
    paths = [tmp_path / "grey.png", tmp_path / "colour.bmp"]
    images = read_images(paths, (1, 28, 28))
    assert images.shape == (2, 1, 28, 28) and images.dtype == np.uint8
    np.testing.assert_array_equal(images[0, 0], grey)
    np.testing.assert_array_equal(read_images(paths[:1], (1, 28, 28), invert=True)[0, 0], 255 - grey)
    np.testing.assert_array_equal(read_images(paths[1:], (3, 56, 14))[0], colour.transpose(2, 0, 1))
    assert abs(float(images[1].mean()) - colour.mean()) < 5
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(ValueError, match="text.png is not a readable picture"):
        read_images([tmp_path / "text.png"], (1, 28, 28))
    with pytest.raises(ValueError, match="takes 2 channels"):
        read_images(paths, (2, 28, 28))
    with pytest.raises(OSError, match="none.png"):
        read_images([tmp_path / "none.png"], (1, 28, 28))


def test_batch_norm_needs_what_training_found(small):
    """The statistics of whatever images are predicted together would make one image's class depend on the others."""
    devices, (X, y) = [d2l.cpu(i) for i in range(3)], small[2:]
    result = quick(devices[:2], small, network="lenet-bn", num_epochs=1)
    given = result.params, X, devices, result.network
    alone = [predict(result.params, X[i : i + 1], devices, result.network, result.statistics) for i in range(4)]
    np.testing.assert_allclose(np.concatenate(alone), predict(*given, result.statistics)[:4], rtol=1e-4)
    for call in (lambda *rest: predict(*given, *rest), lambda *rest: d2l.evaluate(given[0], X, y, *given[2:], *rest)):
        for rest, message in [
            ([], "batch norm: give its running means and variances, such as statistics=result.statistics"),
            ([result.statistics[:2]], "statistics: .*; there should be a list of 4 arrays"),
            ([[result.statistics] * 2], "2 copies of the statistics for 3 devices"),
        ]:
            with pytest.raises(ValueError, match=message):
                call(*rest)
    with pytest.raises(ValueError, match="parameters: .*; there should be a list of 8 arrays"):
        predict(result.params, X, devices)
    with pytest.raises(ValueError, match="statistics: .*; there should be a list of 0 arrays"):
        d2l.evaluate(d2l.init_params(), X, y, devices, statistics=result.statistics)
    with pytest.raises(ValueError, match="2 copies of the parameters for 3 devices"):
        d2l.evaluate([d2l.init_params()] * 2, X, y, devices)


@pytest.mark.parametrize("invert", [True, False])
def test_what_was_inverted_in_training_is_so_in_prediction(tmp_path, capsys, rng, invert):
    """A bright half of a picture is upper or lower; dark on bright is the opposite of bright on dark."""
    for part, count in (("train", 12), ("test", 3)):
        for name in ("lower", "upper"):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 40, (28, 28)).astype(np.uint8)
                pixels[:14] += 200 * (name == "upper")
                pixels[14:] += 200 * (name == "lower")
                Image.fromarray(pixels).save(tmp_path / part / name / f"{i}.png")
    file, result = tmp_path / "trained", tmp_path / "result.json"
    options = ["--environment", "cpu", "--json", str(result)]
    train = ["train", "--data", str(tmp_path), "--epochs", "4", "--batch-size", "4", "--init", "he", "--lr", "0.05"]
    assert cli.main([*train, *options, "--checkpoint", str(file), *["--invert"] * invert]) == 0
    assert json.loads(result.read_text())["invert"] is invert
    pictures = [str(tmp_path / "test" / name / "0.png") for name in ("lower", "upper")]
    for flag, right in (([], True), (["--invert"], invert), (["--no-invert"], not invert)):
        assert cli.main(["predict", str(file), *pictures, *options, *flag]) == 0
        said = [row["class"] for row in json.loads(result.read_text())["predictions"]]
        assert said == (["lower", "upper"] if right else ["upper", "lower"])
        assert cli.main(["predict", str(file), "--data", str(tmp_path), *options, *flag]) == 0
        assert json.loads(result.read_text())["accuracy"] == float(right)
    capsys.readouterr()


@pytest.mark.long
def test_the_command(tmp_path, capsys, small):
    file, result = tmp_path / "trained", tmp_path / "result.json"
    history, params = quick([d2l.cpu(0), d2l.cpu(1)], small, network="cnn", checkpoint=file)
    for i in range(2):
        Image.fromarray(255 - small[2][i, 0]).resize((56, 56), Image.Resampling.NEAREST).save(tmp_path / f"{i}.png")
    paths = [str(tmp_path / f"{i}.png") for i in range(2)]
    command = ["predict", str(file), "--environment", "cpu", "--json", str(result)]
    assert cli.main([*command, "--invert", "--devices", "2", *paths]) == 0
    rows = json.loads(result.read_text())["predictions"]
    expected = predict(params, small[2][:2], [d2l.cpu(0)], CNN).argmax(axis=1)
    assert [row["class"] for row in rows] == [CLASSES[i] for i in expected] and rows[1]["file"] == paths[1]
    assert sum(rows[0]["probabilities"].values()) == pytest.approx(1)
    assert capsys.readouterr().out.splitlines()[0].startswith(f"{paths[0]}: {CLASSES[expected[0]]} 0.")

    plots = ["--confusion", str(tmp_path / "confusion.png")]
    assert cli.main([*command, *plots]) == 0
    found = json.loads(result.read_text())
    _, _, X, y = d2l.load_fashion_mnist()
    assert found["accuracy"] == pytest.approx(d2l.evaluate(params, X, y, [d2l.cpu(0)], CNN))
    assert np.sum(found["confusion"]) == 10_000 and found["classes"] == list(CLASSES)
    assert capsys.readouterr().out == f"test acc: {found['accuracy']:.4f}\n"
    assert (tmp_path / "confusion.png").read_bytes().startswith(b"\x89PNG")

    lost = dataclasses.replace(d2l.load_model(file), params=[param * np.nan for param in params])
    lost.save(tmp_path / "lost")
    command[1] = str(tmp_path / "lost")
    assert cli.main([*command, *plots]) == 0
    out, err = capsys.readouterr()
    assert out == "test acc: 0.0000\n" and "note: 10,000 of 10,000 images have no class" in err
    assert cli.main([*command, *paths]) == 0 and f"{paths[0]}: no class" in capsys.readouterr().out
    row = json.loads(result.read_text())["predictions"][0]
    assert row["class"] is None and {*row["probabilities"].values()} == {None}

    for arguments, message in [
        ([str(tmp_path / "none")], "No such file"),
        ([paths[0]], "is no checkpoint of d2lmgpu"),
        ([str(file), paths[0], "--confusion", "plot.png"], "leave out the files"),
        ([str(file), str(file)], "is not a readable picture"),
    ]:
        assert cli.main(["predict", *arguments]) == 2
        out, err = capsys.readouterr()
        assert out == "" and message in err and err.count("\n") == 1
