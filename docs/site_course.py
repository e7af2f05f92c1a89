"""The course on the website: its parts, its core, and how long a notebook takes, from the files in notebooks.

Nothing here lists notebooks: a notebook belongs to the part that its number is in, and is core if the README has it in
bold.
"""

import json
import re
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
NOTEBOOKS = REPOSITORY / "notebooks"

PARTS = {
    "Foundations": 1,
    "Data parallelism": 4,
    "Allreduce": 6,
    "Training well": 7,
    "Scaling and speed": 9,
    "Find the bug": 11,
    "Beyond data parallelism": 12,
}
"""For each part of the course the number of its first notebook."""


def parts():
    """By each part's name its notebooks, by name, as dicts of their names and `title`."""
    found = {part: {} for part in PARTS}
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        number = int(re.match(r"\d+", path.stem)[0])
        part = [part for part, first in PARTS.items() if first <= number][-1]
        found[part][path.stem] = title(path)
    return {part: notebooks for part, notebooks in found.items() if notebooks}


def title(path):
    """A notebook's number and first heading: "1 Devices: memory and a queue", "2b …"."""
    first = "".join(json.loads(path.read_text("utf-8"))["cells"][0]["source"])
    number = path.stem.partition("_")[0].lstrip("0")
    return f"{number} {first.splitlines()[0].lstrip('# ')}"


def core():
    """The names of the notebooks of the core path: those that the README links in bold."""
    return set(re.findall(r"\*\*\[\w+\]\(notebooks/(\w+)\.ipynb\)\*\*", (REPOSITORY / "README.md").read_text("utf-8")))


def exercises(cells):
    """The names of the exercises whose answers the cells of a notebook check."""
    code = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return re.findall(r"^(?:if )?check\(\"(\w+)\"", code, re.MULTILINE)


def minutes(cells):
    """How long a notebook takes, as its first text says (teaching.md has the rule); None if it does not say so."""
    found = re.search(r"bout\s+(\d+)\s+minutes", "".join(cells[0]["source"]))
    return found and int(found[1])


def under_title(name, cells):
    """The Markdown under a notebook's title: how long it takes, where hints are, and the file."""
    asked = len(exercises(cells))
    answers = {0: "", 1: " with its exercise"}.get(asked, f" with its {asked} exercises")
    facts = ["Core path" if name in core() else "Optional"]
    facts += [f"estimated time: {minutes(cells)} minutes{answers}"] if minutes(cells) else []
    facts += [f"{{download}}`download the notebook <{name}.ipynb>`"]
    stuck = "Stuck? `check` gives hints; [how it works](../docs/commands.md#exercises-d2lmgpu-check)."
    lines = [" · ".join(facts), *([stuck] if asked else [])]
    return "```{container} about-notebook\n\n" + "\\\n".join(lines) + "\n```"
