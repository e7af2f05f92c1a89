"""Slides of the course: `python docs/site_slides.py FOLDER` makes slides.html and, with Chromium, slides.pdf.

The source is slides/course.md: Markdown, with lines --- between slides, and a picture's place is one of

    draw: NAME          a function of `DRAWINGS`: the library's own picture, made now
    notebook: TEXT      the first picture that was saved in any notebook under such a heading, or by such code; if
                        there is none, `TEXT or OTHER` looks for another. Its own alternative text comes with it
    saved: PATH         a file of the repository

All of it goes into one HTML file, which needs nothing else: arrow keys go from slide to slide, and each slide is as
large as the screen. The website has it, too.
"""

import argparse
import base64
import html
import io
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote

from chromium import find_chromium
from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin

from d2lmgpu import plans
from d2lmgpu.collectives import ALGORITHMS, Transfer, draw_bytes, draw_steps, hierarchical, plot_times
from d2lmgpu.collectives.network import full_switch

HERE = Path(__file__).parent
REPOSITORY = HERE.parent
SOURCE = HERE / "slides" / "course.md"
COMPARED = {name: ALGORITHMS[name] for name in "naive tree sharded halving_doubling ring".split()}
POINTS = 72
"""Pixels of an inch on a phone, where pictures are as large as this and scroll: words of 10 points have 10 pixels."""
SVG = "image/svg+xml"
GRADIENTS = 4 * 129_068
"""Bytes of LeNet's gradients."""


def _steps(name, columns=4):
    return lambda: draw_steps(ALGORITHMS[name](4, 8), 4, 8, columns)


