"""The website for all: names for pictures, links and buttons, an order of headings, a focus that is seen.

Contrast, and what scripts make of a page, are looked at in test_website.py.
"""

import itertools
import re
from html.parser import HTMLParser

import pytest


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
        elif tag in ("img", "iframe") and not name:
            self.wrong.append(f"{tag} without a name: {given.get('src', '')[:60]}")
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


def test_what_is_missing_is_seen():
    good = '<html lang="en"><h1>a</h1><h2>b</h2><img alt="x" src="y"><a href="z"><img alt="q"></a><button>go</button>'
    assert Page(good).wrong == []
    bad = good.replace(' lang="en"', "").replace("h2>", "h3>").replace('alt="x"', 'alt=""').replace("go", "")
    missing = ["img without a name: y", "button without a name: None", "no language", "h3 follows h1"]
    assert Page(bad).wrong == missing


@pytest.mark.long
def test_every_page_has_names_and_an_order(site):
    """But what scripts make: the player's pages. Slides are many small pages in one, each with its own title."""
    made_by_scripts = {"player", "_static", "tab"}
    pages = [path for path in site.rglob("*.html") if not made_by_scripts & {*path.relative_to(site).parts}]
    assert len(pages) > 20
    wrong = {page.name: Page(page.read_text("utf-8")).wrong for page in pages if page.name != "slides.html"}
    assert not {page: found[:5] for page, found in wrong.items() if found}


@pytest.mark.long
def test_the_focus_is_seen(browser):
    """Whatever the tabulator key reaches shows it."""
    browser, address = browser
    browser.look_like(1200, 844)
    look = "(s => [document.activeElement.tagName, s.outlineStyle, parseFloat(s.outlineWidth), s.boxShadow])"
    look += "(getComputedStyle(document.activeElement))"
    not_ours = {"BODY", "IFRAME", "HTML"}
    for page in ("index.html", "notebooks/01_devices.html", "player/ring-4-none.html"):
        browser.open(address + page)
        seen = set()
        for _ in range(25):
            browser.press("Tab")
            tag, style, width, shadow = browser.evaluate(look)
            assert tag in not_ours or (style != "none" and width >= 1) or shadow != "none", (page, tag)
            seen.add(tag)
        assert seen - not_ours, f"something is reached on {page}"
