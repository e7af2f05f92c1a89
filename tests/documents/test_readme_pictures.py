"""The README's pictures: each is what its script draws, and the moving one shows the library's own schedule."""

import re
import runpy
from pathlib import Path
from xml.etree import ElementTree

from d2lmgpu.cli import COMMANDS, parse
from d2lmgpu.collectives import ALGORITHMS, prove

IMAGES = Path(__file__).resolve().parents[2] / "notebooks" / "images"


def script(name):
    return runpy.run_path(str(IMAGES / f"draw_{name}.py"))


def saved(name):
    return (IMAGES / f"{name}.svg").read_text("utf-8")


def test_the_moving_ring_is_what_its_script_draws():
    text = saved("ring")
    assert text == script("ring")["drawn"](), "run python notebooks/images/draw_ring.py"
    assert len(text) < 60_000 and ElementTree.fromstring(text).get("width") == "640"


def test_the_moving_ring_has_all_messages_and_ends_with_all_sums():
    text, schedule = saved("ring"), ALGORITHMS["ring"](4, 4)
    moving = re.findall(r'class="sent sent-(\d) (\w+)"', text)
    assert moving == [(str(i), t.op) for i, step in enumerate(schedule) for t in step] and prove(schedule, 4, 4)
    still = re.sub(r'<g class="sent .*?</g>', "", text)
    for share in range(4):  # of each chunk on each device: there from the start, or from some step on
        assert len(re.findall(rf'<rect class="d{share}"', still)) == 4 * 4


def test_the_moving_ring_stands_still_where_motion_is_unwanted():
    style = re.search(r"<style>(.*?)</style>", saved("ring"), re.DOTALL)[1]
    before, within = style.split("@media(prefers-reduced-motion:no-preference){")
    named, frames = (set(re.findall(p, within)) for p in (r"animation-name:([\w-]+)", r"@keyframes ([\w-]+)"))
    assert "animation" not in before and named == frames and len(frames) == 3 * 6 + 2
    assert "prefers-color-scheme:dark" in before and "infinite" in within


def test_the_terminal_is_what_its_script_draws_of_these_lines():
    tools, text = script("terminal"), saved("terminal")
    typed, *lines = [element.text for element in ElementTree.fromstring(text).iterfind("{*}text")]
    assert text == tools["drawn"](tools["COMMAND"], lines), "run python notebooks/images/draw_terminal.py"
    assert typed == f"$ {' '.join(tools['COMMAND'])}" and parse(COMMANDS, list(tools["COMMAND"][1:]))
    assert [line[:9] for line in lines[:3]] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert re.fullmatch(r"test acc: 0\.\d\d, \d+\.\d sec/epoch on \[cpu\(0\), cpu\(1\)\]", lines[-1])
