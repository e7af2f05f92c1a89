"""Figures that notebooks and pages show are those of the benchmarks' results.

Notebooks carry some of an H100, since a student's copy has no benchmarks.
"""

import importlib
import json
import re
import statistics
from pathlib import Path

import pytest
from test_pages import numbers, read, rows, section

ROOT = Path(__file__).resolve().parents[2]


def result(name):
    return json.loads(read(ROOT / "benchmarks" / "results" / f"{name}.json"))


def as_shown(spread, names, shown):
    """Whether numbers that are shown are those of a spread, with as many decimals as they have."""
    values = zip((spread[name] for name in names), shown, strict=True)
    return all(text == f"{value:.{len(text.partition('.')[2])}f}" for value, text in values)


def text_of(notebook):
    cells = json.loads(read(ROOT / "notebooks" / f"{notebook}.ipynb"))["cells"]
    return " ".join(" ".join("".join(cell["source"]) for cell in cells).split())


def page(name):
    """The text of a page, a line for each paragraph and each row of a table."""
    return re.sub(r"(?<!\n)\n(?=[^\s|<-])", " ", read(ROOT / "docs" / f"{name}.md"))


@pytest.mark.parametrize(
    "script, name, mark, results",
    [
        ("invent.table", "inventing", "invented", "invent"),
        ("tab.table", "in_a_tab", "measured", "tab"),
        ("compare_splits.tables", "splits", "splits", "cpu_splits"),
    ],
)
def test_tables_that_scripts_fill(script, name, mark, results):
    """What stands between a script's marks is what it makes of its results."""
    shown = read(ROOT / "docs" / f"{name}.md").split(f"<!-- {mark} -->\n")[1].split(f"\n<!-- end of {mark} -->")[0]
    module, _, function = script.partition(".")
    assert shown == getattr(importlib.import_module(module), function)(result(results))


def test_accuracies():
    """The rows of the page on performance, but for the runs that learn nothing."""
    table = rows(section("performance.md", "### Accuracy"))
    recipe = result("cpu_recipe")["runs"]
    for (_, seed, *shown), run in zip(table, recipe, strict=False):
        last = run["test_accuracy"][-3:]
        found = last[-1], sum(last) / 3, max(run["test_accuracy"])
        assert seed == str(run["seed"]) and shown == [f"{accuracy:.3f}" for accuracy in found]
    runs = {}
    for run in result("cpu_accuracy")["runs"]:
        runs.setdefault((run["devices"], run["precision"], run["warmup"]), []).append(run)
    small, mixed, learned_nothing, large, diverged = table[len(recipe) :]
    scaled = runs[8, "float32", 2.0]
    for row, found in ((small, runs[2, "float32", 0]), (mixed, runs[2, "mixed", 0]), (large, scaled[1:])):
        *_, seeds, means, best = row
        assert seeds == ", ".join(str(run["seed"]) for run in found)
        assert means == ", ".join(f"{sum(run['test_accuracy'][-3:]) / 3:.3f}" for run in found)
        peaks = [f"{max(run['test_accuracy']):.3f}" for run in found]
        assert best in (", ".join(peaks), f"{min(peaks)} to {max(peaks)}")
    assert "learns nothing" in learned_nothing and scaled[0]["diverged"].startswith("nothing was learned")
    assert "diverges in the first epoch" in diverged
    assert runs[8, "float32", 0][0]["diverged"].startswith("diverged in epoch 1")


def test_the_figures_beside_pytorch():
    ratios = {each["than"]: each["ratio"] for each in result("cpu_pytorch")["times_as_fast"]}
    others = [
        "PyTorch eager, 1 thread",
        "torch.compile, 1 thread",
        "PyTorch DDP, 2 processes",
        "torch.compile, 2 threads",
    ]
    table = rows(section("performance.md", "### Speed beside PyTorch"))
    for row, than in zip(table, [*others, "ours, 1 device", "ours, 2 devices"], strict=True):
        assert as_shown(ratios[than], ("median", "lower quartile", "upper quartile"), numbers(" ".join(row[1:])))


