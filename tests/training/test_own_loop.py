"""For loops of one's own: the Timer, and the Animator in a terminal and in a notebook without a page."""

import numpy as np
import pytest
from test_live_plot import ZMQInteractiveShell, shown, told  # noqa: F401 (a fixture)

import d2lmgpu as d2l


@pytest.fixture
def clock(monkeypatch):
    """A function that lets seconds pass; no others do."""
    now = [100.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])

    def passes(seconds):
        now[0] += seconds

    return passes


def test_timer(clock):
    timer = d2l.Timer()
    assert (timer.times, timer.sum(), timer.cumsum()) == ([], 0, [])
    clock(2.0)
    assert timer.stop() == 2.0  # since it was made
    clock(50.0)
    timer.start()
    for seconds in (0.5, 1.0):
        clock(seconds)
        timer.stop()  # since the last start
    assert timer.times == [2.0, 0.5, 1.5]
    assert (timer.avg(), timer.sum(), timer.cumsum()) == (pytest.approx(4 / 3), 4.0, [2.0, 2.5, 4.0])


def test_several_lines(capsys):
    """In a terminal each point is a line; at different x, or none; numbers of any library; formats in turn."""
    animator = d2l.Animator(legend=["loss", "train", "test"], fmts=["-", "r:"], yscale="log", ylim=(0.01, 10))
    animator.add(0.25, [2.5, None, None])
    animator.add([0.5, 1, 2], [np.float32(1.5), np.array(0.75), d2l.put(np.array(0.5), d2l.cpu(0))])
    animator.add(np.array([3, 4, 5]), np.array([1.0, 0.5, np.nan]))
    with pytest.raises(ValueError, match="x has None"):  # after which nothing of it is there
        animator.add([6, None, 6], [1, 1, 1])
    lines = ["x 0.25: loss 2.5", "x 0.5: loss 1.5, train 0.75, test 0.5", "x 3: loss 1, train 0.5, test nan"]
    assert capsys.readouterr().out.splitlines() == lines
    assert animator.X == [[0.25, 0.5, 3], [1, 4], [2, 5]]
    assert animator.Y[:2] == [[2.5, 1.5, 1.0], [0.75, 0.5]] and all(type(y) is float for Y in animator.Y for y in Y)
    assert not animator.stopped
    for _ in range(2):  # each time the same lines
        (axes,) = animator.fig.axes
        assert [line.get_xdata().tolist() for line in axes.lines] == animator.X
        assert [line.get_linestyle() for line in axes.lines] == ["-", ":", "-"]
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["loss", "train", "test"]
        assert (axes.get_yscale(), axes.get_ylim()) == ("log", (0.01, 10))


def test_axes():
    """Of one epoch there are no limits: matplotlib warns of limits that are the same. Other axes are one's own."""
    animator = d2l.Animator("x", "y", nrows=2, figsize=(5, 4), xlim=(1, 1), ylim=(0, 4))
    animator.axes[1].plot([1, 2], [3, 4])
    animator.add(1, 2)
    assert [len(axes.lines) for axes in animator.fig.axes] == [1, 1]
    axes = animator.axes[0]
    assert axes.get_xlim()[0] < 1 < axes.get_xlim()[1] and axes.get_ylim() == (0, 4) and axes.get_ylabel() == "y"
    assert animator.fig.get_size_inches().tolist() == [5, 4]


def test_the_stop_button(shown):  # noqa: F811
    animator = d2l.Animator("epoch", "test acc")
    assert not shown  # what is made in another cell than the loop leaves nothing there
    for epoch in range(100):
        if animator.stopped:
            break
        animator.add(epoch, epoch / 100)
        if epoch == 7:
            button, label = shown[0].first.children
            button.click()
            assert button.disabled and button.description == "Stopping"
    assert epoch == 8
    ZMQInteractiveShell.events.end_cell()
    assert told(shown) == "epoch 7: test acc 0.07" and not ZMQInteractiveShell.events.after_a_cell
    shown.clear()
    animator.add(8, 0.5)  # in the next cell the loop goes on
    assert not animator.stopped and len(shown) == 2 and animator.X == [[*range(9)]]
    ZMQInteractiveShell.events.end_cell()


def test_it_is_drawn_now_and_then(shown, clock, monkeypatch, capsys):  # noqa: F811
    """Each drawing takes 0.1 s here, so that 2 s pass to the next; the last one has all points."""
    drawn = []

    def save(figure, file, format):
        clock(0.1)
        drawn.append(len(animator.X[0]))
        file.write(b"\x89PNG")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", save)
    animator = d2l.Animator(legend=["loss"])
    animator.add(0, 0.5)
    assert drawn == [1]
    _, label = shown[0].first.children
    for i in range(1, 60):
        clock(0.3)
        animator.add(i, i)
    assert drawn == [1, 3, 10, 17, 24, 31, 38, 45, 52, 59] and label.value == "x 58: loss 58"
    ZMQInteractiveShell.events.end_cell()
    assert drawn[-1] == 60 and told(shown) == "x 59: loss 59" and capsys.readouterr().out == ""
