"""For loops of one's own: the Timer, and the Animator in a terminal, in a notebook without a page and in a real one."""

import numpy as np
import pytest
from test_documents import run_python
from test_live_plot import ZMQInteractiveShell, shown, told  # noqa: F401 (a fixture)
from test_stop_button import environment

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
    with pytest.raises(ValueError, match=r"there are no times yet; call stop\(\)"):
        timer.avg()
    assert (timer.times, timer.sum(), timer.cumsum()) == ([], 0, [])
    clock(2.0)
    assert timer.stop() == 2.0  # since it was made
    clock(50.0)
    timer.start()
    clock(0.5)
    timer.stop()
    clock(1.0)
    assert timer.stop() == 1.5  # since the last start
    assert timer.times == [2.0, 0.5, 1.5]
    assert (timer.avg(), timer.sum(), timer.cumsum()) == (pytest.approx(4 / 3), 4.0, [2.0, 2.5, 4.0])


def test_in_a_terminal_each_point_is_a_line(capsys):
    animator = d2l.Animator("epoch", "test acc", xlim=[1, 10])
    for epoch, accuracy in enumerate([0.5, 0.83712]):
        assert not animator.stopped
        animator.add(epoch + 1, (accuracy,))  # as in the textbook
    assert capsys.readouterr().out == "epoch 1: test acc 0.5\nepoch 2: test acc 0.8371\n"
    assert animator.X == [[1, 2]] and animator.Y == [[0.5, 0.83712]] and f"{animator.Y[0][-1]:.2f}" == "0.84"


def test_one_epoch_has_no_limits():
    """matplotlib warns of limits that are the same; tests make warnings errors."""
    animator = d2l.Animator(xlim=[1, 1], ylim=(0, 1))
    animator.add(1, 0.5)
    (axes,) = animator.fig.axes
    assert axes.get_xlim()[0] < 1 < axes.get_xlim()[1] and axes.get_ylim() == (0, 1)


def test_several_lines(capsys):
    """Points at different x, and none; numbers of any library; formats in turn."""
    animator = d2l.Animator(legend=["loss", "train", "test"], fmts=["-", "r:"], yscale="log", ylim=(0.01, 10))
    animator.add(0.25, [2.5, None, None])
    animator.add([0.5, 1, 2], [np.float32(1.5), np.array(0.75), d2l.put(np.array(0.5), d2l.cpu(0))])
    animator.add(np.array([3, 4, 5]), np.array([1.0, 0.5, np.nan]))
    assert capsys.readouterr().out.splitlines() == [
        "x 0.25: loss 2.5",
        "x 0.5: loss 1.5, train 0.75, test 0.5",
        "x 3: loss 1, train 0.5, test nan",
    ]
    assert animator.X == [[0.25, 0.5, 3], [1, 4], [2, 5]]
    assert animator.Y[:2] == [[2.5, 1.5, 1.0], [0.75, 0.5]] and all(type(y) is float for Y in animator.Y for y in Y)
    for _ in range(2):  # each time the same lines
        (axes,) = animator.fig.axes
        assert [line.get_xdata().tolist() for line in axes.lines] == animator.X
        assert [line.get_linestyle() for line in axes.lines] == ["-", ":", "-"]
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["loss", "train", "test"]
        assert (axes.get_yscale(), axes.get_ylim()) == ("log", (0.01, 10))


def test_other_axes_are_ones_own():
    animator = d2l.Animator("x", "y", nrows=2, figsize=(5, 4), xlim=(1, 2))
    animator.axes[1].plot([1, 2], [3, 4])
    animator.add(1, 2)
    assert [len(axes.lines) for axes in animator.fig.axes] == [1, 1]
    assert animator.fig.get_size_inches().tolist() == [5, 4] and animator.axes[0].get_ylabel() == "y"


def test_a_terminal_opens_no_window():
    script = "import sys, d2lmgpu as d2l\nd2l.Animator('epoch').add(1, 0.5)\n"
    assert run_python(script + "print({'matplotlib.pyplot', 'IPython'} & {*sys.modules})") == "epoch 1: y 0.5\nset()\n"


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
    assert not animator.stopped and len(shown) == 2
    ZMQInteractiveShell.events.end_cell()
    assert told(shown) == "epoch 8: test acc 0.5" and animator.X == [[*range(9)]]


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


def test_a_cell_of_a_real_notebook_keeps_a_line_and_a_picture(tmp_path, monkeypatch):
    """With all points, though the last was added long before the next drawing; also of a cell that fails."""
    nbclient = pytest.importorskip("nbclient", reason="nbclient is missing (pip install -e '.[notebooks]')")
    pytest.importorskip("ipywidgets", reason="ipywidgets is not installed (pip install -e '.[notebooks]')")
    from nbformat import v4

    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    first = "import d2lmgpu as d2l\nanimator = d2l.Animator('epoch', 'test acc')"
    loop = "for epoch in range(3):\n    assert not animator.stopped\n    animator.add(epoch, 0.5)\nprint(animator.Y)"
    cells = [v4.new_code_cell(source) for source in (first, loop, "animator.add(3, 0.25)\nassert animator.X == 7")]
    notebook = v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=True).execute()
    nothing, (line, picture, printed), (other_line, other_picture, error) = (cell.outputs for cell in cells)
    assert nothing == [] and printed.text == "[[0.5, 0.5, 0.5]]\n" and error.ename == "AssertionError"
    assert line.data == {"text/plain": "epoch 2: test acc 0.5"}
    assert other_line.data == {"text/plain": "epoch 3: test acc 0.25"}
    assert picture.data["image/png"] != other_picture.data["image/png"]


@pytest.mark.parametrize(
    "wrong", [{"xlim": [1]}, {"ylim": [0, np.nan]}, {"fmts": ["zz"]}, {"yscale": "lin"}, {"nrows": 0}]
)
def test_arguments_that_matplotlib_refuses(wrong):
    with pytest.raises(ValueError, match="^Animator: matplotlib does not take these arguments: "):
        d2l.Animator(**wrong)


def test_points_that_do_not_fit():
    animator = d2l.Animator(legend=["loss", "acc"])
    for x, y, message in [
        (1, 0.5, "Animator.add: 1 numbers y, 1 x; give 2, one for each line"),
        ([1, 2, 3], [0.5, 1], "Animator.add: 2 numbers y, 3 x; give 2, one for each line"),
        (None, [0.5, 1], "Animator.add: x has None; it should be a number, or a list of numbers"),
        (1, [0.5, "high"], "Animator.add: y has 'high'; it should be a number, or a list of numbers"),
    ]:
        with pytest.raises(ValueError, match=f"^{message}"):
            animator.add(x, y)
    assert (animator.X, animator.Y) == ([], [])
    with pytest.raises(ValueError, match="Animator.add: 0 numbers y, 0 x; give"):
        d2l.Animator().add(1, [])
    with pytest.raises(ValueError, match="Animator: legend: 'loss' should be a list of names"):
        d2l.Animator(legend="loss")
