"""The live plot, without a page."""

import re
import sys
import threading

import numpy as np
import pytest
from runs import brief, cpus

import d2lmgpu as d2l
from d2lmgpu.base import measuring

THREE_STEPS = {"batch_size": 25, "lr": 0.01}
"""An epoch."""


class Events:
    """What IPython calls when a cell has run."""

    def __init__(self):
        self.after_a_cell = []

    def register(self, event, function):
        assert event == "post_run_cell"
        self.after_a_cell.append(function)

    def unregister(self, event, function):
        self.after_a_cell.remove(function)

    def end_cell(self):
        for function in list(self.after_a_cell):
            function(None)


class ZMQInteractiveShell:
    """A notebook's shell is known by this name."""

    events = Events()


class Shown:
    """What is displayed in one place, first and in the end."""

    def __init__(self, content):
        self.first = self.last = content

    def update(self, content, raw=False):
        self.last = content


@pytest.fixture
def shown(monkeypatch):
    """A notebook without a page: the list of what is displayed, where to draw takes no time."""
    pytest.importorskip("ipywidgets", reason="ipywidgets is not installed (pip install -e '.[notebooks]')")
    displayed = []

    def display(content, display_id):
        displayed.append(Shown(content))
        return displayed[-1]

    monkeypatch.setattr("IPython.get_ipython", ZMQInteractiveShell)
    monkeypatch.setattr("IPython.display.display", display)
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda figure, file, format: file.write(b"\x89PNG"))
    return displayed


def told(shown):
    """The line that stays, beneath which one picture stays: nothing else was displayed."""
    line, picture = shown
    assert picture.last.data.startswith(b"\x89PNG") and picture.last is not picture.first
    box = line.first
    assert all(widget.comm is None for widget in (box, *box.children))  # closed
    assert list(line.last) == ["text/plain"]
    return line.last["text/plain"]


class Click(d2l.Callback):
    """Clicks on Stop in another thread at a step; counts steps."""

    def __init__(self, shown, at):
        self.shown, self.at, self.steps = shown, at, 0

    def on_step(self, epoch, step, loss):
        self.steps += 1
        if self.steps == self.at:
            button, _ = self.shown[0].first.children
            thread = threading.Thread(target=button.click)
            thread.start()
            thread.join()
            assert button.disabled and button.description == "Stopping"


@pytest.mark.parametrize("live_plot_comes_first, complete, steps", [(False, 1, 2), (True, 2, 3)])
def test_stop_ends_training_within_a_step(shown, live_plot_comes_first, complete, steps, capsys):
    """Within this one, if the live plot is called after the click, or else the next."""
    click = Click(shown, at=5)
    callbacks = [d2l.LivePlot(), click] if live_plot_comes_first else [click]
    history, params = brief(cpus(1), num_epochs=1000, progress=True, callbacks=callbacks, **THREE_STEPS)
    assert click.steps == 3 + steps and len(history.train_loss) == len(history.test_accuracy) == complete
    figures = "loss {train_loss:.3f}, train acc {train_accuracy:.3f}, test acc {test_accuracy:.3f}"
    figures = figures.format(**history.interrupted)
    assert told(shown).startswith(f"stopped after {steps} steps of epoch 2/1000: {figures}, ")
    assert capsys.readouterr() == ("", "")


def test_what_is_seen_while_training_runs(shown, monkeypatch):
    monkeypatch.setattr(measuring, "_PAUSE", 0)
    monkeypatch.setattr(measuring, "COST", np.inf)

    class Look(d2l.Callback):
        lines = []

        def on_step(self, epoch, step, loss):
            self.lines.append(shown[0].first.children[1].value)

        def on_epoch(self, history):
            assert shown[0].first.children[1].value == f"epoch {len(history.train_loss)}/2, evaluating the test set"

    history, _ = brief(cpus(1), callbacks=[d2l.LivePlot(), Look()], **THREE_STEPS)
    number = r"\d\.\d{3}"
    first = ["1/3", f"2/3, loss {number}", f"3/3, loss {number}"]
    second = [f"1/3, test acc {number}", *[f"{i}/3, loss {number}, test acc {number}" for i in (2, 3)]]
    for i, (line, pattern) in enumerate(zip(Look.lines, first + second, strict=True)):
        assert re.match(rf"epoch {1 + i // 3}/2, step {pattern}\. The kernel's ■ stops", line)
    figures = f"loss {history.train_loss[1]:.3f}, train acc {history.train_accuracy[1]:.3f}, "
    figures += f"test acc {history.test_accuracy[1]:.3f}, {history.examples_per_second:,.0f} examples/s"
    assert told(shown) == f"2 epochs: {figures}"


def test_an_error_ends_the_live_plot_too(shown):
    with pytest.raises(ZeroDivisionError):
        brief(cpus(1), progress=True, preprocess=lambda X, y, rng: 1 / 0)
    assert told(shown) == "0 epochs: "


def test_notes_are_printed_and_without_progress_nothing_is_shown(shown, capsys):
    brief(cpus(2), progress=True, num_epochs=1, loads=[1, 0])
    assert capsys.readouterr().out == "cpu(1) has load 0 and stays idle\n"
    shown.clear()
    brief(cpus(2), num_epochs=1)
    assert capsys.readouterr().out == "" and not shown


def test_without_widgets_or_a_notebook_there_are_lines(shown, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    for message in (r"pip install -e '\.\[notebooks\]'", "LivePlot needs a notebook"):
        brief(cpus(1), progress=True)
        assert len(re.findall(r"^epoch \d/2: loss", capsys.readouterr().out, re.MULTILINE)) == 2
        with pytest.raises(ValueError, match=message):
            d2l.LivePlot()
        monkeypatch.undo()
    assert not shown
