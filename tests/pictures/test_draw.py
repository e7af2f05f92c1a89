"""Pictures of schedules: what is in them, since a test cannot look at them."""

import io
import itertools

import numpy as np
import pytest

from d2lmgpu.collectives import ALGORITHMS, Transfer, draw_bytes, draw_steps, naive, plot_times, ring
from d2lmgpu.collectives.network import full_switch, machines
from d2lmgpu.pictures import schedules as draw


def panels_of(figure):
    return [axes for axes in figure.axes if axes.axison]


def texts(axes):
    """The words in the cells, row by row."""
    return [text.get_text() for text in axes.texts]


def arrows(axes):
    """Of each message (where it is drawn, from which device, to which)."""
    return [
        (x, round(begin), round(begin + length))
        for each in axes.collections
        for (x, begin), length in zip(each.get_offsets(), each.V, strict=True)
    ]


def test_steps_show_who_holds_what():
    panels = panels_of(draw_steps(ring(3, 7), 3, 7))
    assert [axes.get_title() for axes in panels] == ["at the start", *(f"after step {i}" for i in (1, 2, 3, 4))]
    assert texts(panels[0]) == ["0"] * 3 + ["1"] * 3 + ["2"] * 3
    assert texts(panels[1]) == ["0", "0 2", "0", "1", "1", "0 1", "1 2", "2", "2"]
    assert texts(panels[4]) == ["0 1 2"] * 9
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ["0–2", "3–4", "5–6"]
    assert arrows(panels[0]) == []
    for panel, shift in zip(panels[1:], (2, 1, 0, 2), strict=True):  # device i sends chunk i + shift
        expected = {((i + shift) % 3, i, (i + 1) % 3) for i in range(3)}
        assert {(round(x), *ends) for x, *ends in arrows(panel)} == expected
    double = panels_of(draw_steps(naive(2, 4)[:1] * 2, 2, 4))  # a mistake
    assert texts(double[2]) == ["0 1 1", "1"]


def test_messages_to_one_device_are_drawn_side_by_side():
    """Three arrows that end at device 0 and three that begin there: no two lie upon each other."""
    star = [[Transfer(i, 0, 0, 8, "add") for i in (1, 2, 3)], [Transfer(0, i, 0, 8, "copy") for i in (1, 2, 3)]]
    panels = panels_of(draw_steps(star, 4, 8))
    for panel, ends in zip(panels[1:], ({(1, 0), (2, 0), (3, 0)}, {(0, 1), (0, 2), (0, 3)}), strict=True):
        found = arrows(panel)
        assert {(begin, end) for _, begin, end in found} == ends
        assert len({x for x, *_ in found}) == 3 and all(abs(x) < 0.5 for x, *_ in found)


def test_shares_of_many_devices_are_in_two_lines_or_colours_and_panels_side_by_side_as_asked():
    panels = panels_of(draw_steps(ring(6, 6), 6, 6, columns=3))
    assert set(texts(panels[-1])) == {"0 1 2 3\n4 5"}
    assert [bool(axes.get_ylabel()) for axes in panels[:4]] == [True, False, False, True]
    with pytest.raises(ValueError, match="^columns is 1.5; it should be "):
        draw_steps(ring(3, 7), 3, 7, columns=1.5)
    for step, panel in enumerate(panels_of(draw_steps(ALGORITHMS["recursive_doubling"](16, 16), 16, 16))):
        assert texts(panel) == [] and panel.images[0].get_array().tolist() == [[2**step]] * 16
        assert len(arrows(panel)) == (16 if step else 0)


def test_counts_of_a_type_that_is_no_index_here(monkeypatch):
    """uint64 where indices have 64 bits is what int64 is where they have 32: `repeat` and `bincount` refuse it."""
    counted = draw.counted
    monkeypatch.setattr(draw, "counted", lambda *args: counted(*args).astype(np.uint64))
    assert texts(panels_of(draw_steps(ring(2, 2), 2, 2))[-1]) == ["0 1"] * 4


def test_heat_map_of_bytes():
    figure = draw_bytes(naive(3, 10), 3)
    sent = np.nan_to_num(np.asarray(figure.axes[0].images[0].get_array().filled(0)))
    np.testing.assert_array_equal(sent, [[0, 40, 40], [40, 0, 0], [40, 0, 0]])
    assert figure.get_suptitle() == "160 bytes in all, at most 80 from one device"


def test_times_and_their_crossover():
    """Short messages: recursive doubling; long ones: the ring. The mark is where the closed forms cross."""
    algorithms = {name: ALGORITHMS[name] for name in ("recursive_doubling", "ring")}
    sizes = [2**i for i in range(6, 26)]
    axes = plot_times(algorithms, full_switch(8, 1e9, 1e-5), sizes=sizes).axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [*algorithms, "no allreduce is faster"]
    bound = axes.lines[2].get_ydata()
    assert bound[-1] == pytest.approx(1e-5 + 2 * 7 / 8 * sizes[-1] / 1e9)
    assert all((bound <= line.get_ydata()).all() for line in axes.lines[:2])
    marks = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == ":"]
    crossing = (14 - 3) * 1e-5 * 1e9 / (3 - 2 * 7 / 8)  # 3(α + n/β) = 14α + 2·7/8·n/β
    assert len(marks) == 1 and crossing / 2 < marks[0] < crossing * 2
    assert texts(axes) == ["ring →"]
    axes = plot_times({"ring": ring, "naive": naive}, machines, sizes=4096, devices=[2, 4, 16]).axes[0]
    assert axes.get_xlabel() == "devices" and axes.lines[0].get_xdata().tolist() == [2, 4, 16]


@pytest.mark.parametrize("ratio", [2, 40, 20_000])
def test_no_number_of_a_logarithmic_axis_is_written_upon_another(ratio):
    figure = plot_times({"ring": ring}, full_switch(4, 1e9), sizes=[4000, 4000 * ratio])
    figure.savefig(io.BytesIO(), format="png")  # now the places are known
    axis = figure.axes[0].yaxis
    shown = [text for which in ("major", "minor") for text in axis.get_ticklabels(which=which)]
    low, high = sorted(axis.get_view_interval())
    shown = [text for text in shown if text.get_text() and low <= text.get_position()[1] <= high]
    places = sorted((text.get_window_extent().y0, text.get_window_extent().y1) for text in shown)
    assert len(places) >= 1 and all(a[1] < b[0] for a, b in itertools.pairwise(places))
