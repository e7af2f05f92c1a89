"""The website's first page: the ring, a dialogue with `check`, a measurement, the three ways; then the README.

All that it shows is made when the site is built: the dialogue by the command, the measurement by the notebook that
saved it.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import site_course
import site_tab

REPOSITORY = Path(__file__).parent.parent
SCALING = REPOSITORY / "docs" / "notebooks" / "images" / "front_scaling.svg"
"""Where the figure is for Sphinx, beside the notebooks' copies, of which git knows nothing either."""

RING = REPOSITORY / "notebooks" / "images" / "ring.svg"
LAST = "Results"
"""The README's section that ends the page."""

WRONG = """def allreduce(data):
    for array in data[1:]:
        data[0][:] += d2l.put(array, data[0].device)
    for array in data[1:]:
        array[:] += d2l.put(data[0], array.device)
"""
RIGHT = WRONG.replace("array[:] +=", "array[:] =")


def page(readme):
    """The Markdown of the page, with links as from the repository's main folder. ``readme``: the README's text."""
    beginning, *sections = re.split(r"^## ", readme, flags=re.MULTILINE)
    sections.sort(key=lambda section: section.startswith(LAST))
    about = re.sub(rf"!\[[^\]]*\]\([^)]*{RING.name}\)\n\n", "", beginning.partition("\n")[2])  # it is above
    title = "---\nhide-toc: true\n---\n# How do several devices train one network?\n"
    parts = [title + _html(_first_screen()), dialogue(), scaling(), WAYS, _playground(), f"## What it is\n{about}"]
    return "\n".join([*parts, *(f"## {section}" for section in sections)])


def _html(text):
    return f"\n```{{raw}} html\n{text}\n```\n"


def _first_screen():
    first = next(iter(next(iter(site_course.parts().values()))))
    second = ("#try-it-in-this-tab", "Try it in this tab") if site_tab.POSSIBLE else ("player.html", "Watch it play")
    buttons = [(f"notebooks/{first}.html", "Start with notebook 1"), second]
    links = "\n".join(f'<a class="front-button" href="{href}">{text}</a>' for href, text in buttons)
    return FIRST_SCREEN.replace("LINKS", links).replace("RING", RING.read_text("utf-8"))


def _playground():
    return f"## Try it in this tab\n{_html(site_tab.playground())}" if site_tab.POSSIBLE else ""


def dialogue():
    """A wrong answer, what the command says of it, and the same for the answer mended by the hint."""
    blocks = [
        _block("python", WRONG),
        _block("console", _check(WRONG)),
        "One character is removed, as the hint says:\n",
    ]
    blocks += [_block("python", RIGHT), _block("console", _check(RIGHT))]
    return DIALOGUE + "\n".join(blocks) + "\n````\n"


def _block(language, text):
    return f"```{language}\n{text}```\n"


def _check(answer):
    """A command and what it prints for an answer to the exercise."""
    command = ["d2lmgpu", "check", "allreduce", "answer.py"]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "answer.py").write_text(f"import d2lmgpu as d2l\n\n\n{answer}", "utf-8")
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONUTF8": "1"}
        run = [sys.executable, "-m", *command]
        done = subprocess.run(run, cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=120)
    if done.returncode not in (0, 1):  # right, wrong; whatever else it is
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return f"$ {' '.join(command)}\n{done.stdout}"


def scaling():
    """The figure of measured scaling that a notebook has saved."""
    import site_slides  # with what `pip install -e '.[docs]'` brings

    _, content, alt = site_slides.saved_picture(["plot_scaling", "Strong scaling"])
    if not SCALING.exists() or SCALING.read_bytes() != content:
        SCALING.parent.mkdir(parents=True, exist_ok=True)
        SCALING.write_bytes(content)
    alt = re.sub(r"([\[\]\\])", r"\\\1", alt or "Measured strong scaling")
    return f"{MEASURED}\n![{alt}](notebooks/images/{SCALING.name})\n"


FIRST_SCREEN = """<div class="front" id="d2lmgpu">
<div>
<p class="front-says">A small framework that really does it, with every layer, gradient and message in Python that you
can read, and a course in which you write it yourself. No GPU needed.</p>
<p class="front-buttons">
LINKS
</p>
</div>
<figure>
RING
<figcaption>A ring allreduce, drawn from the schedule that trains. <a href="player.html">More in the player</a>.
<label><input type="checkbox" /> pause</label></figcaption>
</figure>
</div>"""

DIALOGUE = """## Wrong answers get a hint

You write the heart of it yourself, here the allreduce that gives every device the sum of all gradients. `check` tries
it on cases that reveal the usual mistakes:

````{container} dialogue

"""

MEASURED = """## You measure, and see how it scales

Every figure of the course comes from a run, and in your copy from a run on your machine. Virtual devices share its
cores, so that more devices than cores gain nothing:
"""

WAYS = """## Three ways to split the work

Over layers, over channels, or over data: the course counts what each must send, and
[another page](docs/splits.md) helps to choose. The picture is drawn from the plans that train.

![LeNet's layers on one device; split over layers; split over channels, with exchanges after every block; and split over
data, with gradients exchanged at the end](notebooks/images/splits.svg)
"""
