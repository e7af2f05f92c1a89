"""What a trained network says of images: on any devices; test_image_folders.py has the command."""

import numpy as np
import pytest
from clusters_in_threads import in_each
from conftest import long
from runs import DATA, TINY, brief, cpus

import d2lmgpu as d2l
from d2lmgpu.networks import init_params, init_statistics, logits_as_written
from d2lmgpu.pictures.plots import plot_confusion
from d2lmgpu.training import confusion_matrix, predict

X, Y = (np.concatenate(parts)[:30] for parts in zip(DATA[2:], DATA[:2], strict=True))
PARAMS = init_params(1, init="he", network=TINY)
STATISTICS = [array + 0.3 for array in init_statistics(TINY)]


@pytest.fixture(autouse=True)
def thirteen_at_once(monkeypatch):
    """Parts of 13 images, then one of 4, which are fewer than five devices."""
    monkeypatch.setattr("d2lmgpu.training.accuracy.PREDICTION_BATCH", 13)


@pytest.mark.parametrize("k", [1, 3, 8])
def test_probabilities_in_the_images_order(make_devices, k):
    devices = make_devices(k)
    found = predict(PARAMS, X, devices, TINY, STATISTICS)
    scores = logits_as_written(d2l.to_float(X), PARAMS, TINY, STATISTICS).astype(float)
    np.testing.assert_allclose(found, np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True), rtol=1e-4)
    assert (found.argmax(axis=1) == Y).mean() == d2l.evaluate(PARAMS, X, Y, devices, TINY, STATISTICS)
    assert predict(PARAMS, X[:0], devices, TINY, STATISTICS).shape == (0, 4)


@pytest.mark.threads
@pytest.mark.parametrize("split", [[1, 3, 1], *long([1, 1], [2, 1], [1, 1, 1])])
def test_on_a_cluster_all_processes_get_all(split):
    """What one process gives, bit for bit."""
    model = d2l.Model(TINY, PARAMS, STATISTICS)

    def everything(cluster):
        on_each = [d2l.get_params(PARAMS, device) for device in getattr(cluster, "mine", cluster)]
        yield predict(on_each, X, cluster, TINY, STATISTICS).tobytes()
        yield predict(PARAMS, X, cluster, TINY, STATISTICS, "squared_error").tobytes()
        yield model.predict(X[:0], cluster).shape
        yield model.evaluate(X, Y, cluster)

    expected = [*everything(cpus(sum(split)))]
    assert in_each(split, lambda cluster: [*everything(cluster)]) == [expected] * len(split)


def test_an_image_has_its_class_whatever_is_beside_it():
    """Batch norm takes the statistics that training found, not those of the images that are predicted together."""
    result = brief(cpus(2))
    alone = [predict(result.params, X[i : i + 1], cpus(3), TINY, result.statistics) for i in range(4)]
    np.testing.assert_allclose(np.concatenate(alone), result.model.predict(X, cpus(3))[:4], rtol=1e-4)


def test_confusion_matrix(rng):
    y, predicted = rng.integers(0, 4, 200), rng.integers(0, 4, 200)
    expected = [[sum((y == i) & (predicted == j)) for j in range(4)] for i in range(4)]
    assert confusion_matrix(y.astype(np.uint8), predicted, 4).tolist() == expected
    assert confusion_matrix(y, predicted.astype(np.uint64), 4).tolist() == expected  # beyond the type of indices
    axes = plot_confusion(np.array(expected), "abcd").axes[0]
    shown = {text.get_position(): text.get_text() for text in axes.texts}
    assert shown[1, 2] == str(round(100 * expected[2][1] / sum(expected[2])))
    assert [label.get_text() for label in axes.get_yticklabels()] == [*"abcd"]
