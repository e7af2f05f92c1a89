"""Figures of an H100 that notebooks carry, since a student's copy has no benchmarks, are those of the benchmarks."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def cells_of(name):
    return json.loads((ROOT / "notebooks" / name).read_text(encoding="utf-8"))["cells"]


def benchmark(name):
    return json.loads((ROOT / "benchmarks" / "results" / f"gpu_pytorch_{name}.json").read_text(encoding="utf-8"))


def test_they_are_the_benchmarks():
    (source,) = (text for text in map("".join, (cell["source"] for cell in cells_of(WITH_RECORDS))) if RECORDED in text)
    assert "benchmarks/results/gpu_pytorch_*.json" in source
    for precision, record in json.loads(re.search(r'"""(.*)"""', source, re.DOTALL)[1]).items():
        result = benchmark(precision)
        assert (record["machine"], record["commit"]) == (result["machine"], result["commit"])
        assert record["seconds_per_epoch"]
        for contender, seconds in record["seconds_per_epoch"].items():
            assert seconds == result["seconds_per_epoch"][contender]


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
