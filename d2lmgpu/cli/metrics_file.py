"""``--metrics FILE.py``: metrics of one's own, from a file that defines ``metrics = {"top 3": function, ...}``."""

from ..training.metrics import check_metrics
from .own_file import defined_in, somebodys

DICT = "metrics"


def metrics_from(path):
    """The file's dict of functions by name, as ``train(metrics=…)`` takes it; None without a file.

    Raises ValueError for a file without it, and whatever goes wrong in it, in a line.
    """
    if path is None:
        return None
    with somebodys("--metrics", path):
        found = defined_in(path, DICT)
        if not isinstance(found, dict) or not found:
            raise ValueError(f"it should define {DICT}, a dict of functions of outputs and labels by their names")
        return check_metrics(found)
