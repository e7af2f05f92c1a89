"""Random changes to images that leave their class as it is: ready-made functions for ``train(preprocess=…)``.

Each takes a minibatch, images X (n, C, H, W) and labels y (n,), and the random number generator of that minibatch, so
the same seed changes the same images in the same way on any number of devices. It returns a new X and leaves the old
one as is.

Source: Krizhevsky, Sutskever and Hinton 2012, "ImageNet Classification with Deep
Convolutional Neural Networks", section 4.1 (reflections and translations).
"""

import numpy as np

from ..base.arguments import check_function, check_name

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
