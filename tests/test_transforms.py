"""Random flips and shifts, against loops, and as settings of a run."""

import numpy as np
import pytest
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu.data.transforms import TRANSFORMS, find_transform, random_flip, random_shift


def moved(image, down, right):
    """An image (C, H, W) moved, pixel by pixel."""
    result = np.zeros_like(image)
    C, H, W = image.shape
    for c, i, j in np.ndindex(C, H, W):
        if 0 <= i - down < H and 0 <= j - right < W:
            result[c, i, j] = image[c, i - down, j - right]
    return result


@pytest.mark.parametrize("shape", [(40, 1, 5, 7), (9, 3, 4, 4), (0, 1, 3, 3)])
@pytest.mark.parametrize("pixels", [0, 1, 2, 6])
def test_shifts(rng, shape, pixels):
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
    assert len(X) < 40 or pixels != 1 or seen == set(every)


def test_flips(rng):
    X, y = rng.random((200, 2, 3, 4)), np.arange(200)
    flipped, labels = random_flip(X, y, np.random.default_rng(1))
    mirrored = [np.array_equal(image[:, :, ::-1], result) for image, result in zip(X, flipped, strict=True)]
    same = [np.array_equal(image, result) for image, result in zip(X, flipped, strict=True)]
    assert all(one != other for one, other in zip(mirrored, same, strict=True)) and labels is y
    assert 60 < sum(mirrored) < 140


def test_several_one_after_the_other(rng):
    X, y = rng.random((7, 1, 5, 5)), np.arange(7)
    both, _ = find_transform("flip+shift")(X, y, np.random.default_rng(4))
    draws = np.random.default_rng(4)
    np.testing.assert_array_equal(both, random_shift(*random_flip(X, y, draws), draws)[0])
    assert find_transform(None) is None and find_transform(moved) is moved


@pytest.mark.parametrize("bad", ["turn", "flip+", "", 5, "flip,shift", ["flip"]])
def test_wrong_names(bad):
    with pytest.raises(ValueError, match="preprocess .* choose from flip, shift, several with"):
        d2l.Settings(preprocess=bad)


@pytest.mark.parametrize("name", [*TRANSFORMS, "flip+shift"])
def test_as_a_setting(small, tmp_path, name):
    """Equal for any number of devices, told in the history, and compared when a run goes on."""
    runs = [quick([d2l.cpu(i) for i in range(k)], small, num_epochs=1, preprocess=name) for k in (1, 3)]
    assert runs[0].history.train_loss == pytest.approx(runs[1].history.train_loss, rel=1e-4)
    assert runs[0].history.preprocess == name
    plain = quick([d2l.cpu(0)], small, num_epochs=1, checkpoint=tmp_path / "file")
    assert plain.history.train_loss != runs[0].history.train_loss
    with pytest.raises(ValueError, match=f"preprocess is {name!r} here and None in the checkpoint".replace("+", "[+]")):
        quick([d2l.cpu(0)], small, resume=tmp_path / "file", preprocess=name)
