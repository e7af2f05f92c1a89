"""Figures that notebooks and pages show are those of the benchmarks' results.

Notebooks carry some of an H100, since a student's copy has no benchmarks.
"""

import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def cells_of(name):
    return json.loads((ROOT / "notebooks" / name).read_text(encoding="utf-8"))["cells"]


def result(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def benchmark(name):
    return result(f"gpu_pytorch_{name}")


def test_they_are_the_benchmarks():
    (source,) = (text for text in map("".join, (cell["source"] for cell in cells_of(WITH_RECORDS))) if RECORDED in text)
    assert "benchmarks/results/gpu_pytorch_*.json" in source
    for precision, record in json.loads(re.search(r'"""(.*)"""', source, re.DOTALL)[1]).items():
        measured = benchmark(precision)
        assert (record["machine"], record["commit"]) == (measured["machine"], measured["commit"])
        assert record["seconds_per_epoch"]
        for contender, seconds in record["seconds_per_epoch"].items():
            assert seconds == measured["seconds_per_epoch"][contender]


WITH_RECORDS, RECORDED = "10b_numbers_of_16_bits.ipynb", "\nrecorded = "


def text_of(name):
    return " ".join(" ".join("".join(cell["source"]) for cell in cells_of(name)).split())


def test_those_in_sentences_are():
    """Of an epoch in notebook 5, of a step and of an image in notebook 9."""
    small, large = (benchmark(name)["seconds_per_epoch"] for name in ("float32", "2048"))
    graph, kernels = (small[name]["median"] for name in ("ours, 1 device", "ours, without graphs"))
    five, nine = text_of("05_training_on_k_devices.ipynb"), text_of("09_scaling_experiments.ipynb")
    assert f"an epoch takes {kernels:.3f} s" in five and f"and {graph:.3f} s if the whole step is" in five
    each = {n: found["ours, 1 device"]["median"] / 60_000 for n, found in ((256, small), (2048, large))}
    assert f"takes {256e6 * each[256]:.0f} µs and one of 2,048 images {2048e6 * each[2048]:.0f} µs" in nine
    assert f"costs {1e9 * each[256]:.0f} ns in the small minibatch and {1e9 * each[2048]:.0f} ns" in nine


def page(name):
    """The text of a page, a line for each paragraph and each row of a table."""
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    return re.sub(r"(?<!\n)\n(?=[^\s|<-])", " ", text)


@pytest.mark.parametrize(
    "script, name, mark, results",
    [("invent", "inventing", "invented", "invent"), ("tab", "in_a_tab", "measured", "tab")],
)
def test_tables_that_scripts_fill(script, name, mark, results):
    """What stands between a script's marks is what it makes of its results."""
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    shown = text.split(f"<!-- {mark} -->\n")[1].split(f"\n<!-- end of {mark} -->")[0]
    assert shown == importlib.import_module(script).table(result(results))


def test_other_accuracies():
    """The rows of the page on performance, but for the runs that learn nothing."""
    runs = {}
    for run in result("cpu_accuracy")["runs"]:
        runs.setdefault((run["devices"], run["precision"], run["warmup"]), []).append(run)
    (about,) = (text for text in page("performance").split("\n\n") if text.startswith("| `d2lmgpu train` | seed |"))
    small, mixed, learned_nothing, large, diverged = about.splitlines()[2:]
    scaled = runs[8, "float32", 2.0]
    rows = ((small, runs[2, "float32", 0]), (mixed, runs[2, "mixed", 0]), (large, scaled[1:]))
    for row, found in rows:
        *_, seeds, means, best = (cell.strip() for cell in row.strip("| ").split("|"))
        ends = [run["test_accuracy"][-3:] for run in found]
        assert seeds == ", ".join(str(run["seed"]) for run in found)
        assert means == ", ".join(f"{sum(end) / 3:.3f}" for end in ends)
        peaks = [f"{max(run['test_accuracy']):.3f}" for run in found]
        assert best in (", ".join(peaks), f"{min(peaks)} to {max(peaks)}")
    assert "learns nothing" in learned_nothing and scaled[0]["diverged"].startswith("nothing was learned")
    assert "diverges in the first epoch" in diverged
    assert runs[8, "float32", 0][0]["diverged"].startswith("diverged in epoch 1")


def test_the_runs_on_a_gpu():
    text, runs = page("gpu"), {name: result(f"gpu_train_{name}") for name in ("float32", "mixed")}
    ends = [f"{run['test_accuracy'][-1]:.3f}" for run in runs.values()]
    assert f"Its test accuracy was {ends[0]} in float32 and {ends[1]} in mixed" in text
    seconds = sorted(runs["float32"]["seconds_per_epoch"])[5]
    assert f"takes {seconds:.3f} seconds in float32 for an epoch" in text


def test_two_processes():
    text = page("cluster")
    ratios = {
        entry["than"]: entry["ratio"]
        for entry in result("cpu_ddp")["times_as_fast"]
        if entry["is"] == "ours, 2 processes"
    }
    here, ddp = (ratios[name] for name in ("ours, 2 devices", "PyTorch DDP, 2 processes"))
    quartiles = [(ratio["lower quartile"], ratio["upper quartile"]) for ratio in (here, ddp)]
    assert f"two processes are {here['median']:.2f} times as fast as two devices" in text
    assert "(quartiles {:.2f} and {:.2f})".format(*quartiles[0]) in text
    assert f"{ddp['median']:.1f} times as fast as DDP" in text and "({:.1f} and {:.1f})".format(*quartiles[1]) in text


def test_exact_sums():
    text = page("same_bits")
    for shown, name in (("LeNet, SGD", "SGD"), ("LeNet, Adam", "Adam"), ("a network with dropout", "dropout")):
        found = result("cpu_same_bits")["columns"][name]
        different, loss = found["different results"], found["loss"]
        exact, least, most = (f"{value:.5f}" for value in (loss["exact"][0], *loss["float"]))
        cells = [shown, found["ways"], different["exact"], 72, different["float"], exact, f"{least} to {most}"]
        assert f"| {' | '.join(map(str, cells))} |" in text
        assert loss["exact"][0] == loss["exact"][1] and len(found["checksum"]) == 1
