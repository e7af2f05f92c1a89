"""Pictures of all kinds become what a person sees: transparency, rotation; damage is one clear error."""

import numpy as np
import pytest
from PIL import Image

from d2lmgpu.data.images import load_image_folder, picture_shape, read_images

SHAPE = (1, 6, 8)


def read(path, channels=1):
    return read_images([path], (channels, *SHAPE[1:]))[0]


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.uint16])
def test_more_than_8_bits(tmp_path, kind):
    """Refused in one line: for most of them, no file says which number is white."""
    Image.fromarray(np.full(SHAPE[1:], 1000, kind)).save(tmp_path / "deep.tif")
    with pytest.raises(ValueError, match="deep.tif is not a readable picture: it has more than 8 bits per pixel"):
        read(tmp_path / "deep.tif")


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
def test_what_is_transparent_is_white(tmp_path, mode):
    """Black of four opacities; what lies under nothing does not shine through."""
    black = Image.new(mode, (8, 6), 0)
    black.putalpha(Image.fromarray(np.tile(np.array([0, 51, 204, 255], np.uint8).repeat(2), (6, 1))))
    black.save(tmp_path / "clear.png")
    expected = np.tile(np.array([255, 204, 51, 0]).repeat(2), (6, 1))
    np.testing.assert_allclose(read(tmp_path / "clear.png")[0], expected, atol=1)
    np.testing.assert_allclose(read(tmp_path / "clear.png", 3), [expected] * 3, atol=1)
    inverted = read_images([tmp_path / "clear.png"], SHAPE, invert=True)[0, 0]
    np.testing.assert_allclose(inverted, 255 - expected, atol=1)


def test_one_colour_that_is_transparent(tmp_path):
    grey = Image.fromarray(np.array([[0] * 4 + [90] * 4] * 6, np.uint8))
    grey.save(tmp_path / "grey.png", transparency=0)
    grey.convert("P").save(tmp_path / "palette.gif", transparency=0)
    for name in ("grey.png", "palette.gif"):
        np.testing.assert_array_equal(read(tmp_path / name)[0], [[255] * 4 + [90] * 4] * 6, err_msg=name)


@pytest.mark.parametrize(
    "orientation, turned",
    [
        (1, lambda seen: seen),
        (2, np.fliplr),
        (3, lambda seen: np.rot90(seen, 2)),
        (4, np.flipud),
        (5, np.transpose),
        (6, lambda seen: np.rot90(seen, 1)),
        (7, lambda seen: np.rot90(seen, 2).T),
        (8, lambda seen: np.rot90(seen, -1)),
    ],
)
@pytest.mark.parametrize(
    "name, how",
    [
        ("photo.png", {}),
        ("photo.tif", {}),
        ("photo.jpg", {"quality": 100}),
        ("photo.webp", {"lossless": True}),
    ],
)
def test_cameras_say_how_they_were_held(tmp_path, rng, orientation, turned, name, how):
    """``turned``: the rows that a camera writes which was held so; a viewer turns them back, and sees them so large."""
    seen = rng.integers(0, 256, SHAPE[1:]).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    (tmp_path / "class").mkdir()
    Image.fromarray(np.ascontiguousarray(turned(seen))).save(tmp_path / "class" / name, exif=exif, **how)
    C, *size = picture_shape(tmp_path)
    assert size == [*SHAPE[1:]] and C == (3 if name.endswith("webp") else 1)  # WebP has no grey
    X, _, _ = load_image_folder(tmp_path, (1, *size))
    np.testing.assert_allclose(X[0, 0], seen, atol=2 * name.endswith("jpg"))


def test_a_picture_that_says_it_is_too_large(tmp_path, monkeypatch):
    Image.new("L", (8, 6), 7).save(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)  # of 48 pixels
    with pytest.raises(ValueError, match="large.png is not a readable picture: Image size .* exceeds"):
        read(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 30)  # Pillow only warns
    assert (read(tmp_path / "large.png") == 7).all()


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.bmp", "a.gif", "a.tif", "a.webp"])
def test_damaged_files(tmp_path, rng, monkeypatch, name):
    """Whatever is wrong in it, a file is read, or the error names it."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10**5)  # or a damaged size would take seconds
    path = tmp_path / name
    Image.fromarray(rng.integers(0, 256, (30, 30, 3)).astype(np.uint8)).save(path)
    good = path.read_bytes()
    for length in (0, 1, 10, 40, len(good) // 2):
        path.write_bytes(good[:length])
        with pytest.raises(ValueError, match=f"{name} is not a readable picture"):
            read(path)
    for _ in range(60):
        bad = bytearray(good)
        for place in rng.integers(0, min(len(bad), 300), 3):
            bad[place] = rng.integers(0, 256)
        path.write_bytes(bad)
        try:
            assert read(path).shape == SHAPE
        except ValueError as error:
            assert f"{name} is " in str(error)


def test_hidden_files_are_passed_over(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.new("L", (8, 6), len(name)).save(tmp_path / name / "1.png")
        (tmp_path / name / "._1.png").write_bytes(b"\0\5\x16\7Mac OS X")
        (tmp_path / name / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
        (tmp_path / name / "more.png").mkdir()
        (tmp_path / name / "2.png.part").write_bytes(b"\x89PNG")
    for name in (".ipynb_checkpoints", "__MACOSX", "@eaDir"):
        (tmp_path / name).mkdir()
    X, y, _ = load_image_folder(tmp_path, SHAPE)
    assert X.shape == (2, *SHAPE) and y.tolist() == [0, 1]
    (tmp_path / "dog" / "1.png").unlink()
    with pytest.raises(ValueError, match="dog has no pictures in it"):
        load_image_folder(tmp_path, SHAPE)
