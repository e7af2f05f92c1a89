"""The website for all: names for pictures, links and buttons, an order of headings, colours that all tell apart.

Contrast is that of WCAG 2.2, which asks for 4.5 of text and for 3 of what is large, or no text. What scripts make of a
page is looked at in test_website.py.
"""

import ast
import itertools
import re
import runpy
from html.parser import HTMLParser

import numpy as np
import pytest
from website import DOCS

from d2lmgpu.collectives.draw import COLOURS

RING = DOCS.parent / "notebooks" / "images" / "ring.svg"
BACKGROUNDS = {"light": "#ffffff", "dark": "#131416"}
"""Furo's, by theme."""
SIDEBARS = {"light": "#f8f9fb", "dark": "#1a1c1e"}


class Page(HTMLParser):
    """What a page has, and in ``wrong`` what is missing."""

    def __init__(self, text):
        super().__init__()
        self.wrong, self.levels, self.open, self.lang = [], [], [], None
        self.feed(text)
        if not self.lang:
            self.wrong.append("no language")
        if self.levels.count(1) != 1:
            self.wrong.append(f"{self.levels.count(1)} headings h1")
        jumps = [pair for pair in itertools.pairwise(self.levels) if pair[1] > pair[0] + 1]
        self.wrong += [f"h{after} follows h{before}" for before, after in jumps]

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        name = (given.get("aria-label") or given.get("title") or given.get("alt") or "").strip()
        if tag == "html":
            self.lang = given.get("lang")
        elif re.fullmatch(r"h[1-6]", tag):
            self.levels.append(int(tag[1]))
        elif tag == "img" and not name:
            self.wrong.append(f"img without alt: {given.get('src', '')[:60]}")
        elif tag == "iframe" and not name:
            self.wrong.append("iframe without title")
        if tag in ("a", "button", "summary") and (tag != "a" or "href" in given):
            self.open.append([tag, "", given.get("href") or given.get("class")])
        self.handle_data(name)

    def handle_data(self, data):
        for each in self.open:
            each[1] += data

    def handle_endtag(self, tag):
        if self.open and self.open[-1][0] == tag:
            _, name, which = self.open.pop()
            if not name.strip():
                self.wrong.append(f"{tag} without a name: {which}")


GOOD = '<html lang="en"><h1>a</h1><h2>b</h2><img alt="x" src="y"><a href="z"><img alt="q"></a><button>go</button>'


@pytest.mark.parametrize(
    "change, wrong",
    [
        (("", ""), []),
        ((' lang="en"', ""), ["no language"]),
        (("<h1>a</h1>", ""), ["0 headings h1"]),
        (("<h2>", "<h1>"), ["2 headings h1"]),
        (("<h2>", "<h3>"), ["h3 follows h1"]),
        (('alt="x" ', 'alt="" '), ["img without alt: y"]),
        (("go", ""), ["button without a name: None"]),
        (('<img alt="q">', ""), ["a without a name: z"]),
        (("<button>go", '<button title="go">'), []),
    ],
)
def test_what_is_missing_is_seen(change, wrong):
    assert Page(GOOD.replace(*change)).wrong == wrong


def rgb(colour):
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255


def contrast(one, other):
    """Of two colours, each a text or red, green and blue from 0 to 1."""
    lights = []
    for colour in (one, other):
        values = rgb(colour) if isinstance(colour, str) else colour
        lights.append(np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4) @ LIGHT)
    return (max(lights) + 0.05) / (min(lights) + 0.05)


LIGHT = np.array([0.2126, 0.7152, 0.0722])


def test_contrast():
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast("#777777", "#777777") == 1
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def accents():
    """`COLOURS` of docs/conf.py, which cannot be imported without Sphinx."""
    tree = ast.parse((DOCS / "conf.py").read_text("utf-8"))
    (value,) = [
        each.value
        for each in tree.body
        if isinstance(each, ast.Assign) and each.targets[0].__dict__.get("id") == "COLOURS"
    ]
    return ast.literal_eval(value)