def test_the_figures_of_a_gpu():
    """The page's two tables, its sentences, and those of notebooks."""
    table = rows(section("gpu.md", "## Measured speed"))
    files = [f"gpu_pytorch_{name}" for name in ("float32", "mixed", "2048")]
    for row, file in zip(table, files, strict=False):
        ratios = {e["than"]: e["ratio"] for e in result(file)["times_as_fast"] if e["is"] == "ours, 1 device"}
        for cell, than in zip(row[1:], ("PyTorch eager", "PyTorch CUDA graph", "torch.compile"), strict=True):
            assert as_shown(ratios[than], ("median", "min", "max"), numbers(cell)) and f"{file}.json" in row[0]
    found = {(step["batch"], step["precision"]): step for step in result("gpu_measured")["steps"]}
    for row, batch in zip(table[len(files) :], (256, 2048), strict=True):
        for shown, precision in zip(row[1:], ("float32", "mixed"), strict=True):
            assert as_shown(found[batch, precision]["step"]["8"], ["median"], [shown])
    text, runs = page("gpu"), {name: result(f"gpu_train_{name}") for name in ("float32", "mixed")}
    assert f"LeNet's step in float32 has {len(found[256, 'float32']['kernels'])} kernels" in text
    ends = [f"{run['test_accuracy'][-1]:.3f}" for run in runs.values()]
    assert f"Its test accuracy was {ends[0]} in float32 and {ends[1]} in mixed" in text
    seconds = sorted(runs["float32"]["seconds_per_epoch"])[5]
    assert f"takes {seconds:.3f} seconds in float32 for an epoch" in text
    small, large = (result(file)["seconds_per_epoch"] for file in (files[0], files[2]))
    graph, kernels = (small[name]["median"] for name in ("ours, 1 device", "ours, without graphs"))
    five, nine = text_of("05_training_on_k_devices"), text_of("09_scaling_experiments")
    assert f"an epoch takes {kernels:.3f} s" in five and f"and {graph:.3f} s if the whole step is" in five
    each = {n: found["ours, 1 device"]["median"] / 60_000 for n, found in ((256, small), (2048, large))}
    assert f"takes {256e6 * each[256]:.0f} µs and one of 2,048 images {2048e6 * each[2048]:.0f} µs" in nine
    assert f"costs {1e9 * each[256]:.0f} ns in the small minibatch and {1e9 * each[2048]:.0f} ns" in nine
    (recorded,) = re.findall(r'recorded = [^"]*"""(.*?)"""', text_of("10b_numbers_of_16_bits"))
    for precision, record in json.loads(recorded).items():
        measured = result(f"gpu_pytorch_{precision}")
        assert (record["machine"], record["commit"]) == (measured["machine"], measured["commit"])
        assert record["seconds_per_epoch"].items() <= measured["seconds_per_epoch"].items()


def test_two_processes():
    ratios = {e["than"]: e["ratio"] for e in result("cpu_ddp")["times_as_fast"] if e["is"] == "ours, 2 processes"}
    shown = numbers(page("cluster").split("two processes are ")[1].split(":")[0].replace("two devices", ""))
    for than, three in (("ours, 2 devices", shown[:3]), ("PyTorch DDP, 2 processes", shown[3:])):
        assert as_shown(ratios[than], ("median", "lower quartile", "upper quartile"), three)


def test_exact_sums():
    text = page("same_bits")
    for shown, name in (("LeNet, SGD", "SGD"), ("LeNet, Adam", "Adam"), ("a network with dropout", "dropout")):
        found = result("cpu_same_bits")["columns"][name]
        different, loss = found["different results"], found["loss"]
        exact, least, most = (f"{value:.5f}" for value in (loss["exact"][0], *loss["float"]))
        cells = [shown, found["ways"], different["exact"], 72, different["float"], exact, f"{least} to {most}"]
        assert f"| {' | '.join(map(str, cells))} |" in text
        assert loss["exact"][0] == loss["exact"][1] and len(found["checksum"]) == 1


def test_a_step_in_several_notebooks():
    """Seconds for 256 images on one device: within 25% of each other, as the page for teachers says."""

    def data(name):
        return json.loads(read(ROOT / "notebooks" / "data" / f"{name}.json"))

    nine = data("09_scaling_experiments")
    scaling = [data("05_training_on_k_devices")["scaling"]["256"], nine["strong"], nine["weak"]]
    found = [row["seconds_per_step"] for each in scaling for row in each["rows"] if row["devices"] == 1]
    found.append(statistics.median(data("03_splitting_the_problem")["step_seconds"]["one device"]))
    found.append(min(map(statistics.median, data("10_making_it_fast")["micro_batches"].values())) / 1000)
    assert len(found) == 5 and max(found) < 1.25 * min(found), found
    assert len({each["machine"] for each in scaling}) == 1
