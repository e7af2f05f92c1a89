"""The course's website: links, folded answers, docstrings; built whole, and looked at in a browser, with --all."""

import html
import json
import math
import re
import urllib.parse
from pathlib import Path

import pytest
import site_player
import site_sources
from website import DOCS, wait_for

from d2lmgpu import plans

REPOSITORY = Path(__file__).parents[2]


def test_links():
    for path, docname, link, expected in (
        ("README.md", "index", "docs/guide.md", "guide.md"),
        ("README.md", "index", "LICENSE", "../LICENSE"),
        ("docs/guide.md", "guide", "../README.md#the-course", "index.md#the-course"),
        ("notebooks/03_x.ipynb", "notebooks/03_x", "../docs/guide.md", "../guide.md"),
        ("docs/guide.md", "guide", "https://d2l.ai/x.html", "https://d2l.ai/x.html"),
    ):
        assert site_sources.with_site_links(f"see [there]({link}).", path, docname) == f"see [there]({expected})."


def test_a_notebook():
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Title\n", "see [guide](../docs/guide.md)"]},
        code("my_prediction = None"),
        code('axes.set(xlabel="devices", ylabel="seconds")\ncompare("time", my_prediction, 3)'),
        code("plot()", alt='a "ring"'),
    ]
    made = json.loads(site_sources.notebook(json.dumps({"cells": cells}), "notebooks/01_x"))["cells"]
    assert "(../guide.md)" in "".join(made[0]["source"])
    assert [cell["metadata"].get("tags") for cell in made[1:]] == [None, ["hide-output"], None]
    assert made[2]["metadata"]["mystnb"] == {"image": {"alt": "Figure: Title; seconds by devices"}}
    assert made[3]["metadata"]["mystnb"] == {"image": {"alt": 'a "ring"'}}


def code(text, data=None, **metadata):
    outputs = [{"output_type": "display_data", "data": data, "metadata": {}}] if data else []
    return {"cell_type": "code", "metadata": metadata, "source": [text], "outputs": outputs}


def test_all_pages_are_in_the_contents():
    """Who adds a page to docs or a notebook finds it on the site."""
    contents = site_sources.contents()
    pages = {path.stem for path in [*DOCS.glob("*.md"), *DOCS.glob("*.rst")]} - {"index"}
    assert pages == set(site_sources.PAGES)
    for path in (REPOSITORY / "notebooks").glob("*.ipynb"):
        assert f"<notebooks/{path.stem}>" in contents


def test_what_the_player_offers(tmp_path):
    """Whatever can be chosen has a page, and no two choices have the same."""
    names = [site_player.file_of(choice) for choice in [*site_player.SCHEDULES, *site_player.PLANS]]
    assert len(set(names)) == len(names)
    for choices in (site_player.SCHEDULES, site_player.PLANS):  # every value goes together with every other
        values = [{choice[key] for choice in choices} for key in choices[0]]
        assert math.prod(map(len, values)) == len(choices)
    assert {choice["shows"] for choice in site_player.PLANS} == set(plans.PLANS)
    site_player.write_pages(tmp_path, site_player.SCHEDULES[5:6], site_player.PLANS[-1:])
    assert {path.name for path in tmp_path.iterdir()} == {names[5], names[-1]}


def error_boxes(page):
    """The tags of an HTML page by which docutils or the theme says that its source is wrong.

    Furo's style sheet makes a red box of docutils' own table of contents, with an error that no warning tells.
    """
    page = re.sub(r"<noscript>.*?</noscript>", "", page, flags=re.DOTALL)
    wrong = {"contents", "system-message", "problematic", "error", "traceback"}
    return [tag for tag, names in re.findall(r'(<[^>]*\bclass="([^"]*)"[^>]*>)', page) if wrong & {*names.split()}]


