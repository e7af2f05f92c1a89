"""Whatever names a user gives, they are in the pictures as they are, and nothing is said of them."""

import copy
import io
import warnings
from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from conftest import long

import d2lmgpu as d2l
from d2lmgpu import collectives, plans
from d2lmgpu.base.text import legible
from d2lmgpu.devices.timeline import Span
from d2lmgpu.experiments import DEFAULTS, plot_curves, plot_scaling, plot_sweep
from d2lmgpu.experiments.scaling import Sample, Scaling, make_rows
from d2lmgpu.pictures.plots import plot_confusion, plot_history, plot_timeline

TEXTS = [
    "US$ or {AU$",
    r"$\frac{1}{x$ \alpha_i^2 100%",
    "\x1b[31mred\x1b[0m\a\0",
    "_x",  # which legends would leave out
    r"\textbf{a}_b^c#~&",
    "caf\udce9",  # a name that is not UTF-8
    """<b>"x" & 'y'</b></script>--><!--""",
    "one\rtwo\u2028three\ttabs",
    "猫 🐈\u200d⬛ קָט اردو",
    "x" * 300,
    "",
]


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
    rows = make_rows({1: [Sample(1.0, {"forward": 1.0})], 2: [Sample(1.0, {})]}, {1: 4, 2: 4}, steps=2, epoch=8)
    return Scaling("strong", text, 1, 1, 4, text, 1, 2, [], 9, text, text, rows)


RING, NETWORK = collectives.ALGORITHMS["ring"], collectives.network.wired({(0, 1): 1e9})
PLAN = plans.PLANS["zero1"](2)


def named(text):
    network = copy.copy(NETWORK)
    network.name = text
    return network


PICTURES = {
    "history": lambda text: plot_history(history(text)),
    "timeline": lambda text: plot_timeline([Span(text, text, 0.0, 1.0), Span("host", "data", 0.0, 0.5)]),
    "confusion": lambda text: plot_confusion(np.eye(2), [text, "dog"]),
    "sweep": lambda text: plot_sweep([trial(text, 0.1), trial(text, 0.2), trial("cnn", 0.1, "failed")], by="network"),
    "curves": lambda text: plot_curves([trial(text, 0.1), trial("cnn", 0.1)]),
    "scaling": lambda text: plot_scaling(scaled(text)),
    "times": lambda text: collectives.plot_times({text: RING}, named(text), [64, 1024]),
    "plan": lambda text: plans.draw(PLAN._replace(name=text)),
    "splits": lambda text: plans.draw_splits({text: PLAN}),
    "own loop": animator,
}


QUICK = "timeline", "confusion"
NIGHTLY = [pytest.param(part, marks=pytest.mark.nightly) for part in range(1, len(TEXTS))]


@pytest.mark.parametrize("part", [0, *NIGHTLY])
@pytest.mark.parametrize("name", [*QUICK, *long(*(name for name in PICTURES if name not in QUICK))])
def test_every_text_in_every_picture(monkeypatch, name, part):
    """As SVG, in which texts can be read, and as pixels; with a matplotlibrc that asks for TeX, and without."""
    number = [*PICTURES].index(name)
    text = TEXTS[(number + part) % len(TEXTS)]
    monkeypatch.setitem(matplotlib.rcParams, "text.usetex", bool((number // 4 + part) % 2))
    monkeypatch.setitem(matplotlib.rcParams, "svg.fonttype", "none")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure, svg = PICTURES[name](text), io.BytesIO()
        figure.savefig(io.BytesIO(), format="png", dpi=30)
        figure.savefig(svg, format="svg")
    assert legible(text)[:20] in "".join(ElementTree.fromstring(svg.getvalue()).itertext())
