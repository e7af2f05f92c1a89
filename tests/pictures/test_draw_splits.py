"""The picture of the ways to split: what is in it is what the plans say."""

import re
from collections import Counter
from pathlib import Path

from matplotlib.colors import to_hex
from matplotlib.text import Annotation

from d2lmgpu.networks import LENET, Dense, Flatten, sequential
from d2lmgpu.pictures.splits import WAYS
from d2lmgpu.plans import PLANS, draw_splits, prove

P = sum(stage.params for stage in PLANS["data"](1).stages)
PICTURE = Path(__file__).parents[2] / "notebooks" / "images" / "splits.svg"


def words(axes):
    """The texts in a panel, arrows apart."""
    return [text.get_text() for text in axes.texts if not isinstance(text, Annotation)]


def arrows(axes):
    """Of each arrow the colour, and whether it goes down."""
    found = [text for text in axes.texts if isinstance(text, Annotation)]
    return [(to_hex(each.arrow_patch.get_edgecolor()), each.xy[1] > each.xyann[1]) for each in found]


def megabytes(axes):
    return [float(text.removesuffix(" MB")) for text in words(axes) if text.endswith(" MB")]


def test_the_four_panels_of_the_textbook():
    ways = {"one device": PLANS["data"](1)} | {name: PLANS[name](3) for name in ("layers", "channels", "data")}
    figure = draw_splits(ways, 255)
    one, layers, channels, data = figure.axes
    assert [axes.get_title(loc="left") for axes in figure.axes] == list(ways)
    labels = [label.get_text() for label in one.get_yticklabels()]
    assert labels[:3] == ["images", "Conv2d → 20 × 26 × 26", "ReLU → 20 × 26 × 26"] and len(labels) == len(LENET) + 3
    assert words(one) == ["0–254", f"{P:,}"] and arrows(one) == []
    held = [f"{sum(stop - start for _, (start, stop), _ in parts):,}" for parts in ways["layers"].layout]
    assert words(layers)[:4] == ["0–254", *held]
    assert words(channels)[1:7] == ["0–6", "7–13", "14–19", "0–16", "17–33", "34–49"]
    assert words(channels).count("all") == 3
    assert words(data)[:6] == ["0–84", "85–169", "170–254", *[f"{P:,}"] * 3]
    y, dy, grads = ((WAYS[kind][1].lower(), kind != "dy") for kind in ("y", "dy", "grads"))
    assert sorted(arrows(layers)) == sorted([y, dy] * 2)
    assert sorted(arrows(channels)) == sorted([y] * 6 * 4 + [dy] * 6 * 3)  # no gradient of the logits travels
    assert arrows(data) == [grads] * 3  # round a ring
    for axes, plan in zip(figure.axes, ways.values(), strict=True):
        shown = megabytes(axes)
        assert abs(sum(shown) - sum(prove(plan, 255).sent) / 1e6) <= 0.0051 * len(shown)


def test_parts_of_nothing():
    """Three devices, and two images, or two outputs."""
    assert words(draw_splits({"data": PLANS["data"](3)}, 2).axes[0])[:3] == ["0–0", "1–1", "none"]
    network = sequential((1, 1, 4), Flatten(), Dense(2))
    assert words(draw_splits({"": PLANS["channels"](3, network=network)}).axes[0])[1:4] == ["0–0", "1–1", "none"]


def test_the_picture_on_the_page_is_what_is_drawn():
    ways = {"one device": PLANS["data"](1)} | {name: PLANS[name](2) for name in ("layers", "channels", "data")}
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", PICTURE.read_text(encoding="utf-8"))
    drawn = [text for axes in draw_splits(ways).axes for text in words(axes)]
    assert not Counter(drawn) - Counter(shown), "run python notebooks/images/draw_splits.py"