@pytest.mark.long
def test_the_site_is_built(site):
    pages = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    assert len(pages) > 20
    for page in pages:
        text = page.read_text("utf-8")
        assert not error_boxes(text), page.name
        for picture in re.findall(r"<img\b[^>]*>", text):
            alt = re.search(r'alt="([^"]*)"', picture)
            assert alt and alt[1] and "_images/" not in alt[1], f"{page.name}: {picture[:200]} has no alternative text"
        for target in re.findall(r'(?:href|src)="([^"#?]+)[^"]*"', text):
            if not re.match(r"\w+:|//", target):
                assert (page.parent / html.unescape(target)).exists(), f"{page.name}: no {target}"
        for formula in re.findall(r"<math.*?</math>", text, re.DOTALL):
            assert "\\" not in formula, f"{page.name}: {formula} has a command that was not understood"
        assert not re.search(r'<(script|link|img)[^>]*(src|href)="(https?:)?//', text), f"{page.name} needs a network"
    assert len(list((site / "player").glob("*.html"))) > 200
    anchors = {page: set(re.findall(r'\bid="([^"]+)"', page.read_text("utf-8"))) for page in pages}
    for page in pages:
        for target, anchor in re.findall(r'href="([^"#?:]*)#([^"]+)"', page.read_text("utf-8")):
            there = (page.parent / html.unescape(target)).resolve() if target else page
            assert there not in anchors or html.unescape(anchor) in anchors[there], f"{page.name}: {target}#{anchor}"
    notebook = (site / "notebooks" / "01_devices.html").read_text("utf-8")
    assert notebook.count("<details") >= 5, "answers are folded"


LOOK = """(() => {
  const brush = document.createElement("canvas").getContext("2d", {willReadFrequently: true}), known = {};
  const rgba = colour => known[colour] ||= (brush.clearRect(0, 0, 1, 1), brush.fillStyle = colour,
    brush.fillRect(0, 0, 1, 1), [...brush.getImageData(0, 0, 1, 1).data]);
  const light = colour => colour.slice(0, 3).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  function behind(element) {
    for (let e = element; e; e = e.parentElement) {
      const colour = rgba(getComputedStyle(e).backgroundColor);
      if (colour[3] > 127) return colour;
    }
    return [255, 255, 255];
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = [];
  let count = 0;
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const e = text.parentElement, style = getComputedStyle(e);
    if (!text.data.trim() || !e.getClientRects().length || style.visibility !== "visible") continue;
    if (e.closest(".in-box")) continue;  // in a coloured box, of the player or the ring, which is no element around it
    count += 1;
    const one = light(rgba(e instanceof SVGElement ? style.fill : style.color)), other = light(behind(e));
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 3) faint.push(`${ratio.toFixed(2)}: ${text.data.trim().slice(0, 40)}`);
  }
  const pictures = [...document.images];
  return {
    title: document.title, count, faint, wide: document.documentElement.scrollWidth,
    broken: pictures.filter(i => i.complete && !i.naturalWidth && i.src).map(i => i.src.slice(0, 100)),
    unsaid: pictures.filter(i => !i.alt.trim()).map(i => i.src.slice(0, 100)),
    unnamed: [...document.querySelectorAll("iframe:not([title]), button:empty:not([aria-label])")].map(e => e.id),
  };
})()"""
"""What is wrong with a page. Contrast is that of WCAG 2.2, which asks for 3 of large text; what is below vanishes."""


@pytest.mark.long
def test_what_is_wrong_is_seen(browser):
    """`LOOK` finds text that vanishes, in one of both schemes only, and what is too wide, broken, or says nothing."""
    browser, _ = browser
    style = "<style>p {color: #eee} @media (prefers-color-scheme: dark) {body {background: #111}}</style>"
    page = f"<title>x</title>{style}<p>one</p><p><b style='color: black; background: white'>two</b></p>"
    page += "<img src='data:,' style='width: 900px'><iframe></iframe>"
    found = {}
    for dark in (False, True):
        browser.look_like(400, 844, dark)
        browser.open(f"data:text/html,{urllib.parse.quote(page)}")
        found[dark] = browser.evaluate(LOOK)
    assert [text.split()[-1] for text in found[False]["faint"]] == ["one"] and found[True]["faint"] == []
    assert found[True]["count"] == 2 and found[True]["wide"] > 800 and len(found[True]["unnamed"]) == 1
    assert len(found[True]["broken"]) == len(found[True]["unsaid"]) == 1