def _bytes(name):
    return lambda: draw_bytes(ALGORITHMS[name](4, GRADIENTS // 4), 4)


def _plan(name, k, *micro_batches):
    return lambda: plans.draw(plans.PLANS[name](k, *micro_batches))


def _switch(k):
    return full_switch(k, 12.5e9, latency=10e-6)


def _message():
    """The time of one message. The bound and the legend, which speak of allreduces, are left out."""
    sizes = [1 << i for i in range(6, 28)]
    figure = plot_times({"one": lambda k, n: [[Transfer(0, 1, 0, n, "copy")]]}, _switch(2), sizes)
    (axes,) = figure.axes
    axes.lines[-1].remove()
    axes.get_legend().remove()
    axes.set(title="", xlabel="bytes of the message")
    return figure


DRAWINGS = {
    "ways": lambda: plans.draw_splits({f"by {name}": plans.PLANS[name](2) for name in ("data", "layers", "channels")}),
    "gpipe": _plan("gpipe", 4, 4),
    "1f1b": _plan("1f1b", 4, 4),
    "zero3": _plan("zero3", 3),
    "naive steps": _steps("naive"),
    "sharded steps": _steps("sharded"),
    "ring steps": _steps("ring"),
    "halving steps": _steps("halving_doubling", 3),
    "naive bytes": _bytes("naive"),
    "ring bytes": _bytes("ring"),
    "hierarchical bytes": lambda: draw_bytes(hierarchical(8, GRADIENTS // 4, [[0, 1, 2, 3], [4, 5, 6, 7]]), 8),
    "a message": _message,
    "times by size": lambda: plot_times(COMPARED, _switch(8), sizes=[1 << i for i in range(10, 28)]),
    "times by devices": lambda: plot_times(COMPARED, _switch, sizes=GRADIENTS, devices=[2, 4, 8, 16, 32, 64, 128]),
}
"""The pictures that the library draws: functions that return figures of Matplotlib."""


def write_html(path, source=SOURCE):
    """Write all slides into one HTML file. Returns how many. Raises ValueError for a picture that there is not."""
    slides = [part.strip() for part in re.split(r"^---$", source.read_text("utf-8"), flags=re.MULTILINE)]
    markdown = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin, renderer=_formula)
    sections = []
    for number, slide in enumerate(slides, 1):
        title = re.search(r"^# (.*)$", slide, re.MULTILINE)
        if title is None:
            raise ValueError(f"{source.name}: slide {number} has no title; it begins {slide[:40]!r}")
        named = re.sub(r"(?<=\]\()(\w+): ([^)]*)(?=\))", lambda found: f"<{found[1]}: {found[2]}>", slide)
        body = re.sub(r'<img src="([^"]*)" alt="([^"]*)"', _image, markdown.render(named))
        sections.append(
            f'<section id="slide-{number}" aria-label="{number}: {html.escape(title[1])}">\n{body}</section>'
        )
    page = PAGE.replace("SLIDES", "\n".join(sections)).replace("COUNT", str(len(slides)))
    Path(path).write_text(page, "utf-8")
    return len(slides)


def _formula(text, options):
    return convert(text, display="block" if options["display_mode"] else "inline")


def _image(found):
    """The HTML of a picture for that in Markdown, whose place and alternative text were found."""
    address, alt, width = _picture(unquote(found[1]))
    return f'<img src="{address}" alt="{html.escape(alt) if alt else found[2]}" width="{width}"'


def _picture(place):
    """The data address of a picture, an alternative text of its own or None, and how wide it is on a phone."""
    kind, _, name = place.partition(": ")
    if kind == "draw" and name in DRAWINGS:
        written = io.BytesIO()
        figure = DRAWINGS[name]()
        figure.savefig(written, format="png", dpi=160)
        return _data("image/png", written.getvalue()), None, round(figure.get_figwidth() * POINTS)
    if kind == "saved" and (REPOSITORY / name).is_file():
        kind = SVG if name.endswith(".svg") else "image/png"
        return _data(kind, (REPOSITORY / name).read_bytes()), None, 8 * POINTS
    if kind == "notebook":
        kind, picture, alt = saved_picture(name.split(" or "))
        return _data(kind, picture), alt, 8 * POINTS
    known = {"draw": f"draw: knows {', '.join(DRAWINGS)}", "saved": "saved: names a file of the repository"}
    raise ValueError(
        f"slides: there is no picture {place!r}; {known.get(kind, 'it begins draw:, notebook: or saved:')}"
    )


def saved_picture(texts, notebooks=REPOSITORY / "notebooks"):
    """The first picture saved by a cell with such a text in its code or the heading above: kind, bytes and its "alt".

    ``texts``: the second is looked for if there is none with the first, and so on. Raises ValueError if there is none.
    """
    cells = [cell for path in sorted(notebooks.glob("*.ipynb")) for cell in _with_pictures(path)]
    for text in texts:
        for heading, source, picture, alt in cells:
            if text in heading or text in source:
                return *picture, alt
    raise ValueError(
        f"slides: no notebook has a saved picture with {' or '.join(map(repr, texts))}; they have some under: "
        f"{sorted({heading for heading, *_ in cells})}"
    )


def _with_pictures(path):
    """Heading, source, first picture and alternative text of each cell of a notebook that has a picture."""
    heading = ""
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            heading = (re.findall(r"^#+ (.*)$", source, re.MULTILINE) or [heading])[-1]
        for output in cell.get("outputs", ()):
            if (picture := output.get("data", {}).get(SVG)) is not None:
                yield heading, source, (SVG, "".join(picture).encode()), cell["metadata"].get("alt")
                break


def _data(kind, content):
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def write_pdf(page, path):
    """Print the HTML file ``page``. Raises OSError if there is no Chromium, or it does not."""
    chromium = find_chromium()
    if chromium is None:
        raise OSError(f"there is no Chromium to print {path}; open {page} in a browser, and print it there")
    with tempfile.TemporaryDirectory() as folder:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", f"--user-data-dir={folder}"]
        command = [chromium, *options, f"--print-to-pdf={Path(path).resolve()}", Path(page).resolve().as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode or not Path(path).exists():
        raise OSError(f"{chromium} has not printed {path}: {done.stderr[-500:]}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where slides.html and slides.pdf go")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{write_html(folder / 'slides.html')} slides in {folder / 'slides.html'}")
    try:
        write_pdf(folder / "slides.html", folder / "slides.pdf")
    except OSError as error:
        sys.exit(str(error))
    print(f"printed: {folder / 'slides.pdf'}")


PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Training one network on several devices: COUNT slides</title>
<style>
@page { size: 13.333in 7.5in; margin: 0; }
:root { color-scheme: light; --unit: min(1.72vw, 2.75vh); scroll-snap-type: y mandatory; --paper: #ffffff;
  --ink: #1b1d21; --quiet: #5a606b; --title: #0a3d6b; --code: #f3f4f7; --line: #d5d8de; }
@media screen and (prefers-color-scheme: dark) {
  :root { color-scheme: dark; --paper: #131416; --ink: #e4e6ea; --quiet: #a6adb8; --title: #7cc4f2; --code: #20252d;
    --line: #4a515c; }
  img { background: white; filter: invert(0.93) hue-rotate(180deg); }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: var(--unit)/1.4 system-ui, sans-serif;
  counter-reset: slide; }
section { counter-increment: slide; position: relative; height: 100vh; height: 100dvh; overflow: auto;
  scroll-snap-align: start; padding: 1.4em max(2.6em, 50vw - 28em) 1.9em; background: var(--paper); display: flex;
  flex-direction: column; }
section::after { content: counter(slide) " / COUNT"; position: absolute; right: 1.6em; bottom: 0.7em;
  font-size: max(11px, 0.62em); color: var(--quiet); }
section:not(:has(img)) { font-size: 1.25em; }
h1 { font-size: 1.75em; line-height: 1.2; margin: 0 0 0.45em; color: var(--title); }
p, ul, pre, table { margin: 0 0 0.6em; }
pre { background: var(--code); padding: 0.7em 0.9em; font-size: 0.86em; overflow-x: auto; }
code { font-family: ui-monospace, monospace; font-size: 0.92em; }
table { border-collapse: collapse; }
td, th { text-align: left; padding: 0.2em 1.8em 0.2em 0; border-bottom: 1px solid var(--line); }
@media print, (min-width: 701px) {
  p:has(img) { flex: 1 1 0; min-height: 8em; }
  img { width: 100%; height: 100%; object-fit: contain; }
}
math[display="block"] { font-size: 1.3em; margin: 0.7em 0; }
@media screen and (max-width: 700px) {
  :root { --unit: 17px; }
  section, section:not(:has(img)) { padding: 20px 20px 40px; font-size: 1em; }
  section::after { position: static; text-align: right; margin-top: auto; }
  h1 { font-size: 26px; }
  pre { font-size: 13px; }
  img { width: 100%; height: auto; }
  td, th { padding-right: 0.8em; }
}
@media print {
  :root { --unit: 22px; }
  section { width: 13.333in; height: 7.5in; padding: 1.4em 2.6em 1.9em; break-after: page; overflow: hidden; }
  section:last-of-type { break-after: auto; }
}
</style>
</head>
<body>
SLIDES
<script>
"use strict";
{
  const slides = [...document.querySelectorAll("section")];
  const now = () => slides.findIndex(slide => slide.getBoundingClientRect().bottom > 80);
  addEventListener("keydown", event => {
    const step = {ArrowRight: 1, PageDown: 1, " ": 1, ArrowLeft: -1, PageUp: -1}[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    slides[Math.max(0, Math.min(slides.length - 1, now() + step))].scrollIntoView();
  });
}
</script>
</body>
</html>
"""

if __name__ == "__main__":
    main()
