"""One trial, from settings to a row: plain data in, plain data out, so that it can run anywhere."""

import functools
import os
import threading
import time
import warnings

from ..checkpoints import CheckpointError
from ..data import first_examples
from ..devices.errors import one_line
from ..fashion_mnist import load_fashion_mnist
from ..monitor import Callback
from ..training import load_run, train
from .trials import complete_trial, network_of

_turns = {}
"""One lock per process, since trials in several threads would train on the same devices, in the same memory.

A forked process gets a new lock: one held by another thread of the parent would never be released.
"""

CURVES = ("train_loss", "test_accuracy", "seconds_per_epoch")
"""The values of each epoch that are reported while a trial is running."""


class OnlyHere:
    """A ``function`` that can be called only in this process: a copy in another process returns None."""

    def __init__(self, function=None):
        self._function = function

    def __call__(self, *args):
        return self._function(*args) if self._function else None

    def __reduce__(self):
        return OnlyHere, ()


def run_trial(settings, data=None, invert=False, checkpoint=None, stop=None, report=None) -> dict:
    """Train with these ``settings``, a trial of `grid`; return a row, a dict that JSON can represent.

    The row has the complete ``settings``, with defaults for those that were not given, a ``status``, a ``message``
    (None, or one line on why the status is not "done"), ``seconds``, the ``history`` of `train` as a dict, and where
    its ``model`` is kept (None unless a sweep keeps it). The status is "done" (trained to the end), "diverged" (given
    up by `train`), "interrupted" (stopped from outside) or "failed" (an error, without a history).

    ``data``: as in `train`; by default Fashion-MNIST, read once in each process. ``invert``: as in `train`.
    ``checkpoint``: a file, written as by `train`; if it exists, the trial resumes from it and ends as it would have
    without the break. ``stop()``: whether to end after the current step. ``report(curves)`` is called at the beginning
    and after each epoch with a dict of lists, all values of `CURVES` so far.

    It raises no errors: the row reports them.
    """
    with _turns.setdefault(os.getpid(), threading.Lock()), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # from NumPy, about diverging runs
        begin = time.perf_counter()
        try:
            settings = complete_trial(settings)
            watch = _Watch(stop or OnlyHere(), report or OnlyHere())
            history = _train(settings, _fashion_mnist() if data is None else data, watch, invert, checkpoint)
            status, message = "done", None
            if history["diverged"]:
                status, message = "diverged", history["diverged"]
            elif history["interrupted"]:
                status, message = "interrupted", f"interrupted in epoch {history['interrupted']['epoch']}"
        except Exception as error:
            history, status, message = None, "failed", one_line(error)
            if checkpoint is not None and isinstance(error, CheckpointError):
                message += "; without the file the trial begins anew"
        return make_row(settings, status, message, time.perf_counter() - begin, history)


def _train(settings, data, watch, invert, checkpoint):
    settings = dict(settings)
    data = first_examples(data, settings.pop("limit"))
    settings["network"] = network_of(settings["network"])
    settings |= {"checkpoint": checkpoint, "resume": _to_go_on_from(checkpoint)}
    history, _ = train(data=data, callbacks=[watch], invert=invert, progress=False, **settings)
    return history.as_dict()


def _to_go_on_from(checkpoint):
    """The checkpoint, if it exists. A run that diverged is not resumed but done again."""
    if checkpoint is None or not os.path.exists(checkpoint):
        return None
    if load_run(checkpoint).state["history"]["diverged"]:
        os.unlink(checkpoint)
        return None
    return checkpoint


class _Watch(Callback):
    def __init__(self, stop, report):
        self._stop, self._report = stop, report

    def on_step(self, epoch, step, loss):
        return self._stop()

    def on_start(self, history, steps):
        self.on_epoch(history)

    def on_epoch(self, history):
        self._report({name: list(getattr(history, name)) for name in CURVES})


_fashion_mnist = functools.cache(load_fashion_mnist)


def make_row(settings, status, message=None, seconds=None, history=None):
    """A row as `run_trial` describes it."""
    row = {"settings": settings, "status": status, "message": message, "seconds": seconds, "history": history}
    return row | {"model": None}
