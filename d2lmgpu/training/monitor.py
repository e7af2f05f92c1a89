"""What you see while training runs: a progress bar, one line per epoch, and a way to stop."""

import contextlib
import os
import signal
import sys
import threading
import time
from typing import Any

from ..base.arguments import check_flag
from ..base.packages import needed
from ..base.signals import listened_to, note
from ..base.text import REACHED, format_metrics, several
from ..devices.workers import IN_A_TAB

SILENCE = 5.0
"""Where there is no progress bar, a line reports progress after this many seconds without a line."""

TAGS = dict(zip(REACHED, ("loss/training", "accuracy/training", "accuracy/test", "loss/test"), strict=True))
"""TensorBoard's names for the lists of a history."""


class Stop:
    """``wanted``: whether training should end after the current step; ``listening``: whether training still runs.

    The processes of a `Cluster` all stop after the same step. ``wanted`` then says what this process wants: with each
    step, its `Runner` tells the others. ``agreed``: whether all know by now that one of them wants to stop.
    """

    wanted, agreed, listening = False, False, True

    def __init__(self, group=None):
        self.group, self.is_shared = group, group is not None and group.size > 1

    @property
    def requested(self):
        """Whether training will end; with one process, this is so as soon as a stop is wanted."""
        return self.agreed if self.is_shared else self.wanted

    def settle(self):
        """Between two steps, make ``requested`` final: ask all processes whether they want to stop."""
        if self.is_shared:
            self.agreed = self.group.mean([self.wanted])[0] > 0


@contextlib.contextmanager
def stop_on_interrupt(stop=None):
    """Turn the first Ctrl-C within the block into a request to stop; yield the given `Stop`, or a new one.

    A step is never interrupted, so all devices keep the same parameters. A second Ctrl-C interrupts at once, as usual.
    The signals that a command listens to (base/signals.py) also request a stop, however often they come. Where SIGINT
    is ignored, as in a shell's background jobs, it stays ignored. Python delivers signals only to the main thread; in
    other threads nothing changes.
    """
    stop = stop or Stop()
    in_main = threading.current_thread() is threading.main_thread()
    handlers = {signum: signal.getsignal(signum) for signum in (signal.SIGINT, *listened_to()) if in_main}
    # None: a handler that is not Python's, which Python cannot restore
    previous = {signum: handler for signum, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}

    def request(signum, frame):
        if signum == signal.SIGINT or not stop.listening:
            signal.signal(signum, previous[signum])
        if stop.listening:
            note(signum)
            stop.wanted = True
        else:  # the end of the block was interrupted: the previous handler is active again
            signal.raise_signal(signum)

    try:
        for signum in previous:
            signal.signal(signum, request)
        yield stop
    finally:
        stop.listening = False
        for signum, handler in previous.items():
            signal.signal(signum, handler)


def say(text, end="\n", file=None):
    """Print at once; if printing fails (a closed pipe, a full disk), carry on all the same."""
    with contextlib.suppress(OSError, ValueError):
        print(text, end=end, file=file, flush=True)


class Callback:
    """Methods that `train` calls during training: override those you need. Returning True ends training after the step.

    An error in a callback ends training, unless the callback only displays something (``only_shows``): then training
    goes on without it, with a message.
    """

    only_shows = False

    def model(self) -> Any:
        """The current `Model`, on the host, set by `train`. On a cluster, all processes must call this, or none."""
        raise ValueError("a callback has the model only while train calls it")

    def on_start(self, history, steps) -> bool | None:
        """Training begins, with ``steps`` steps per epoch; ``history.learning_rate`` will be the latest step's rate."""

    def on_step(self, epoch, step, loss) -> bool | None:
        """``step`` (from 1) of ``epoch`` (from 0) was submitted; ``loss`` is the epoch's so far, per example, or None.

        The host program is a step ahead of the devices: the loss covers the steps that are known to be done.
        """

    def on_evaluate(self, history) -> bool | None:
        """An epoch's steps are done, or training was stopped, and the test set is about to be evaluated."""

    def on_epoch(self, history) -> bool | None:
        """An epoch is complete; it is the last one in ``history``."""

    def on_end(self, history):
        """Training is over, for whatever reason."""


