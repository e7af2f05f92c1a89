"""The live plot in a notebook: loss and accuracy during training, and a button that ends it."""

import io
import math

from ..base.measuring import Throttle
from ..base.packages import ipython, needed, optional
from ..base.text import format_metrics, several
from ..pictures.plots import plot_history
from .monitor import Callback

_POINTS = 50
"""The most losses that are plotted per epoch."""

_TOOLTIP = "Ends training after this step and keeps what was learned. Interrupting the kernel (■) does the same."


def in_notebook():
    """Whether this is a notebook's kernel, and ipywidgets can be imported, as is tried only there."""
    kernel = any(kind.__name__ == "ZMQInteractiveShell" for kind in type(ipython()).__mro__)
    return kernel and optional("ipywidgets")[0] is not None


class Panel:
    """The display of a loop in a notebook: a line of text with a Stop button, and a picture below.

    ``figure()`` makes the picture, a matplotlib figure. ``stopping``: whether the button was pressed.
    """

    def __init__(self, figure, text, tooltip):
        from IPython.display import display
        from ipywidgets import Button, HBox, Label

        self.stopping, self._figure = False, figure
        narrow = {"width": "auto", "flex": "none"}
        self._button = Button(description="Stop", icon="stop", tooltip=tooltip, layout=narrow)
        self._button.on_click(self._press)
        # ipykernel 7.4 sends a widget's messages to the thread that used it last, here the busy one. Without this note
        # of the thread, it chooses by the message itself, as other versions do
        vars(self._button.comm).pop("_reply_subshell_id", None)
        self._label = Label(text)
        self._widgets = [HBox([self._button, self._label]), self._button, self._label]
        self._controls = display(self._widgets[0], display_id=True)
        self._sparingly = Throttle()
        self._picture = display(self._draw(), display_id=True)
        self._sparingly.spent = 0.0  # the first drawing takes longer than later ones

    def say(self, text):
        """Change the line of text."""
        self._label.value = text

    def update(self):
        """Redraw the picture, unless that was done a moment ago; return whether it was redrawn."""
        is_time = self._sparingly.due()
        if is_time:
            self._picture.update(self._draw())
        return is_time

    def close(self, text):
        """Leave a line of text and a PNG, which can be shown without widgets."""
        self._picture.update(self._draw())
        self._controls.update({"text/plain": text}, raw=True)
        for widget in self._widgets:
            widget.close()

    def _press(self, button):
        """Ask the loop to end; the button calls this in another thread."""
        self.stopping = True
        self._button.disabled, self._button.description = True, "Stopping"

    def _draw(self):
        """The picture as it is now, as a PNG."""
        from IPython.display import Image

        with self._sparingly:
            figure, file = self._figure(), io.BytesIO()
            figure.savefig(file, format="png")
        width, height = (int(inches * figure.dpi) for inches in figure.get_size_inches())
        return Image(file.getvalue(), width=width, height=height)  # with its size, so that the page does not jump


class LivePlot(Callback):
    """Shows in a notebook how training goes: a growing plot, a line of numbers, and a Stop button.

    `train` uses one in every notebook, except with ``progress=False``. The button works only where widget messages have
    a thread of their own (a "subshell") while a cell runs: with JupyterLab 4.4.4 and ipykernel 7, or newer. Elsewhere,
    interrupt the kernel, which ends training in the same way.

    At the end, a line of text and a PNG remain, which can be shown without widgets. Raises ValueError outside a
    notebook or without ipywidgets.
    """

    only_shows = True

    def __init__(self):
        needed("ipywidgets", "LivePlot needs a notebook, and widgets", "notebooks")
        if not in_notebook():
            raise ValueError("LivePlot needs a notebook; elsewhere, train prints lines without it")
        self._panel = None

    def on_start(self, history, steps):
        self._history, self._steps, self._losses = history, steps, []
        self._panel = Panel(lambda: plot_history(history, self._losses), "starting", _TOOLTIP)

    def on_step(self, epoch, step, loss):
        if loss is not None and step % math.ceil(self._steps / _POINTS) == 0:
            self._losses.append((epoch + step / self._steps, loss))
        if self._panel.update():
            place = f"epoch {epoch + 1}/{self._history.epochs}, step {step}/{self._steps}"
            known = self._history.last() | {"train_loss": loss, "train_accuracy": None}  # not known yet
            self._panel.say(f"{', '.join(filter(None, [place, format_metrics(known)]))}. The kernel's ■ stops, too.")
        return self._panel.stopping

    def on_evaluate(self, history):
        done = len(history.train_loss)
        self._panel.say(f"epoch {done + 1}/{history.epochs}, evaluating the test set")

    def on_epoch(self, history):
        self._losses.append((len(history.train_loss), math.nan))  # a gap in the line
        self._panel.update()
        return self._panel.stopping

    def on_end(self, history):
        if self._panel is not None:  # training was started
            self._panel.close(history.diverged or _outcome(history))
            self._panel = None


def _outcome(history):
    """The line that remains at the end."""
    done, stopped = several(len(history.train_loss), "epoch"), history.interrupted
    if stopped:
        done = f"stopped after {several(stopped['steps'], 'step')} of epoch {stopped['epoch']}/{history.epochs}"
    speed = f", {history.examples_per_second:,.0f} examples/s" if history.examples_per_second else ""
    return f"{done}: {format_metrics(history.last())}{speed}"
