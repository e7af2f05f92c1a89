"""For your own training loop, as in the textbook: a timer for epochs, and a growing plot."""

import itertools
import time

import numpy as np

from ..base.arguments import check_list, check_names, is_number, plain, shown
from ..base.packages import ipython
from ..base.text import message_of
from ..pictures import figure_of, legend_label
from .live_plot import Panel, in_notebook
from .monitor import say

_TOOLTIP = "Makes animator.stopped true, so that the loop can end. Interrupting the kernel (■) breaks it off."


class Timer:
    """Measures times in seconds and keeps them in a list, ``times``. Creating a timer starts it.

    Devices work while the program goes on, and `stop` does not wait for them: call ``d2l.synchronize(devices)`` first
    (the textbook's ``npx.waitall()``).
    """

    def __init__(self):
        self.times = []
        self.start()

    def start(self):
        """Start measuring."""
        self._begin = time.perf_counter()

    def stop(self):
        """Return the seconds since `start` and append them to ``times``."""
        self.times.append(time.perf_counter() - self._begin)
        return self.times[-1]

    def avg(self):
        """The mean of the times."""
        return self.sum() / len(self.times)

    def sum(self):
        """The sum of the times."""
        return sum(self.times)

    def cumsum(self):
        """The cumulative sums of the times: a list."""
        return np.cumsum(self.times).tolist()


class Animator:
    """A plot whose lines grow point by point while a loop runs.

    In a notebook with ipywidgets it is a picture below a Stop button (`LivePlot` says where the button works), and is
    redrawn only so often that this takes little of the time; when the cell ends, a PNG remains. Elsewhere, each point
    is printed as a line of text.

    ``legend``: the names of the lines; ``fmts``: matplotlib's formats for them, in turn. With ``nrows`` or ``ncols``,
    the lines are in ``axes[0]``, and the other axes are yours. ``X``, ``Y``: the numbers of each line so far; for
    example, ``Y[0][-1]`` is the latest y of the first line.

    Raises ValueError for arguments that matplotlib does not accept.
    """

    def __init__(
        self,
        xlabel=None,
        ylabel=None,
        legend=None,
        xlim=None,
        ylim=None,
        xscale="linear",
        yscale="linear",
        fmts=("-", "m--", "g-.", "r:"),
        nrows=1,
        ncols=1,
        figsize=(3.5, 2.5),
    ):
        self._names = check_names("Animator: legend", [] if legend is None else legend)
        self._fmts = check_list("Animator: fmts", fmts, of="matplotlib's formats, such as 'm--'") or ["-"]
        given = {"xlabel": xlabel, "ylabel": ylabel, "xlim": xlim, "ylim": ylim, "xscale": xscale, "yscale": yscale}
        given = plain(given)
        self._how = {name: value for name, value in given.items() if value is not None and not _same(value)}
        self.X, self.Y, self._panel, self._told = [], [], None, "no points yet"
        try:
            self._figure, _ = figure_of(*plain((figsize, nrows, ncols)))
            for fmt in self._fmts:
                self._figure.axes[0].plot([], [], fmt)
            self.axes = self.fig.axes
        except Exception as error:  # matplotlib raises many kinds of errors
            said = message_of(error)[:200]
            raise ValueError(f"Animator: matplotlib does not take these arguments: {said}") from error

    @property
    def fig(self):
        """The matplotlib figure, with all points so far: ``animator.fig.savefig("run.png")``."""
        axes = self._figure.axes[0]
        axes.clear()
        lines = [axes.plot(X, Y, fmt)[0] for X, Y, fmt in zip(self.X, self.Y, itertools.cycle(self._fmts))]
        axes.set(**self._how)
        axes.grid(alpha=0.3)
        if lines and self._names:
            axes.legend(lines, [legend_label(name) for name in self._names])
        return self._figure

    @property
    def stopped(self):
        """Whether the Stop button was pressed; check it in your loop: ``if animator.stopped: break``.

        Without a button it is False. Ctrl-C, or interrupting the kernel, raises KeyboardInterrupt, as in any loop.
        """
        return self._shown() and self._panel.stopping

    def add(self, x, y):
        """Add a point at ``x`` to each line; ``y`` is a number, or a list of numbers with None where there is no point.

        Raises ValueError unless there is one number, or None, for each line.
        """
        y, x = _numbers("y", y), _numbers("x", x)
        x, lines = x * len(y) if len(x) == 1 else x, len(self.Y or self._names or y)
        if not 0 < len(x) == len(y) == lines:
            raise ValueError(f"Animator.add: {len(y)} numbers y, {len(x)} x; give {lines or 1}, one for each line")
        self.X, self.Y, told = self.X or [[] for _ in y], self.Y or [[] for _ in y], []
        for i, value in enumerate(y):
            if value is not None:
                self.X[i].append(x[i])
                self.Y[i].append(value)
                told.append(f"{self._names[i] if self._names else self._how.get('ylabel', 'y')} {value:.4g}")
        self._told = f"{self._how.get('xlabel', 'x')} {x[0]:.10g}: {', '.join(told)}"
        if not self._shown():
            say(self._told)
        elif self._panel.update():
            self._panel.say(self._told)

    def _shown(self):
        """Whether a notebook shows the plot, as it does until the end of the cell."""
        if self._panel is None and in_notebook():
            self._panel, self._events = Panel(lambda: self.fig, self._told, _TOOLTIP), ipython().events
            self._events.register("post_run_cell", self._end)
        return self._panel is not None

    def _end(self, result):
        self._events.unregister("post_run_cell", self._end)
        self._panel.close(self._told)
        self._panel = None


def _numbers(name, value):
    """An argument of `add` as a list of Python numbers."""
    value = plain(value)
    values = value if isinstance(value, list) or getattr(value, "ndim", 0) == 1 else [value]
    values = [value.item() if getattr(value, "ndim", None) == 0 else value for value in values]
    for value in values:
        if not is_number(value) and (value is not None or name == "x"):
            raise ValueError(f"Animator.add: {name} has {shown(value)}; it should be a number, or a list of numbers")
    return values


def _same(value):
    """Whether these are limits that are the same, as in a run of one epoch: matplotlib warns about such limits."""
    return isinstance(value, list) and len(value) == 2 and value[0] == value[1]
