"""``--metrics FILE.py``: metrics of one's own, from a file that defines ``metrics = {"top 3": function, ...}``."""

from ..devices.errors import one_line
from ..training.metrics import check_metrics
from .own_file import check_there, defined_in

DICT = "metrics"


def metrics_from(path):
    """The file's dict of functions by name, as ``train(metrics=…)`` takes it; None without a file.

    Raises ValueError for a file without it, and whatever goes wrong in it, in a line.
    """
    if path is None:
        return None
    check_there("--metrics", path)
    try:
        found = defined_in(path, DICT)
        if not isinstance(found, dict) or not found:
            raise ValueError(f"it should define {DICT}, a dict of functions of outputs and labels by their names")
        return check_metrics(found)
    except Exception as error:
        raise ValueError(f"--metrics {path}: {one_line(error)}") from error
