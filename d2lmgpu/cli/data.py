"""The data on which a command trains: Fashion-MNIST, or pictures in folders."""

import argparse
import re
from pathlib import Path

from ..arguments import shown
from ..data import first_examples
from ..fashion_mnist import load_fashion_mnist
from ..idx import find_idx
from ..images import image_shape, load_image_data
from .options import add_input

MOST_PIXELS = 2**14
"""The most pixels that a side of a picture may have."""


def add_data(command, limit=int):
    """Add the options that choose the training data; ``limit`` is the function that reads --limit."""
    pictures = "pictures in FOLDER/train/CLASS/ and FOLDER/test/CLASS/, or MNIST's files (default: Fashion-MNIST)"
    add_input(command, "--data", pictures, "FOLDER", picture_folders)
    size = "width and height to which pictures are resized (default: their own, or 28x28 if they differ)"
    command.add_argument("--image-size", type=_size, metavar="WxH", help=size)
    command.add_argument("--channels", type=int, metavar="C", help="1 (grey) or 3 (colour); default: as in the files")
    command.add_argument("--invert", action="store_true", help="the pictures show dark things on a bright background")
    command.add_argument("--limit", type=limit, metavar="N", help="train on only N examples, for a quick look")


def _size(text):
    """Read "64x48" as (48, 64), and "32" as (32, 32): height and width."""
    found = re.fullmatch("([0-9]{1,5})(?:x([0-9]{1,5}))?", text.lower())
    width, height = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not (0 < width <= MOST_PIXELS and 0 < height <= MOST_PIXELS):
        raise argparse.ArgumentTypeError(f"{shown(text)} should be width and height in pixels, such as 32x32")
    return height, width


def find_data(options, limit=None):
    """The data set for `train`: Fashion-MNIST or a folder's pictures, but only the `first_examples` up to ``limit``."""
    if options.data is None:
        for flag in ("--invert", "--image-size", "--channels"):
            if getattr(options, flag[2:].replace("-", "_")):
                raise ValueError(f"{flag} is for your own pictures; add --data FOLDER")
        return first_examples(load_fashion_mnist(), limit)
    if options.channels not in (None, 1, 3):
        raise ValueError(f"--channels is {options.channels}; it should be 1 (grey) or 3 (colour)")
    return first_examples(load_image_data(options.data, _input_shape(options), options.invert), limit)


def say_pictures(images):
    """Say how pictures (N, C, H, W) were read."""
    N, C, H, W = images.shape
    print(f"pictures: {N:,} for training, read as {W} × {H} in {'grey' if C == 1 else 'colour'}")


def _input_shape(options):
    """The shape (C, H, W) in which to read a folder's pictures; if None, `load_image_data` chooses it."""
    if not options.channels and not options.image_size:
        return None
    C, H, W = image_shape(options.data)
    return options.channels or C, *(options.image_size or (H, W))


def picture_folders(options):
    """The folders in the --data folder from which pictures are read, or its IDX files; None without --data."""
    if not options.data:
        return None
    return find_idx(options.data) or [str(Path(options.data, part)) for part in ("train", "test")]