class TensorBoard(Callback):
    """Writes loss, accuracy and speed to event files, which ``tensorboard --logdir DIR`` shows.

    ``histograms``: also write histograms of the parameters after each epoch. The events are written directly, because
    tensorboardX's `SummaryWriter` uses a thread that dies when the disk is full, and then waits for it for ever. Raises
    PackageError unless tensorboardX can be imported.
    """

    only_shows = True

    def __init__(self, folder, histograms=False):
        self._histograms = check_flag("TensorBoard: histograms", histograms)
        self._events = os.path.join(folder, "events")
        self._summary = needed("tensorboardX.summary", "TensorBoard needs a package", "tensorboard")
        self._writer = None
        os.makedirs(folder, exist_ok=True)

    def on_start(self, history, steps):
        from tensorboardX.event_file_writer import EventsWriter

        self._writer = EventsWriter(self._events, f".{os.getpid()}.{time.time_ns()}")
        self._history, self._steps = history, steps

    def on_step(self, epoch, step, loss):
        if loss is not None:
            numbers = {"loss/so_far": loss, "learning_rate": self._history.learning_rate}
            self._write_numbers(epoch * self._steps + step, numbers)

    def on_epoch(self, history):
        step = len(history.train_loss) * self._steps
        last = history.last()
        numbers = {tag: last.get(name) for name, tag in TAGS.items()}
        numbers |= {f"metrics/{name}": value for name, value in last.get("metrics", {}).items()}
        self._write_numbers(step, numbers | {"seconds/epoch": history.seconds_per_epoch[-1]})
        for number, param in enumerate(self.model().params if self._histograms else ()):
            self._write(step, self._summary.histogram(f"parameters/{number}", param, bins="auto"))
        self._writer.flush()

    def on_end(self, history):
        if self._writer is not None:  # training was started
            self._writer.close()

    def _write_numbers(self, step, numbers):
        for tag, value in numbers.items():
            if value is not None:
                self._write(step, self._summary.scalar(tag, value))

    def _write(self, step, summary):
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(wall_time=time.time(), step=step, summary=summary))


class Progress:
    """A progress bar for each epoch on standard error, and a line for each epoch on standard output.

    If standard error is not a terminal, a line there reports the epoch's progress whenever `SILENCE` seconds have
    passed without one.
    """

    def __init__(self, num_epochs, num_examples, visible=True):
        self.num_epochs = num_epochs
        self.num_examples = num_examples
        self.visible = visible
        self._told = time.monotonic()

    def start_epoch(self, epoch, done=0):
        """Begin an epoch; ``epoch`` counts from 0, and ``done`` of its examples were trained on before."""
        from tqdm import tqdm

        self._epoch = f"epoch {epoch + 1}/{self.num_epochs}"
        self._examples = done
        # None: hidden wherever standard error is not a terminal
        options = {"unit": " examples", "leave": False, "disable": None if self.visible and sys.stderr else True}
        if IN_A_TAB:
            tqdm.monitor_interval = 0  # otherwise tqdm starts a monitor thread
        self._bar = tqdm(total=self.num_examples, initial=done, desc=self._epoch, **options)

    def step(self, num_examples, loss, accuracy=None):
        """A minibatch is done; ``loss`` and ``accuracy`` are those of the epoch so far, or None if not known yet."""
        self._examples += num_examples
        known = format_metrics({"train_loss": loss, "train_accuracy": accuracy})
        if known:
            self._bar.set_postfix_str(known, refresh=False)
        self._bar.update(num_examples)
        if time.monotonic() - self._told > SILENCE:
            self._told = time.monotonic()
            if self.visible and self._bar.disable:
                done = f"{self._examples:,} of {several(self.num_examples, 'example')}"
                say(f"{self._epoch}: {done}, {known}" if known else f"{self._epoch}: {done}", file=sys.stderr)

    def end_epoch(self):
        """Remove the bar; return the number of examples that were trained on."""
        self._bar.close()
        return self._examples

    def note(self, text):
        """Print a line about the run."""
        self._told = time.monotonic()
        if self.visible:
            say(text)

    def report(self, text):
        """Print a line about this epoch."""
        self.note(f"{self._epoch}: {text}")
