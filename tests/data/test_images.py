"""Pictures of all kinds become what a person sees: transparency, rotation; damage is one clear error."""

import numpy as np
import pytest
from PIL import Image

from d2lmgpu.data.images import load_image_folder, picture_shape, read_images

SHAPE = (1, 6, 8)


def read(path, channels=1, **options):
    return read_images([path], (channels, *SHAPE[1:]), **options)[0]


def test_reading_pictures(tmp_path, rng):
    grey = rng.integers(0, 256, (28, 28)).astype(np.uint8)
    colour = rng.integers(0, 256, (56, 14, 3)).astype(np.uint8)
    paths = [tmp_path / "grey.png", tmp_path / "colour.bmp"]
    for path, pixels in zip(paths, (grey, colour), strict=True):
        Image.fromarray(pixels).save(path)
    images = read_images(paths, (1, 28, 28))
    assert images.shape == (2, 1, 28, 28) and images.dtype == np.uint8
    np.testing.assert_array_equal(images[0, 0], grey)
    np.testing.assert_array_equal(read_images(paths[0], (1, 28, 28), invert=True)[0, 0], 255 - grey)
    np.testing.assert_array_equal(read_images(paths[1:], (3, 56, 14))[0], colour.transpose(2, 0, 1))


def black_behind(mode):
    """Black of four opacities."""
    picture = Image.new(mode, (8, 6), 0)
    picture.putalpha(Image.fromarray(np.tile(np.array([0, 51, 204, 255], np.uint8).repeat(2), (6, 1))))
    return picture


GREY = Image.fromarray(np.array([[0] * 4 + [90] * 4] * 6, np.uint8))


@pytest.mark.parametrize(
    "name, picture, options, row",
    [
        ("clear.png", black_behind("RGBA"), {}, [255, 255, 204, 204, 51, 51, 0, 0]),
        ("grey and clear.png", black_behind("LA"), {}, [255, 255, 204, 204, 51, 51, 0, 0]),
        ("one grey.png", GREY, {"transparency": 0}, [255] * 4 + [90] * 4),
        ("palette.gif", GREY.convert("P"), {"transparency": 0}, [255] * 4 + [90] * 4),
        ("opaque.png", GREY, {}, [0] * 4 + [90] * 4),
    ],
)
def test_what_is_transparent_is_white(tmp_path, name, picture, options, row):
    """What lies under nothing does not shine through."""
    picture.save(tmp_path / name, **options)
    expected = np.tile(row, (6, 1))
    np.testing.assert_allclose(read(tmp_path / name)[0], expected, atol=1)
    np.testing.assert_allclose(read(tmp_path / name, 3), [expected] * 3, atol=1)
    np.testing.assert_allclose(read(tmp_path / name, invert=True)[0], 255 - expected, atol=1)


TURNED = {  # by EXIF's orientation: the rows that a camera writes which was held so
    1: lambda seen: seen,
    2: np.fliplr,
    3: lambda seen: np.rot90(seen, 2),
    4: np.flipud,
    5: np.transpose,
    6: lambda seen: np.rot90(seen, 1),
    7: lambda seen: np.rot90(seen, 2).T,
    8: lambda seen: np.rot90(seen, -1),
}


@pytest.mark.parametrize(
    "ending, options", [("png", {}), ("tif", {}), ("jpg", {"quality": 100}), ("webp", {"lossless": True})]
)
def test_cameras_say_how_they_were_held(tmp_path, rng, ending, options):
    """A viewer turns them back, and sees them so large."""
    for orientation, turned in TURNED.items():
        folder, seen = tmp_path / str(orientation), rng.integers(0, 256, SHAPE[1:]).astype(np.uint8)
        exif = Image.Exif()
        exif[0x0112] = orientation
        (folder / "class").mkdir(parents=True)
        Image.fromarray(np.ascontiguousarray(turned(seen))).save(folder / f"class/a.{ending}", exif=exif, **options)
        C, *size = picture_shape(folder)
        assert size == [*SHAPE[1:]] and C == (3 if ending == "webp" else 1)  # WebP has no grey
        X, _, _ = load_image_folder(folder, (1, *size))
        np.testing.assert_allclose(X[0, 0], seen, atol=2 * (ending == "jpg"), err_msg=f"{orientation}")


def test_a_picture_that_says_it_is_too_large(tmp_path, monkeypatch):
    Image.new("L", (8, 6), 7).save(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)  # of 48 pixels
    with pytest.raises(ValueError, match="large.png is not a readable picture: Image size .* exceeds"):
        read(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30)  # Pillow only warns
    assert (read(tmp_path / "large.png") == 7).all()


def test_more_than_8_bits(tmp_path):
    """Refused in one line: for most of them, no file says which number is white."""
    for kind in (np.float32, np.int32, np.uint16):
        Image.fromarray(np.full(SHAPE[1:], 1000, kind)).save(tmp_path / "deep.tif")
        with pytest.raises(ValueError, match="deep.tif is not a readable picture: it has more than 8 bits per pixel"):
            read(tmp_path / "deep.tif")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=[pytest.mark.nightly]) for seed in range(1, 10))])
@pytest.mark.parametrize("ending", ["png", "jpg", "bmp", "gif", "tif", "webp"])
def test_damaged_files(tmp_path, monkeypatch, ending, seed):
    """Whatever is wrong in it, a file is read, or the error names it."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10**5)  # or a damaged size would take seconds
    rng, path = np.random.default_rng(seed), tmp_path / f"a.{ending}"
    Image.fromarray(rng.integers(0, 256, (30, 30, 3)).astype(np.uint8)).save(path)
    good = path.read_bytes()
    for number in range(60):
        bad = bytearray(good)
        for place in rng.integers(0, min(len(bad), 300), 3):
            bad[place] = rng.integers(0, 256)
        path.write_bytes(bad if number >= 5 else good[: [0, 1, 10, 40, len(good) // 2][number]])
        try:
            assert read(path).shape == SHAPE and number >= 5
        except ValueError as error:
            assert f"a.{ending} is not a readable picture" in str(error)


def test_hidden_files_are_passed_over(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("L", (8, 6), len(name)).save(tmp_path / name / "1.png")
        (tmp_path / name / "._1.png").write_bytes(b"\0\5\x16\7Mac OS X")
        (tmp_path / name / "more.png").mkdir()
    (tmp_path / "@eaDir").mkdir()
    X, y, _ = load_image_folder(tmp_path, SHAPE)
    assert X.shape == (2, *SHAPE) and y.tolist() == [0, 1]
