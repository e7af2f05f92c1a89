"""The README is short, and the pages in docs/ are whole: links, options, settings, figures."""

import importlib
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
RESULTS = ROOT / "benchmarks" / "results"
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
    """In the tables of its section; a sweep has the settings of train, too."""
    for name, parser in parsers.items():
        (heading,) = re.findall(rf"^## .*`d2lmgpu {name}`$", read(ROOT / "docs" / "commands.md"), re.MULTILINE)
        text = section("commands.md", heading)
        elsewhere = options_of(parsers["train"]) if name == "sweep" else set()
        assert all(f"`{option}`" in text or f"`{option} " in text for option in options_of(parser) - elsewhere), name


def test_every_argument_of_train_is_described():
    described = [code(row[0]) for row in rows(read(ROOT / "docs" / "settings.md"))]
    assert sorted(described) == sorted([name] for name in inspect.signature(d2l.train).parameters if name != "unknown")


def test_no_page_shows_an_option_that_there_is_not(parsers):
    """Not even one that argparse takes for the beginning of another."""
    known = {name for parser in parsers.values() for name in options_of(parser)} | {"--help", "--version"}
    known |= {"--all", "--rest", "--count"}  # pytest's, and that of tests/interrupts.py
    known |= {"--query-gpu", "--format"}  # of nvidia-smi
    known |= {"--hosts", "--bandwidth"}  # benchmarks/hosts.py's
    known |= set(
        "--mpi --ntasks --time --signal --hostfile --mca --prtemca --shm-size --ipc --with-ft".split()
    )  # launchers'
    known |= set("--cpus-per-task --gpus-per-task --scheduler-file --nthreads --no-dashboard".split())  # and Dask's
    for page in PAGES:
        shown = re.findall(r"(?<![\w-])--[a-z][\w-]*", without_comments(read(page)))
        assert set(shown) <= known, (page.name, set(shown) - known)


WORDS_A_MINUTE = 150
SECONDS_A_LINE = 10
MINUTES_AN_EXERCISE = 17
MINUTES_A_LOOK = 0.5  # at a figure, and for a prediction


def minutes(path):
    """How long a notebook takes, by the rule of docs/teaching.md, in whole steps of five.

    Code that is folded (the tag hide-input), such as of a plot, is not read.
    """
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = {kind: ["".join(c["source"]) for c in cells if c["cell_type"] == kind] for kind in ("markdown", "code")}
    folded = {"".join(c["source"]) for c in cells if "hide-input" in c["metadata"].get("tags", ())}
    words = sum(len(text.split()) for text in texts["markdown"])
    lines = sum(len(text.splitlines()) for text in texts["code"] if text not in folded)
    looks = sum(len(re.findall(r"^my_prediction\w* =", text, re.MULTILINE)) for text in texts["code"])
    looks += sum("image/svg+xml" in output.get("data", ()) for c in cells for output in c.get("outputs", ()))
    reading = words / WORDS_A_MINUTE + lines * SECONDS_A_LINE / 60
    return 5 * round((reading + len(exercises(cells)) * MINUTES_AN_EXERCISE + looks * MINUTES_A_LOOK) / 5)


def test_the_times_of_the_notebooks():
    """By what is in them, as the page for teachers says; each notebook says the same."""
    table = rows(section("teaching.md", "## How long it takes"))
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    told = [(path, row) for path, row in zip(paths, table, strict=False)]
    assert len(told) == len(paths)
    for path, (name, time, path_of) in told:
        assert path.name in name and path_of in ("core", "optional")
        assert int(time) == minutes(path), path.name
        first = "".join(json.loads(path.read_text(encoding="utf-8"))["cells"][0]["source"])
        assert re.search(rf"[Aa]bout\s+{time}\s+minutes", first), path.name
    core = sum(int(time) for _, (_, time, path_of) in told if path_of == "core")
    everything = sum(int(time) for _, (_, time, _) in told)
    page = " ".join(read(ROOT / "docs" / "teaching.md").split())
    hours = [f"{total // 60} hours and {total % 60} minutes" for total in (core, everything)]
    assert f"The core path, {hours[0]}," in page and f"all {len(paths)} take {hours[1]}." in page


def numbers(text):
    return re.findall(r"\d+\.\d+|\d+", text)


def as_shown(value, like):
    """A number with as many decimals as the text ``like`` has."""
    return f"{value:.{len(like.partition('.')[2])}f}"


