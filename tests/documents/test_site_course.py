"""The website's course and front page: parts, core, minutes, the ring, the dialogue, the logo; and how to cite."""

import html
import json
import re
from pathlib import Path

import pytest
import site_course
import site_front
import site_logo
import site_sources

import d2lmgpu as d2l
from d2lmgpu.exercises.checking import EXERCISES
from d2lmgpu.exercises.student_file import CORE

REPOSITORY = Path(__file__).parents[2]
NOTEBOOKS = sorted(path.stem for path in (REPOSITORY / "notebooks").glob("*.ipynb"))


def cells_of(name):
    return json.loads((REPOSITORY / "notebooks" / f"{name}.ipynb").read_text("utf-8"))["cells"]


def test_each_notebook_is_in_one_part_and_each_exercise_in_a_notebook():
    """The README's bold notebooks have the exercises of the core path, and no others."""
    assert [name for notebooks in site_course.parts().values() for name in notebooks] == NOTEBOOKS
    assert list(site_course.parts()) == list(site_course.PARTS), "no part is empty"
    found = {name: site_course.exercises(cells_of(name)) for name in NOTEBOOKS}
    core = site_course.core()
    assert {exercise for name in core for exercise in found[name]} == set(CORE)
    assert {exercise for exercises in found.values() for exercise in exercises} == set(EXERCISES)
    assert site_sources.contents().count(f"{site_sources.CORE} <notebooks/") == len(core)


@pytest.mark.long
def test_the_front_page_has_all_of_the_readme_one_ring_and_a_dialogue_of_commands():
    """In the dialogue a wrong answer fails with a hint, which the other one follows."""
    pytest.importorskip("latex2mathml", reason="the website's packages are missing (pip install -e '.[docs]')")
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    page = site_front.page(readme)
    picture = re.search(r"!\[[^\]]*\]\([^)]*ring.svg\)\n\n", readme)[0]
    assert all(line in page for line in readme.replace(picture, "").splitlines()[1:])
    assert page.count("The ring allreduce of four devices") == page.count('class="ring"') == 1
    headings = re.findall(r"^##? (.*)$", re.sub(r"^```.*?^```$", "", page, flags=re.M | re.S), re.MULTILINE)
    assert len(set(headings)) == len(headings) and headings[-1] == site_front.LAST
    wrong, right = html.unescape(page).split("One character is removed")
    assert "✗ allreduce: " in wrong and "Hint: " in wrong and "not with +=" in wrong
    assert "✓ allreduce: " in right and "Hint" not in right


def test_the_logo_is_the_scripts():
    assert site_logo.FILE.read_text("utf-8") == site_logo.logo(), "run python docs/site_logo.py"


def test_the_citation_is_of_this_version():
    citation = dict(re.findall(r"^([\w-]+): (.*)$", (REPOSITORY / "CITATION.cff").read_text("utf-8"), re.MULTILINE))
    changes = (REPOSITORY / "CHANGELOG.md").read_text("utf-8")
    assert citation["version"] == d2l.__version__ == re.search(r"^## ([\d.]+),", changes, re.MULTILINE)[1]
    assert f"url = {citation['repository-code']}\n" in (REPOSITORY / "setup.cfg").read_text("utf-8")
    assert citation["license"] == "MIT" and citation["cff-version"] == "1.2.0"
