"""Labels: of which class each image is, as a whole number from 0. One check for all who take them."""

import numpy as np

from ..arguments import as_array, check_whole
from ..devices import DeviceArray


def check_labels(y, n, classes=None):
    """Raise ValueError unless ``y`` (n,) has a whole number from 0 to ``classes`` - 1 for each of n images.

    Without ``classes`` there may be any number of them. Of an array on a device (a
    `DeviceArray`, or CuPy's) only shape and type are checked: its values would have to
    be waited for. On the host it takes some microseconds.
    """
    y = as_array("labels", y)
    check_whole("the number of images", n, least=0)
    if classes is not None:
        check_whole("classes", classes)
    if y.ndim == 1 and len(y) != n:
        raise ValueError(f"{n} images and {len(y)} labels; each image needs one")
    if y.shape != (n,):
        raise ValueError(f"labels of shape {y.shape}; they should be of shape ({n},), one for each image")
    if n == 0:
        return
    wanted = "from 0 on" if classes is None else f"from 0 to {classes - 1}"
    if y.dtype.kind not in "iu":
        raise ValueError(f"labels of type {y.dtype}; they should be whole numbers {wanted}, of a type such as int64")
    if isinstance(y, DeviceArray) or not isinstance(y, np.ndarray):
        return
    low, high = int(y.min()), int(y.max())
    if low < 0 or (classes is not None and high >= classes):
        advice = "; if they count from 1, give y - 1" if (low, high) == (1, classes) else ""
        raise ValueError(f"labels from {low} to {high}; they should be whole numbers {wanted}{advice}")
