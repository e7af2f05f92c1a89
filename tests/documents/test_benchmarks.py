"""What stands in benchmarks/: each script answers a question that a page quotes, and results are small tables.

Most scripts need PyTorch, a GPU or an hour: here only that what they take of the package is there.
"""

import ast
import importlib
import json
import re
from pathlib import Path

import pytest
import quoted
from test_pages import rows

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "benchmarks"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
README = (HERE / "README.md").read_text("utf-8")
HELPERS = {"contenders.py", "same_problem.py", "quoted.py"}
RESULTS = sorted((HERE / "results").iterdir())
TABLES = [path for path in RESULTS if path.suffix != ".png"]


SCRIPTS = {row[0].strip("`"): row[1:] for row in rows(README.split("## Results")[0])}


def test_every_script_is_in_the_table():
    there = {path.name for path in HERE.iterdir() if path.suffix in (".py", ".sh")}
    assert there == {*SCRIPTS, *HELPERS} and all(f"`{name}`" in README for name in HELPERS)
    assert len(SCRIPTS) <= 18 and len(README.splitlines()) <= 60


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_says_what_it_answers_and_a_page_quotes_it(name):
    question, quoted_by = SCRIPTS[name]
    text = (HERE / name).read_text("utf-8")
    first = ast.get_docstring(ast.parse(text)) if name.endswith(".py") else text.split("\n# ", 1)[1]
    assert first.splitlines()[0] == f"Answers: {question}"
    pages = re.findall(r"\]\((.*?)\)", quoted_by)
    assert pages
    for page in pages:
        assert name in (HERE / page).read_text("utf-8"), page


def names_used(source):
    """What a script takes from the package, as (module, name): what it imports, and what it takes of that."""
    tree, known = ast.parse(source), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            known |= {alias.asname: alias.name for alias in node.names if alias.asname and "d2lmgpu" in alias.name}
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "d2lmgpu":
            yield from ((node.module, alias.name) for alias in node.names)
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
            yield known[node.value.id], node.attr


def is_there(module, name):
    """Whether a module, or what a module has under the last part of its name, has this name."""
    try:
        owner = importlib.import_module(module)
    except ImportError:
        outer, _, last = module.rpartition(".")
        owner = getattr(importlib.import_module(outer), last)
    return hasattr(owner, name) or importlib.util.find_spec(f"{module}.{name}") is not None


@pytest.mark.parametrize("script", sorted(HERE.rglob("*.py")), ids=lambda path: path.stem)
def test_what_a_script_takes_from_the_package_is_there(script):
    for module, name in names_used(script.read_text("utf-8")):
        assert is_there(module, name), f"{module}.{name}"


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.name)
def test_results_are_small_tables(path):
    """As scripts write them; and a test, a script or a page takes them from there."""
    text = path.read_text("utf-8")
    assert len(text.splitlines()) <= 200 and len(text.encode()) <= 40_000
    if path.suffix == ".json":
        assert text == quoted.as_table(json.loads(text))
    assert f"`{path.name}`" in README.split("## Results")[1]
    assert any(path.name in page.read_text("utf-8") for page in PAGES)


@pytest.mark.parametrize("path", [path for path in RESULTS if path not in TABLES], ids=lambda path: path.name)
def test_pictures_are_shown_and_small(path):
    shown = "".join(re.findall(r"!\[[^\]]*\]\([^)]*\)", "".join(page.read_text("utf-8") for page in PAGES)))
    assert f"results/{path.name})" in shown and path.stat().st_size <= 100_000
