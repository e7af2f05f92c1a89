"""One trial, from settings to a row: plain data in, plain data out, so that it can be done anywhere."""

import functools
import os
import threading
import time
import warnings

from ..checkpoints import CheckpointError
from ..data import first_examples
from ..devices import choose_devices, in_forked_process
from ..devices.errors import one_line
from ..fashion_mnist import load_fashion_mnist
from ..monitor import Callback, Stop
from ..training import load_run, train
from .trials import network_of

_turn = None  # a lock: trials in threads of one process would train on the same devices, in the same memory


@in_forked_process
def _begin_turns():
    """In a forked process a lock that another thread of the parent holds would never be released."""
    global _turn
    _turn = threading.Lock()


_begin_turns()


CURVES = ("train_loss", "test_accuracy", "seconds_per_epoch")
"""What is reported of a trial as it goes on, by epoch."""


def stopped():
    """Whether trials in this process should end after their current step; `workers` gives its processes another."""
    return False


def tell(number, first, curves):
    """In this process how trials go is reported to nothing; `workers` gives its processes another function."""


class Report:
    """Tells how trial ``number`` of a sweep goes: ``hear(number, first, curves)``, as of `Record.epochs`.

    A copy in another process calls that process's `tell`.
    """

    def __init__(self, number, hear=None):
        self._number, self._hear = number, hear

    def __call__(self, first, curves):
        (self._hear or tell)(self._number, first, curves)

    def __reduce__(self):
        return Report, (self._number,)


def run_trial(settings, data=None, stop=None, invert=False, checkpoint=None, report=None):
    """Train as ``settings`` say, all of those in `trials.DEFAULTS`; returns a row, a dict that JSON can hold.

    The row has the ``settings``, a ``status``, a ``message`` (None, or one line on
    why it is not "done"), ``seconds``, the ``history`` of `train` as a dict, and where
    its ``model`` is kept (None, unless a sweep keeps it).
    "done": trained to the end; "diverged": given up by `train`; "interrupted":
    stopped from outside; "failed": an error, and no history. ``data``: as of
    `train`; else Fashion-MNIST, read once in each process. ``stop``: a
    `monitor.Stop` that may end the trial; a copy of it in another process has no effect.
    ``invert``: as of `train`. ``checkpoint``: a file that is written as that of `train`;
    if it is there, the trial goes on from it, and ends as it would have without a break.
    ``report(first, curves)``: called as it begins and after each epoch with the values of
    `CURVES` since epoch ``first``, counted from 0.

    Whatever is wrong is in the row.
    """
    with _turn, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy, about runs that diverge
        begin = time.perf_counter()
        try:
            callbacks = [_Until(stop or Stop())] + ([] if report is None else [_Telling(report)])
            history = _train(settings, _fashion_mnist() if data is None else data, callbacks, invert, checkpoint)
            status, message = _how_it_ended(history)
        except Exception as error:
            history, status, message = None, "failed", one_line(error)
            if checkpoint is not None and isinstance(error, CheckpointError):
                message += "; without the file the trial begins anew"
        return make_row(settings, status, message, time.perf_counter() - begin, history)


def _how_it_ended(history):
    """A status, and the message with it."""
    if history["diverged"]:
        return "diverged", history["diverged"]
    if history["interrupted"]:
        return "interrupted", f"interrupted in epoch {history['interrupted']['epoch']}"
    return "done", None


def _train(settings, data, callbacks, invert, checkpoint):
    settings = dict(settings)
    environment, devices = choose_devices(settings.pop("environment"), settings.pop("devices"))
    data = first_examples(data, settings.pop("limit"))
    settings["network"] = network_of(settings["network"])
    history, _ = train(
        devices,
        data=data,
        environment=environment,
        checkpoint=checkpoint,
        resume=_to_go_on_from(checkpoint),
        callbacks=callbacks,
        invert=invert,
        progress=False,
        **settings,
    )
    return history.as_dict()


def _to_go_on_from(checkpoint):
    """The checkpoint, if it is there. A run that had diverged is not gone on with, but done again."""
    if checkpoint is None or not os.path.exists(checkpoint):
        return None
    if load_run(checkpoint).state["history"]["diverged"]:
        os.unlink(checkpoint)
        return None
    return checkpoint


class _Until(Callback):
    def __init__(self, stop):
        self._stop = stop

    def on_step(self, epoch, step, loss):
        return self._stop.requested or stopped()


class _Telling(Callback):
    only_shows = True

    def __init__(self, report):
        self._report = report

    def on_start(self, history, steps):
        self._tell(history, 0)

    def on_epoch(self, history):
        self._tell(history, len(history.train_loss) - 1)

    def _tell(self, history, first):
        self._report(first, {name: getattr(history, name)[first:] for name in CURVES})


_fashion_mnist = functools.cache(load_fashion_mnist)


def make_row(settings, status, message=None, seconds=None, history=None, model=None):
    """What is known of a trial, as `run_trial` describes it."""
    row = {"settings": settings, "status": status, "message": message, "seconds": seconds, "history": history}
    return row | {"model": model}
