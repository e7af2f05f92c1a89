"""The slides: each has a title, each picture is there and says what one sees; Chromium prints them."""

import re
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
HEIGHTS = "[...document.querySelectorAll('section')].map(slide => slide.getBoundingClientRect().height)"
OVERFLOWING = (
    "[...document.querySelectorAll('section, pre')].filter(part => part.scrollHeight > part.clientHeight + 1"
    " || part.scrollWidth > part.clientWidth + 1).map(part => part.textContent)"
)


@pytest.fixture
def slides():
    pytest.importorskip("myst_nb", reason="MyST-NB is missing (pip install -e '.[docs]')")
    import site_slides

    return site_slides


def test_each_picture_is_named(slides):
    """Thirty slides, most with a picture; every drawing is used, every kind is known."""
    text = slides.SOURCE.read_text("utf-8")
    pictures = re.findall(r"^!\[([^\]]+)\]\((\w+): ([^)]+)\)$", text, re.MULTILINE)
    assert len(pictures) == text.count("![") >= 20
    assert all(len(alt) > 40 and kind in ("draw", "notebook", "saved") for alt, kind, _ in pictures)
    assert {name for _, kind, name in pictures if kind == "draw"} == set(slides.DRAWINGS)


@pytest.mark.parametrize(
    "text, message",
    [
        ("# One\n\n![picture](draw: nothing)\n", "there is no picture 'draw: nothing'; draw: knows ways, gpipe"),
        ("# One\n\n![picture](notebook: No such)\n", "no notebook has a saved picture with 'No such'; they have some"),
        ("# One\n\n---\n\nno title\n", r"own.md: slide 2 has no title; it begins 'no title'"),
    ],
)
def test_wrong_pictures_say_what_there_is(slides, tmp_path, text, message):
    (tmp_path / "own.md").write_text(text)
    with pytest.raises(ValueError, match=message):
        slides.write_html(tmp_path / "own.html", tmp_path / "own.md")


@pytest.mark.long
def test_the_slides(slides, tmp_path):
    page, paper = tmp_path / "slides.html", tmp_path / "slides.pdf"
    assert slides.write_html(page) == 30
    text = page.read_text("utf-8")
    assert text.count("<section ") == 30 and text.count("<h1>") == 30
    pictures = re.findall(r'<img src="data:image/(\S+?);base64,(\S{1000,})" alt="([^"]+)"', text)
    assert len(pictures) == text.count("<img") >= 20 and "<math" in text
    assert len({content for _, content, _ in pictures}) == len(pictures), "no picture is there twice"
    assert not re.search(r'(?:src|href)="(?!data:)', text), "the file needs nothing else"
    assert "![" not in text and "$$" not in text, "all of it was understood"
    if slides.find_chromium() is None:
        pytest.skip("there is no chromium, which prints the slides")
    from browser import Browser  # not under WebAssembly

    with Browser(slides.find_chromium(), tmp_path / "profile") as browser:
        browser.open(page.as_uri())
        for width, height in ((1024, 768), (390, 844)):
            browser.look_like(width, height)
            assert set(browser.evaluate(HEIGHTS)) == {height}, "a slide fills the screen: nothing of the next is seen"
            assert width == 390 or browser.evaluate(OVERFLOWING) == [], "all of a slide is seen at once, but on a phone"
    slides.write_pdf(page, paper)
    assert len(re.findall(rb"/Type /Page\b(?!s)", paper.read_bytes())) == 30, "a slide is a page"
