"""One trial, from settings to a row: plain data in, plain data out, so that it can be done anywhere."""

import functools
import threading
import time
import warnings

from ..arguments import shown
from ..data import first_examples
from ..devices import choose_devices, in_forked_process
from ..devices.errors import one_line
from ..fashion_mnist import load_fashion_mnist
from ..monitor import Callback, Stop
from ..training import train

_turn = None  # a lock: trials in threads of one process would train on the same devices, in the same memory


@in_forked_process
def _begin_turns():
    """In a forked process nobody would ever release a lock that another thread of the parent holds."""
    global _turn
    _turn = threading.Lock()


_begin_turns()


def stopped():
    """Whether trials in this process should end after their current step; `workers` gives its processes another."""
    return False


def run_trial(settings, data=None, stop=None):
    """Train as ``settings`` say, all of those in `trials.DEFAULTS`; returns a row, a dict that JSON can hold.

    The row has the ``settings``, a ``status``, a ``message`` (None, or one line on
    why it is not "done"), ``seconds``, and the ``history`` of `train` as a dict.
    "done": trained to the end; "diverged": given up by `train`; "interrupted":
    stopped from outside; "failed": an error, and no history. ``data``: as of
    `train`; else Fashion-MNIST, read once in each process. ``stop``: a
    `monitor.Stop` that may end the trial; a copy of it in another process hears nothing.

    Raises ValueError for settings that are no dict; whatever else is wrong is in the row.
    """
    if not isinstance(settings, dict):
        raise ValueError(f"run_trial: {shown(settings)} is no dict of settings")
    with _turn, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of NumPy, about runs that diverge
        begin = time.perf_counter()
        try:
            history = _train(settings, _fashion_mnist() if data is None else data, stop or Stop())
            status, message = _how_it_ended(history)
        except Exception as error:
            history, status, message = None, "failed", one_line(error)
        return make_row(settings, status, message, time.perf_counter() - begin, history)


def _how_it_ended(history):
    """A status, and the message with it."""
    if history["diverged"]:
        return "diverged", history["diverged"]
    if history["interrupted"]:
        return "interrupted", f"interrupted in epoch {history['interrupted']['epoch']}"
    return "done", None


def _train(settings, data, stop):
    settings = dict(settings)
    environment, devices = choose_devices(settings.pop("environment"), settings.pop("devices"))
    data = first_examples(data, settings.pop("limit"))
    history, _ = train(
        devices, data=data, environment=environment, callbacks=[_Until(stop)], progress=False, **settings
    )
    return history.as_dict()


class _Until(Callback):
    def __init__(self, stop):
        self._stop = stop

    def on_step(self, epoch, step, loss):
        return self._stop.requested or stopped()


_fashion_mnist = functools.cache(load_fashion_mnist)


def make_row(settings, status, message=None, seconds=None, history=None):
    """What is known of a trial, as `run_trial` describes it."""
    return {"settings": settings, "status": status, "message": message, "seconds": seconds, "history": history}
