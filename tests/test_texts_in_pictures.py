"""Whatever names a user gives, they are in the pictures and on the pages as they are, and nothing is said of them."""

import copy
import io
import warnings
from html.parser import HTMLParser
from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from conftest import long

import d2lmgpu as d2l
from d2lmgpu import collectives, plans
from d2lmgpu.plots import plot_confusion, plot_history, plot_mistakes, plot_timeline
from d2lmgpu.scaling import plot_phases, plot_scaling
from d2lmgpu.sweeps import DEFAULTS, plot_curves, plot_sweep
from d2lmgpu.timing import Span
from d2lmgpu.words import legible

TEXTS = {
    "dollars": "US$ or {AU$",
    "mathematics": r"$\frac{1}{x$ \alpha_i^2 100%",
    "a dollar": "$",
    "hidden": "_x",
    "markup": """<b>"x" & 'y'</b></script>--><!--""",
    "TeX": r"\textbf{a}_b^c#~&",
    "braces": "{0} {name} %s %(x)d",
    "not UTF-8": "caf\udce9",
    "colours": "\x1b[31mred\x1b[0m\a\0",
    "lines": "one\rtwo\u2028three\ttabs",
    "Chinese": "猫",
    "emoji": "🐈\u200d⬛",
    "from the right": "קָט اردو",
    "long": "x" * 300,
    "spaces": " a  b ",
    "empty": "",
}


def history(text):
    lists = {"train_loss": [1.0, 0.5], "test_accuracy": [0.3, 0.4], "train_accuracy": [0.2, 0.3], "test_loss": []}
    about = {"network": text, "devices": [text], "split": None, "allreduce": text, "init": text, "epochs": 2}
    return SimpleNamespace(**lists, **about, batch_size=4, lr=0.1, metrics={text: [0.5, 0.7]})


def trial(text, lr, status="done"):
    network = {"name": text, "layers": []}
    losses = {"train_loss": [1.0, 0.5], "test_accuracy": [0.3, 0.4]} if status == "done" else None
    return {"settings": DEFAULTS | {"network": network, "lr": lr, "devices": 1}, "status": status, "history": losses}


def animator(text):
    animator = d2l.Animator(xlabel=text, ylabel=text, legend=[text, "test"], xscale="log", yscale="log")
    animator.add(1, [0.5, 20])
    animator.add(2000, [0.25, 3])
    return animator.fig


def scaled(text):
    rows = [SimpleNamespace(devices=k, batch_size=4, seconds_per_step=1, phases={"forward": 1.0}) for k in (1, 2)]
    for row in rows:
        for name in ("seconds_per_epoch", "speedup", "efficiency"):
            vars(row).update({name + end: 1.0 for end in ("", "_min", "_max")})
    about = {"network": text, "machine": text, "allreduce": text, "settings": {text: text}, "mode": "strong"}
    return SimpleNamespace(rows=rows, model=None, places=9, width=1, batch_size=4, rounds=1, steps=2, **about)


RING, NETWORK = collectives.ALGORITHMS["ring"], collectives.network.wired([(0, 1, 1e9)])
PLAN = plans.PLANS["zero1"](2)
ROWS = [SimpleNamespace(devices=2, bytes=2**i, seconds=i, seconds_min=i / 2, busbw=1) for i in (9, 10, 20)]
P = np.array([[0.2, 0.8], [0.3, 0.7]])


def named(text):
    network = copy.copy(NETWORK)
    network.name = text
    return network


def measured(text):
    return [SimpleNamespace(**vars(row), algorithm=text) for row in ROWS]


PICTURES = {
    "history": lambda text: plot_history(history(text)),
    "timeline": lambda text: plot_timeline([Span(text, text, 0.0, 1.0), Span("host", "data", 0.0, 0.5)]),
    "confusion": lambda text: plot_confusion(np.eye(2), [text, "dog"]),
    "mistakes": lambda text: plot_mistakes(np.zeros((2, 1, 8, 8)), np.array([0, 0]), P, ["cat", text]),
    "sweep": lambda text: plot_sweep([trial(text, 0.1), trial(text, 0.2), trial("cnn", 0.1, "failed")], by="network"),
    "sweep of networks": lambda text: plot_sweep([trial(text, 0.1), trial("cnn", 0.1)], x="network"),
    "curves": lambda text: plot_curves([trial(text, 0.1), trial("cnn", 0.1)]),
    "scaling": lambda text: plot_scaling(scaled(text)),
    "phases": lambda text: plot_phases({text: scaled(text)}),
    "times": lambda text: collectives.plot_times({text: RING}, named(text), [64, 1024]),
    "measurements": lambda text: collectives.plot_measurements(measured(text)),
    "predictions": lambda text: collectives.plot_predictions(measured(text), np.array([8, 11, 20])),
    "plan": lambda text: plans.draw(PLAN._replace(name=text)),
    "splits": lambda text: plans.draw_splits({text: PLAN}),
    "own loop": animator,
}


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("part", [0, *long(*range(1, 8))])
def test_every_text_in_every_picture(monkeypatch, name, part):
    """As SVG, in which texts can be read, and as pixels; with a matplotlibrc that asks for TeX, and without."""
    number = [*PICTURES].index(name)
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", bool((number // 4 + part) % 2))
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in [*TEXTS.values()][(number + part) % 8 :: 8]:
            figure, svg = PICTURES[name](text), io.BytesIO()
            figure.savefig(io.BytesIO(), format="png", dpi=30)
            figure.savefig(svg, format="svg")
            seen = "".join(ElementTree.fromstring(svg.getvalue()).itertext())
            assert legible(text)[:20] in seen, text


class Read(HTMLParser):
    """The title of a page, and the number of its elements."""

    def __init__(self, page):
        super().__init__()
        self.title, self.tags, self._in = "", [], None
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self._in = tag
        self.tags.append(tag)

    def handle_data(self, text):
        self.title += text if self._in == "title" else ""

    def handle_endtag(self, tag):
        self._in = None


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_every_text_on_every_page(tmp_path, text):
    network, plan = named(text), PLAN._replace(name=text)
    collectives.write_html(RING(2, 4), 2, 4, tmp_path / "schedule.html", network, title=text)
    plans.write_html(plan, tmp_path / "plan.html")
    for name in ("schedule", "plan"):
        page = Read((tmp_path / f"{name}.html").read_text("utf-8"))
        assert page.title.strip().startswith(legible(text).strip()) and page.tags.count("script") == 2
    frame = Read(d2l.play(plan)._repr_html_())
    assert frame.tags == ["iframe"]