def test_the_readmes_results_are_those_of_the_page_on_performance():
    measured = set(numbers(section("performance.md", "## Measured") + section("gpu.md", "## Measured speed")))
    results = [
        cell for row in rows(read(ROOT / "README.md").split("## Results")[1].split("\n## ")[0]) for cell in row[1:]
    ]
    assert results and all(numbers(cell) and set(numbers(cell)) <= measured for cell in results)


def test_the_textbooks_recipe():
    runs = json.loads(read(RESULTS / "cpu_recipe.json"))["runs"]
    shown = [row[1:] for row in rows(section("performance.md", "### Accuracy"))[: len(runs)]]
    assert shown == [
        [str(run["seed"]), f"{last[-1]:.3f}", f"{sum(last) / 3:.3f}", f"{max(run['test_accuracy']):.3f}"]
        for run in runs
        for last in [run["test_accuracy"][-3:]]
    ]


@pytest.mark.parametrize("results, column", [("cpu_pytorch", 1), ("cpu_pytorch_intel", 3)])
def test_the_figures_beside_pytorch(results, column):
    ratios = json.loads(read(RESULTS / f"{results}.json"))["times_as_fast"]
    pairs = {
        "PyTorch eager, one thread": "PyTorch eager, 1 thread",
        "`torch.compile`, one thread": "torch.compile, 1 thread",
        "DDP, two processes": "PyTorch DDP, 2 processes",
        "`torch.compile`, two threads": "torch.compile, 2 threads",
        "two devices against one": "ours, 1 device",
        "eight devices against two": "ours, 2 devices",
        "one device against one of the version before": "ours, 1 device, before",
        "two devices against two of the version before": "ours, 2 devices, before",
    }
    for text, than in pairs.items():
        (row,) = (row for row in rows(section("performance.md", "### Speed beside PyTorch")) if text in row[0])
        (ratio,) = (entry["ratio"] for entry in ratios if entry["than"] == than)
        shown = numbers(row[column]) + numbers(row[column + 1])
        names = "median", "lower quartile", "upper quartile"
        assert shown == [as_shown(ratio[name], text) for name, text in zip(names, shown, strict=True)]


@pytest.mark.parametrize(
    "script, name, results",
    [("compare_splits", "splits", "cpu_splits")],
)
def test_the_tables_of_splits(script, name, results, monkeypatch):
    """What stands between a script's marks is what it makes of its results, or that there are none yet."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    text = read(ROOT / "docs" / "splits.md").split(f"<!-- {name} -->\n")[1].split(f"\n<!-- end of {name} -->")[0]
    if (RESULTS / f"{results}.json").exists():
        assert text == importlib.import_module(script).tables(json.loads(read(RESULTS / f"{results}.json")))
    else:
        assert text == f"Not measured yet: `python benchmarks/{script}.py` does it."


PRECISIONS = ("float32", "mixed")


def test_the_steps_measured_on_a_gpu():
    table = rows(section("gpu.md", "## Measured speed"))[3:]  # after the comparison with PyTorch
    measured = json.loads(read(RESULTS / "gpu_measured.json"))["steps"]
    found = {(step["batch"], step["precision"]): step for step in measured}
    for row, batch in zip(table, (256, 2048), strict=True):
        for shown, precision in zip(row[1:], PRECISIONS, strict=True):
            assert shown == as_shown(found[batch, precision]["step"]["8"]["median"], shown)
    kernels = found[256, "float32"]["kernels"]
    assert f"LeNet's step in float32 has {len(kernels)} kernels" in read(ROOT / "docs" / "gpu.md")


def test_the_figures_beside_pytorch_on_a_gpu():
    table = rows(section("gpu.md", "## Measured speed"))[:3]
    files = ["gpu_pytorch_float32", "gpu_pytorch_mixed", "gpu_pytorch_2048"]
    assert len(table) == len(files)
    for row, file in zip(table, files, strict=True):
        assert f"{file}.json" in row[0]
        ratios = {
            entry["than"]: entry["ratio"]
            for entry in json.loads(read(RESULTS / f"{file}.json"))["times_as_fast"]
            if entry["is"] == "ours, 1 device"
        }
        for cell, than in zip(row[1:], ("PyTorch eager", "PyTorch CUDA graph", "torch.compile"), strict=True):
            names = ("median", "min", "max")
            assert numbers(cell) == [
                as_shown(ratios[than][name], text) for name, text in zip(names, numbers(cell), strict=True)
            ]