@pytest.mark.long
def test_every_page_in_a_browser(site, browser):
    """On a phone and a screen, in light and dark: no text vanishes or is cut off, all pictures say what one sees."""
    browser, address = browser
    paths = [path.relative_to(site) for path in sorted(site.rglob("*.html"))]
    pages = [path for path in paths if not {"_static", "_modules", "player"} & {*path.parts}]
    pages += [path for path in paths if "player" in path.parts][::60]
    pages += [path for path in paths if "_modules" in path.parts][::40]
    for page in pages:
        browser.look_like(390, 844)
        browser.open(address + page.as_posix())
        for width, dark in ((390, False), (390, True), (1200, True), (1200, False)):
            browser.look_like(width, 844, dark)
            seen, where = browser.evaluate(LOOK), f"{page}, {width} wide, {'dark' if dark else 'light'}"
            assert seen["title"] and seen["count"] > 3, where
            assert not seen["faint"], f"{where}: {seen['faint'][:5]}"
            assert seen["wide"] <= width, f"{where} is {seen['wide']} wide"
            assert not seen["broken"] and not seen["unsaid"] and not seen["unnamed"], (where, seen)


@pytest.mark.long
def test_the_player_by_keyboard(browser):
    browser, address = browser
    browser.look_like(1200, 844)
    browser.open(f"{address}player/ring-4-none.html")
    said = "document.querySelector('.time').textContent"
    assert browser.evaluate(said) == "0 of 6"
    for key, expected in [("ArrowRight", "1"), ("ArrowRight", "2"), ("ArrowLeft", "1"), ("End", "6"), ("Home", "0")]:
        browser.press(key)
        assert browser.evaluate(said) == f"{expected} of 6", key
    browser.press("Tab")
    focus = "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent"
    first = browser.evaluate(focus)
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", "the focus is seen"
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.tagName") == "BUTTON" and browser.evaluate(focus) != first
    browser.evaluate("document.activeElement.blur()")
    browser.press(" ")
    wait_for(browser, f"parseFloat({said}) > 0")
    browser.press(" ")
    now = browser.evaluate(said)
    browser.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert browser.evaluate(said) == now, "it pauses"


@pytest.mark.long
def test_what_is_chosen_is_shown(browser):
    """The frame of the player's page shows what its form says."""
    browser, address = browser
    browser.open(f"{address}player.html")
    shown = "document.getElementById('shown').contentDocument.querySelector('h1')?.textContent"
    browser.evaluate("document.getElementById('shown').scrollIntoView()")  # it is loaded when it comes into view
    wait_for(browser, f"{shown}?.startsWith('ring: 4 devices')")
    choose = "(([name, value]) => { const select = document.querySelector(`#chooser [name='${name}']`);"
    choose += "select.value = value; select.dispatchEvent(new Event('change', {bubbles: true})); })"
    browser.evaluate(f"{choose}(['k', '3'])")
    wait_for(browser, f"{shown}?.startsWith('ring: 3 devices')")
    browser.evaluate(f"{choose}(['what', 'plan'])")
    wait_for(browser, f"{shown}?.includes('micro-batch')")
    browser.evaluate(f"{choose}(['shows', 'zero3'])")
    wait_for(browser, f"{shown}?.includes('zero3')")
    browser.evaluate("document.getElementById('shown').contentWindow.focus()")
    browser.press("ArrowRight")
    time_shown = "document.getElementById('shown').contentDocument.querySelector('.time').textContent"
    wait_for(browser, f"!{time_shown}.startsWith('0 ')")
