"""One trial, from settings to a row: plain data in, plain data out, so that it can run anywhere."""

import functools
import os
import threading
import warnings

from ..data import check_parts, first_examples
from ..devices.errors import one_line
from ..fashion_mnist import load_fashion_mnist
from ..monitor import Callback
from ..training import train
from .trials import complete_trial, network_of

_turns = {}
"""One lock per process, since trials in several threads would train on the same devices, in the same memory.

A forked process gets a new lock: one held by another thread of the parent would never be released.
"""

fashion_mnist = functools.cache(load_fashion_mnist)


def run_trial(settings, data=None, invert=False, model=None, report=None) -> dict:
    """Train with these ``settings``, a trial of `grid`; return a row, a dict that JSON can represent.

    The row has the complete ``settings``, with defaults for those that were not given, a ``status``, a ``message``
    (None, or a line on why it diverged or failed), the ``history`` of `train` as a dict, and the file of its ``model``,
    or None. The status is "done" (trained to the end), "diverged" (given up by `train`), "interrupted" (by Ctrl-C) or
    "failed" (an error, without a history).

    ``data``: as in `train`; by default Fashion-MNIST, read once in each process. ``invert``: as in `train`. ``model``:
    a file in which the model is saved if the trial is done. ``report(history)`` is called after each epoch with the
    history so far, as a dict.

    It raises no errors: the row reports them.
    """
    row = make_row(settings, "failed")
    with _turns.setdefault(os.getpid(), threading.Lock()), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # from NumPy, about diverging runs
        try:
            row["settings"] = complete_trial(settings)
            given = row["settings"] | {"network": network_of(row["settings"]["network"])}
            data = first_examples(parts_of(data), given.pop("limit"))
            result = train(data=data, callbacks=_Watch(report), invert=invert, progress=False, **given)
            history = result.history
            status = next((name for name in ("diverged", "interrupted") if getattr(history, name)), "done")
            if status == "done" and model is not None:
                result.model.save(model)
                row["model"] = model
            return row | {"status": status, "message": history.diverged, "history": history.as_dict()}
        except Exception as error:
            return row | {"message": one_line(error)}


def parts_of(data):
    """The parts of a data set, or for None of Fashion-MNIST."""
    return check_parts(fashion_mnist() if data is None else data)


def make_row(settings, status, message=None, history=None):
    """A row as `run_trial` describes it."""
    return {"settings": settings, "status": status, "message": message, "history": history, "model": None}


class _Watch(Callback):
    def __init__(self, report):
        self._report = report

    def on_epoch(self, history):
        if self._report is not None:
            self._report(history.as_dict())
