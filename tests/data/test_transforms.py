"""Random flips and shifts, against loops, and as settings of a run."""

import numpy as np
import pytest
from runs import PLAIN, brief, cpus

from d2lmgpu.data.images import TRANSFORMS, find_transform, random_flip, random_shift


def moved(image, down, right):
    """An image (C, H, W) moved, pixel by pixel."""
    result = np.zeros_like(image)
    C, H, W = image.shape
    for c, i, j in np.ndindex(C, H, W):
        if 0 <= i - down < H and 0 <= j - right < W:
            result[c, i, j] = image[c, i - down, j - right]
    return result


@pytest.mark.parametrize("shape, pixels", [((40, 1, 5, 7), 1), ((9, 3, 4, 4), 2), ((5, 1, 4, 3), 6), ((9, 1, 2, 2), 0)])
def test_shifts(rng, shape, pixels):
    """Each image is moved in one of all ways; of 40 images in all nine by one pixel."""
    X, y = rng.random(shape).astype(np.float32), rng.integers(0, 5, shape[0])
    before = X.copy()
    shifted, labels = random_shift(X, y, np.random.default_rng(3), pixels)
    assert shifted.dtype == X.dtype and shifted.shape == X.shape and labels is y
    np.testing.assert_array_equal(X, before)
    every = [(down, right) for down in range(-pixels, pixels + 1) for right in range(-pixels, pixels + 1)]
    seen = set()
    for image, result in zip(X, shifted, strict=True):
        found = {way for way in every if np.array_equal(moved(image, *way), result)}
        assert found
        seen |= found
    assert pixels != 1 or seen == set(every)
    assert random_shift(X[:0], y[:0], rng, pixels)[0].shape == (0, *shape[1:])


def test_flips(rng):
    X, y = rng.random((200, 2, 3, 4)), np.arange(200)
    flipped, labels = random_flip(X, y, np.random.default_rng(1))
    mirrored = (flipped == X[..., ::-1]).all(axis=(1, 2, 3))
    assert (mirrored != (flipped == X).all(axis=(1, 2, 3))).all() and labels is y
    assert 60 < mirrored.sum() < 140


def test_several_one_after_the_other(rng):
    X, y = rng.random((7, 1, 5, 5)), np.arange(7)
    both, _ = find_transform("flip+shift")(X, y, np.random.default_rng(4))
    draws = np.random.default_rng(4)
    np.testing.assert_array_equal(both, random_shift(*random_flip(X, y, draws), draws)[0])
    assert find_transform(None) is None and find_transform(moved) is moved


@pytest.mark.parametrize("name", [*TRANSFORMS, "flip+shift"])
def test_as_a_setting(name):
    """Equal for any number of devices, and told in the history."""
    runs = [brief(cpus(k), network=PLAIN, num_epochs=1, preprocess=name).history for k in (1, 3)]
    assert runs[0].train_loss == pytest.approx(runs[1].train_loss, rel=1e-4) and runs[0].preprocess == name
    assert brief(cpus(1), network=PLAIN, num_epochs=1).history.train_loss != runs[0].train_loss
