"""The README's pictures: each is what its script draws, and the moving one shows the library's own schedule."""

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

from d2lmgpu.cli import COMMANDS, parse
from d2lmgpu.collectives import ALGORITHMS

IMAGES = Path(__file__).resolve().parents[2] / "notebooks" / "images"


def script(name):
    return runpy.run_path(str(IMAGES / f"draw_{name}.py"))


def saved(name):
    return (IMAGES / f"{name}.svg").read_text("utf-8")


def test_the_moving_ring_is_what_its_script_draws():
    text = saved("ring")
    assert text == script("ring")["drawn"](), "run python notebooks/images/draw_ring.py"
    assert len(text) < 60_000 and ElementTree.fromstring(text).get("width") == "640"


def test_the_moving_ring_has_all_messages():
    moving = re.findall(r'class="sent sent-(\d) (\w+)"', saved("ring"))
    assert moving == [(str(i), t.op) for i, step in enumerate(ALGORITHMS["ring"](4, 4)) for t in step]


def test_the_moving_ring_stands_still_where_motion_is_unwanted():
    style = re.search(r"<style>(.*?)</style>", saved("ring"), re.DOTALL)[1]
    before, within = style.split("@media(prefers-reduced-motion:no-preference){")
    assert "animation" not in before and "infinite" in within and "prefers-color-scheme:dark" in before


def test_the_terminal_is_what_its_script_draws_of_these_lines():
    tools, text = script("terminal"), saved("terminal")
    typed, *lines = [element.text for element in ElementTree.fromstring(text).iterfind("{*}text")]
    assert text == tools["drawn"](tools["COMMAND"], lines), "run python notebooks/images/draw_terminal.py"
    assert typed == f"$ {' '.join(tools['COMMAND'])}" and parse(COMMANDS, list(tools["COMMAND"][1:]))
    assert [line[:9] for line in lines[:3]] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert re.fullmatch(r"test acc: 0\.\d\d, \d+\.\d sec/epoch on \[cpu\(0\), cpu\(1\)\]", lines[-1])
