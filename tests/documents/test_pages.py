"""The README is short, and the pages in docs/ are whole: links, options, settings, figures."""

import inspect
import json
import re
from pathlib import Path

import pytest
import tables
from site_course import exercises

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.cli.options import make_parser

ROOT = Path(__file__).resolve().parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", *DOCS]


def read(page):
    return page.read_text(encoding="utf-8")


def without_code(text):
    """The text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def without_comments(text):
    return re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)


def links(page):
    """Where the links and pictures of a page lead, the web apart: pairs of a file and an anchor, which may be ""."""
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", without_code(read(page)))):
        if not target.startswith("https://"):
            path, _, anchor = target.partition("#")
            yield (page.parent / path).resolve() if path else page, anchor


def anchors(page):
    """Those of the headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", without_code(read(page)), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def section(page, heading):
    """The text under a heading, up to the next of its level."""
    level = heading.split()[0]
    _, text = f"\n{read(ROOT / 'docs' / page)}".split(f"\n{heading}\n")
    return re.split(rf"^#{{1,{len(level)}}} ", text, maxsplit=1, flags=re.MULTILINE)[0]


def rows(text):
    """The tables of a text: each row a list of its cells, heads and lines under them left out."""
    lines = re.findall(r"^\|.*\|$", text, re.MULTILINE)
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    rules = [i for i, row in enumerate(cells) if set("".join(row)) <= set("-:")]
    return [row for i, row in enumerate(cells) if i not in rules and i + 1 not in rules]


def code(cell):
    """What stands in a cell as code."""
    return re.findall(r"`([^`]+)`", cell)


def test_the_readme_is_short():
    assert len(read(ROOT / "README.md").splitlines()) <= 127


def test_links_lead_somewhere():
    for page in [*PAGES, ROOT / "CHANGELOG.md"]:
        for path, anchor in links(page):
            assert path.exists(), (page.name, path)
            assert not anchor or anchor in anchors(path), (page.name, path.name, anchor)


def test_every_page_is_linked():
    for start in ("README.md", "docs/index.md"):
        assert {page for page in DOCS if page.stem != "index"} <= {path for path, _ in links(ROOT / start)}, start


def test_tables_made_from_the_code_are_up_to_date():
    assert [page.name for page in DOCS if read(page) != tables.filled(read(page))] == [], "run python docs/tables.py"


@pytest.fixture
def parsers():
    """The parser of each command, by name."""
    return make_parser(cli.COMMANDS)[1].choices


def options_of(parser):
    """The names of a command's options, as a person types them, and of its other arguments."""
    actions = [action for action in parser._actions if action.dest != "help"]
    return {name for action in actions for name in action.option_strings or [action.metavar]}


def test_every_command_and_option_is_described(parsers):
    """In its section or among those that several commands have; those of settings beside these."""
    together = section("commands.md", "## Options that several commands have") + read(ROOT / "docs" / "settings.md")
    for name, parser in parsers.items():
        (heading,) = re.findall(rf"^## .*`d2lmgpu {name}`$", read(ROOT / "docs" / "commands.md"), re.MULTILINE)
        text = section("commands.md", heading) + together
        assert all(f"`{option}`" in text or f"`{option} " in text for option in options_of(parser)), name


def test_every_argument_of_train_is_described():
    described = [code(row[0]) for row in rows(read(ROOT / "docs" / "settings.md"))]
    assert sorted(described) == sorted([name] for name in inspect.signature(d2l.train).parameters if name != "unknown")


def test_no_page_shows_an_option_that_there_is_not(parsers):
    """Not even one that argparse takes for the beginning of another."""
    known = {name for parser in parsers.values() for name in options_of(parser)} | {"--help", "--version"}
    known |= {"--all", "--rest", "--count"}  # pytest's, and that of tests/interrupts.py
    known |= {"--hosts", "--bandwidth"}  # benchmarks/hosts.py's
    known |= {*"--mpi --ntasks --time --signal --hostfile --mca --prtemca --shm-size --ipc".split()}  # launchers'
    known |= {*"--cpus-per-task --gpus-per-task --scheduler-file --nthreads --no-dashboard".split()}  # and Dask's
    for page in PAGES:
        shown = re.findall(r"(?<![\w-])--[a-z][\w-]*", without_comments(read(page)))
        assert set(shown) <= known, (page.name, set(shown) - known)


def minutes(path):
    """How long a notebook takes, by the rule of docs/teaching.md, in whole steps of five.

    Code that is folded (the tag hide-input), such as of a plot, is not read.
    """
    cells = json.loads(read(path))["cells"]
    told = [(c["cell_type"], "".join(c["source"]), "hide-input" in c["metadata"].get("tags", ())) for c in cells]
    words = sum(len(text.split()) for kind, text, _ in told if kind == "markdown")
    lines = sum(len(text.splitlines()) for kind, text, folded in told if kind == "code" and not folded)
    looks = sum(len(re.findall(r"^my_prediction\w* =", text, re.M)) for kind, text, _ in told if kind == "code")
    looks += sum("image/svg+xml" in output.get("data", ()) for c in cells for output in c.get("outputs", ()))
    return 5 * round((words / 150 + lines / 6 + len(exercises(cells)) * 17 + looks / 2) / 5)


def test_the_times_of_the_notebooks():
    """By what is in them, as the page for teachers says; each notebook says the same."""
    table = rows(section("teaching.md", "## How long it takes"))
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    for path, (name, time, path_of) in zip(paths, table, strict=True):
        assert path.name in name and path_of in ("core", "optional")
        assert int(time) == minutes(path), path.name
        first = "".join(json.loads(read(path))["cells"][0]["source"])
        assert re.search(rf"[Aa]bout\s+{time}\s+minutes", first), path.name
    core = sum(int(time) for _, time, path_of in table if path_of == "core")
    everything = sum(int(time) for _, time, _ in table)
    page = " ".join(read(ROOT / "docs" / "teaching.md").split())
    hours = [f"{total // 60} hours and {total % 60} minutes" for total in (core, everything)]
    assert f"The core path, {hours[0]}," in page and f"all {len(paths)} take {hours[1]}." in page


def numbers(text):
    return re.findall(r"\d+\.\d+|\d+", text)


def test_the_readmes_results_are_those_of_the_page_on_performance():
    measured = set(numbers(section("performance.md", "## Measured") + section("gpu.md", "## Measured speed")))
    results = [
        cell for row in rows(read(ROOT / "README.md").split("## Results")[1].split("\n## ")[0]) for cell in row[1:]
    ]
    assert results and all(numbers(cell) and set(numbers(cell)) <= measured for cell in results)
