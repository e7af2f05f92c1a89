"""Pictures from files, in the form that networks take: by Pillow, for any format that it reads."""

from pathlib import Path

import numpy as np

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def read_images(paths, input_shape, invert=False):
    """Pictures as uint8 (N, C, H, W), of ``input_shape`` (C, H, W): grey for C = 1, colour for C = 3, resized.

    ``invert``: black becomes white. (Fashion-MNIST's things are bright on black,
    unlike most pictures.)

    Raises ValueError for a file that is no picture or another C, OSError for a file that cannot be read.
    """
    from PIL import Image, UnidentifiedImageError

    C, H, W = input_shape
    modes = {1: "L", 3: "RGB"}
    if C not in modes:
        raise ValueError(f"read_images: the network takes {C} channels; pictures have 1 (grey) or 3 (colour)")
    images = np.empty((len(paths), C, H, W), np.uint8)
    for image, path in zip(images, paths, strict=True):
        try:
            with Image.open(path) as file:
                picture = file.convert(modes[C])
        except UnidentifiedImageError:
            raise ValueError(f"{path} is no picture that can be read") from None
        if picture.size != (W, H):
            picture = picture.resize((W, H), Image.Resampling.LANCZOS)
        image[...] = np.asarray(picture).reshape(H, W, C).transpose(2, 0, 1)
    return 255 - images if invert else images


def load_image_folder(folder, input_shape, invert=False):
    """Pictures in folders that are named for their classes: X uint8 (N, C, H, W), y (N,), and the classes' names.

        folder/cat/1.png
        folder/cat/2.png
        folder/dog/1.png

    Classes and files are in alphabetical order.

    Raises ValueError if there are no such folders, or one without pictures.
    """
    folder = Path(folder)
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not names:
        raise ValueError(f"{folder} has no folders in it; there should be one for each class, with its pictures")
    paths, labels = [], []
    for label, name in enumerate(names):
        files = sorted(path for path in (folder / name).iterdir() if path.suffix.lower() in SUFFIXES)
        if not files:
            raise ValueError(f"{folder / name} has no pictures in it ({', '.join(SUFFIXES)})")
        paths += files
        labels += [label] * len(files)
    return read_images(paths, input_shape, invert), np.array(labels), names
