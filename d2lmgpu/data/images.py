"""Read pictures from files of any format that Pillow reads, into the form that networks take; change them at random.

Training and prediction both use `read_images`, so they read pictures in the same way.
"""

import contextlib
import io
import os
import warnings
from pathlib import Path

import numpy as np

from ..base.arguments import check_flag, check_function, check_input_shape, check_list, check_name, check_path
from ..base.files import visible
from ..base.text import legible
from .fashion_mnist import find_idx, load_idx, read_idx

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")

MAX_SIDE = 256
"""In pixels: pictures with a longer side are resized unless a shape is given."""


def read_images(paths, input_shape, invert=False):
    """Pictures as uint8 (N, C, H, W), of ``input_shape`` (C, H, W): grey for C = 1, colour for C = 3, resized.

    A picture is turned upright according to its EXIF data, and transparent parts
    become white, as on paper. If a file holds several pictures, the first is read.

    ``invert``: black becomes white and white black, as the last step, so that transparent
    parts become black. (Fashion-MNIST's items are bright on black, unlike most pictures.)

    ``paths``: the names of the files, or of one.

    Raises ValueError for a file that is not a complete picture, is too large, or has more than 8 bits per pixel, for a
    folder, for no files, and for a C other than 1 and 3; OSError for a file that cannot be read.
    """
    from PIL import Image, ImageOps

    C, H, W = check_input_shape(input_shape)
    modes = {1: "L", 3: "RGB"}
    if C not in modes:
        raise ValueError(f"read_images: the network takes {C} channels; pictures have 1 (grey) or 3 (colour)")
    paths = check_list("read_images: paths", paths, of="names of pictures", one=(str, bytes, os.PathLike, io.IOBase))
    if not paths:
        raise ValueError("read_images: the list of paths is empty; give at least one picture")
    images = np.empty((len(paths), C, H, W), np.uint8)
    for image, path in zip(images, paths, strict=True):
        with _opened(path) as picture:
            if picture.mode == "F" or picture.mode.startswith("I"):
                raise ValueError("it has more than 8 bits per pixel; save it with 8")
            picture = _opaque(ImageOps.exif_transpose(picture)).convert(modes[C])
        picture = picture.resize((W, H), Image.Resampling.LANCZOS)
        image[...] = np.asarray(picture).reshape(H, W, C).transpose(2, 0, 1)
    return 255 - images if invert else images


@contextlib.contextmanager
def _opened(path):
    """The Pillow image in a file, for a ``with`` block in which Pillow's errors become a ValueError."""
    from PIL import Image

    check_path("picture", path)
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder; give the names of the pictures in it")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of files that it can read nevertheless
            # an open file: given a name, Pillow 13.0 maps the file into memory, and misreads rotated TIFF files
            with open(path, "rb") as file, Image.open(file) as picture:
                yield picture
    except Exception as error:  # Pillow raises many kinds of errors for damaged files
        if isinstance(error, MemoryError) or getattr(error, "errno", None) is not None:  # not from Pillow
            raise
        why = "" if isinstance(error, Image.UnidentifiedImageError) else f": {error}"
        raise ValueError(f"{path} is not a readable picture{why}") from None


def _opaque(picture):
    """The picture, on a white background if any of it is transparent."""
    from PIL import Image

    if not picture.has_transparency_data:
        return picture
    picture = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)


def load_image_folder(folder, input_shape, invert=False):
    """Pictures in folders named after their classes: X uint8 (N, C, H, W), y (N,), and the names of the classes.

        folder/cat/1.png
        folder/cat/2.png
        folder/dog/1.png

    Classes and files are in alphabetical order; labels have the smallest type that holds them. Hidden files (._1.png),
    subfolders, and files with other endings are ignored. Pictures are read by `read_images`.

    Raises ValueError if there are no such folders, if one has no pictures, or if a picture cannot be read.
    """
    check_flag("invert", invert)
    names, files = _files(folder)
    labels = np.repeat(np.arange(len(names), dtype=np.min_scalar_type(len(names) - 1)), list(map(len, files)))
    return read_images(sum(files, []), input_shape, invert), labels, list(map(legible, names))


def _files(folder):
    """The names of the classes in a folder, and the picture files of each class."""
    names, files = class_names(folder), []
    for name in names:
        paths = visible(Path(folder, name))
        files.append([path for path in paths if path.suffix.lower() in SUFFIXES and not path.is_dir()])
        if not files[-1]:
            raise ValueError(f"{Path(folder, name)} has no pictures in it ({', '.join(SUFFIXES)})")
    return names, files


def picture_shape(folder):
    """The best shape (C, H, W) for the pictures in a folder of the kind that `load_image_folder` reads.

    C is 1 if all are grey, else 3. H and W are the pictures' size if it is the same for all and at most `MAX_SIDE`;
    otherwise 28 and 28, as in Fashion-MNIST. Of large pictures, only the header is read.

    Raises the ValueErrors of `load_image_folder`.
    """
    _, files = _files(folder)
    forms = {_form(path) for path in sum(files, [])}
    C = 1 if all(grey for grey, _ in forms) else 3
    sizes = {size for _, size in forms}
    W, H = sizes.pop() if len(sizes) == 1 and max(max(sizes)) <= MAX_SIDE else (28, 28)
    return C, H, W