@pytest.mark.parametrize("theme", BACKGROUNDS)
def test_the_accent_is_read(theme):
    colours = accents()[theme]
    assert contrast(colours["accent"], BACKGROUNDS[theme]) >= 4.5
    assert contrast(colours["accent"], SIDEBARS[theme]) >= 4.5
    assert contrast(colours["on-accent"], colours["accent"]) >= 4.5
    ring = runpy.run_path(str(RING.with_name("draw_ring.py")))["PALETTES"][theme]
    assert all(contrast(ring[op], BACKGROUNDS[theme]) >= 4.5 for op in ("add", "copy"))


@pytest.mark.parametrize("theme", [0, 1], ids=BACKGROUNDS)
def test_slides_are_read(theme):
    """Texts against what is behind them. Read from the source, since packages of Sphinx may be missing."""
    rules = re.findall(r":root \{ color-scheme: \w+;(.*?)\}", (DOCS / "site_slides.py").read_text("utf-8"), re.DOTALL)
    colours = dict(re.findall(r"--(\w+): (#\w+)", rules[theme]))
    for text in ("ink", "quiet", "title"):
        assert contrast(colours[text], colours["paper"]) >= 4.5 and contrast(colours[text], colours["code"]) >= 4.5


def test_numbers_in_the_rings_squares_are_read():
    rules = dict(re.findall(r"\.ring \.(in-box|d\d)\{[^}]*fill:(#\w+)", RING.read_text("utf-8")))
    assert len(rules) == 5 and all(contrast(rules["in-box"], rules[f"d{i}"]) >= 4.5 for i in range(4))


def turned(colour):
    """What the style sheet's filter makes of a colour: inverted by 0.93, then its hue turned by half a circle."""
    part = 0.93
    inverted = rgb(colour) * (1 - part) + (1 - rgb(colour)) * part
    luminance = np.array([0.213, 0.715, 0.072])
    return np.clip(2 * (luminance @ inverted) - inverted, 0, 1)


def test_figures_in_the_dark():
    """The filter is site.css's and the slides'; white becomes nearly the page's own dark, and colours stay apart."""
    for file in ("site/site.css", "site_slides.py"):
        rules = re.findall(r"filter: (invert.*?);", (DOCS / file).read_text("utf-8"))
        assert rules and set(rules) == {"invert(0.93) hue-rotate(180deg)"}
    assert np.abs(turned("#ffffff") - rgb(BACKGROUNDS["dark"])).max() < 0.03
    assert contrast(turned("#000000"), turned("#ffffff")) > 12
    for one, other in itertools.combinations(COLOURS, 2):
        before, after = (np.abs(f(one) - f(other)).max() for f in (rgb, turned))
        assert after > min(0.15, before / 2), f"{one} and {other} are {after:.2f} apart"


@pytest.mark.long
def test_every_page_has_names_and_an_order(site):
    """But what scripts make: the player's pages. Slides are many small pages in one, each with its own title."""
    made_by_scripts = {"player", "_static", "tab"}
    pages = [path for path in site.rglob("*.html") if not made_by_scripts & {*path.relative_to(site).parts}]
    assert len(pages) > 20
    wrong = {page.name: Page(page.read_text("utf-8")).wrong for page in pages if page.name != "slides.html"}
    assert not {page: found[:5] for page, found in wrong.items() if found}


@pytest.mark.long
@pytest.mark.parametrize("page", ["index.html", "notebooks/01_devices.html", "player/ring-4-none.html"])
def test_the_focus_is_seen(browser, page):
    """Whatever the tabulator key reaches shows it."""
    browser, address = browser
    browser.look_like(1200, 844)
    browser.open(address + page)
    look = "(s => [document.activeElement.tagName, s.outlineStyle, parseFloat(s.outlineWidth), s.boxShadow])"
    look += "(getComputedStyle(document.activeElement))"
    seen, not_ours = set(), {"BODY", "IFRAME", "HTML"}
    for _ in range(25):
        browser.press("Tab")
        tag, style, width, shadow = browser.evaluate(look)
        assert tag in not_ours or (style != "none" and width >= 1) or shadow != "none", (page, tag)
        seen.add(tag)
    assert seen - not_ours, "something is reached"
