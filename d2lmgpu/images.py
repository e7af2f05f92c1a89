"""Pictures from files, in the form that networks take: by Pillow, for any format that it reads."""

from pathlib import Path

import numpy as np

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def read_images(paths, input_shape, invert=False):
    """Pictures as uint8 (N, C, H, W), of ``input_shape`` (C, H, W): grey for C = 1, colour for C = 3, resized.

    ``invert``: black becomes white. (Fashion-MNIST's things are bright on black,
    unlike most pictures.)

    Raises ValueError for a file that is no whole picture or another C, OSError for a file that cannot be read.
    """
    from PIL import Image

    C, H, W = input_shape
    modes = {1: "L", 3: "RGB"}
    if C not in modes:
        raise ValueError(f"read_images: the network takes {C} channels; pictures have 1 (grey) or 3 (colour)")
    images = np.empty((len(paths), C, H, W), np.uint8)
    for image, path in zip(images, paths, strict=True):
        try:
            with Image.open(path) as file:
                picture = file.convert(modes[C])
        except (OSError, SyntaxError) as error:
            if getattr(error, "errno", None) is not None:  # of the system, not of Pillow
                raise
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

    Classes and files are in alphabetical order; labels are of the smallest type that holds them.

    Raises ValueError if there are no such folders, or one without pictures.
    """
    folder, names = Path(folder), class_names(folder)
    paths, labels = [], []
    for label, name in enumerate(names):
        files = sorted(path for path in (folder / name).iterdir() if path.suffix.lower() in SUFFIXES)
        if not files:
            raise ValueError(f"{folder / name} has no pictures in it ({', '.join(SUFFIXES)})")
        paths += files
        labels += [label] * len(files)
    return read_images(paths, input_shape, invert), np.array(labels, np.min_scalar_type(len(names) - 1)), names


def load_image_data(folder, input_shape, invert=False):
    """Pictures to train on and to test: X_train, y_train, X_test, y_test, and the classes' names.

        folder/train/cat/1.png
        folder/test/cat/2.png

    Each part is read as `load_image_folder` does.

    Raises ValueError if a part is missing or has other classes than the other.
    """
    train, test = parts = Path(folder, "train"), Path(folder, "test")
    if not all(part.is_dir() for part in parts):
        raise ValueError(f"{folder} should have two folders in it, train and test, each with a folder for each class")
    names = {name for part in parts for name in class_names(part)}
    missing = [str(part / name) for part in parts for name in sorted(names) if not (part / name).is_dir()]
    if missing:
        raise ValueError(f"{folder}: train and test should have the same classes; there is no {', no '.join(missing)}")
    X_train, y_train, names = load_image_folder(train, input_shape, invert)
    X_test, y_test, _ = load_image_folder(test, input_shape, invert)
    return X_train, y_train, X_test, y_test, names


def class_names(folder):
    """The names of the folders in a folder but for hidden ones, in alphabetical order; ValueError if there are none."""
    names = sorted(path.name for path in Path(folder).iterdir() if path.is_dir() and not path.name.startswith("."))
    if not names:
        raise ValueError(f"{folder} has no folders in it; there should be one for each class, with its pictures")
    return names