def image_shape(folder):
    """The best shape for the training images in a folder that `load_image_data` reads. Raises its ValueErrors."""
    files = find_idx(folder)
    return (1, *read_idx(files[0]).shape[1:]) if files else picture_shape(Path(folder, "train"))


def _form(path):
    """Whether a picture is grey, and its width and height when turned upright; or, for a large one, as they are."""
    from PIL import Image, ImageOps

    with _opened(path) as picture:
        grey = Image.getmodebase(picture.mode) == "L"
        # decoded, since before that, formats and versions of Pillow differ in whether the size is that of the upright
        return grey, (picture if max(picture.size) > MAX_SIDE else ImageOps.exif_transpose(picture)).size


def load_image_data(folder, input_shape=None, invert=False):
    """Pictures for training and testing: X_train, y_train, X_test, y_test, and the names of the classes.

        folder/train/cat/1.png
        folder/test/cat/2.png

    Each part is read by `load_image_folder`; ``input_shape`` is by default the `picture_shape` of the training part.

    The folder may instead hold the four published files of MNIST, or of a data set in the same format: then the images
    have one channel and keep their size, and the classes' names are their labels.

    Raises ValueError if a part is missing, if the parts have different classes, or if files do not fit together.
    """
    check_image_folder(folder)
    files = find_idx(folder)
    if files:
        check_flag("invert", invert)
        X_train, y_train, X_test, y_test, names = load_idx(files)
        if input_shape is not None and check_input_shape(input_shape) != X_train.shape[1:]:
            raise ValueError(f"images in IDX files keep their size, {X_train.shape[1:]}; do not give another size")
        X_train, X_test = (255 - X if invert else X for X in (X_train, X_test))
        return X_train, y_train, X_test, y_test, names
    train, test = parts = Path(folder, "train"), Path(folder, "test")
    if not all(part.is_dir() for part in parts):
        raise ValueError(
            f"{folder} should hold two folders, train and test, each with a folder for each class, or MNIST's files"
        )
    names = sorted({*class_names(train), *class_names(test)})
    missing = [str(part / name) for part in parts for name in names if not (part / name).is_dir()]
    if missing:
        raise ValueError(f"{folder}: train and test should have the same classes; there is no {', no '.join(missing)}")
    input_shape = picture_shape(train) if input_shape is None else input_shape
    X_train, y_train, names = load_image_folder(train, input_shape, invert)
    X_test, y_test, _ = load_image_folder(test, input_shape, invert)
    return X_train, y_train, X_test, y_test, names


def check_image_folder(folder):
    """Raise ValueError unless there is such a folder."""
    check_path("folder", folder)
    if not Path(folder).is_dir():
        what = "is a file" if Path(folder).exists() else "no such folder"
        raise ValueError(f"{folder}: {what}; give a folder with one folder of pictures for each class")


def class_names(folder):
    """The names of the visible folders in a folder, in alphabetical order; raises ValueError if there are none."""
    check_image_folder(folder)
    names = [path.name for path in visible(folder) if path.is_dir()]
    if not names:
        raise ValueError(f"{folder} has no folders in it; there should be one for each class, with its pictures")
    return names


# Random changes to images that leave their class as it is: ready-made functions for ``train(preprocess=…)``.
#
# Each takes a minibatch, images X (n, C, H, W) and labels y (n,), and the random number generator of that minibatch, so
# the same seed changes the same images in the same way on any number of devices. It returns a new X and leaves the old
# one as is. Source: Krizhevsky, Sutskever and Hinton 2012, "ImageNet Classification with Deep Convolutional Neural
# Networks", section 4.1 (reflections and translations).

PIXELS = 2
"""How many pixels an image of Fashion-MNIST's size may move before parts of the item are lost."""


def random_flip(X, y, rng):
    """Mirror each image, left to right, with probability 1/2; return X and y."""
    turned = rng.random(len(X)) < 0.5
    return np.where(turned[:, None, None, None], X[..., ::-1], X), y


def random_shift(X, y, rng, pixels=PIXELS):
    """Move each image by -pixels to +pixels in both directions, filling the gaps with 0. Returns X and y."""
    n, C, H, W = X.shape
    down, right = rng.integers(-pixels, pixels + 1, (2, n))
    rows = np.arange(H) + pixels - down[:, None]  # rows of the padded image, for each row of the result
    columns = np.arange(W) + pixels - right[:, None]
    framed = np.pad(X, ((0, 0), (0, 0), (pixels, pixels), (pixels, pixels)))
    image, channel = np.arange(n)[:, None, None, None], np.arange(C)[:, None, None]
    return framed[image, channel, rows[:, None, :, None], columns[:, None, None, :]], y


TRANSFORMS = {"flip": random_flip, "shift": random_shift}


def find_transform(preprocess):
    """The function for "flip", "shift" or "flip+shift"; a function, or None, is returned unchanged.

    Raises ValueError for other names, and for a class or a function of other arguments.
    """
    if callable(preprocess):
        check_function("preprocess", preprocess, "X", "y", "rng")
    if preprocess is None or callable(preprocess):
        return preprocess
    names = preprocess.split("+") if isinstance(preprocess, str) else [preprocess]
    for name in names:
        check_name("preprocess", name, TRANSFORMS, also=", several with + between, or give a function of X, y and rng")

    def all_of_them(X, y, rng):
        for name in names:
            X, y = TRANSFORMS[name](X, y, rng)
        return X, y

    return all_of_them
