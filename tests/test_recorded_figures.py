"""Figures that notebooks 10b and 10c carry, since a student's copy has no benchmarks, are those of the benchmarks."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def recorded_in(name):
    """What a notebook calls recorded, and where it says that it is from."""
    cells = json.loads((ROOT / "notebooks" / name).read_text(encoding="utf-8"))["cells"]
    (source,) = (text for text in map("".join, (cell["source"] for cell in cells)) if "\nrecorded = " in text)
    return json.loads(re.search(r'"""(.*)"""', source, re.DOTALL)[1]), source


@pytest.mark.parametrize("name", ["10b_micro_batches_graphs_overlap.ipynb", "10c_numbers_of_16_bits.ipynb"])
def test_they_are_the_benchmarks(name):
    recorded, source = recorded_in(name)
    records = recorded if "mixed" in recorded else {"float32": recorded}
    for precision, record in records.items():
        file = f"benchmarks/results/gpu_pytorch_{precision}.json"
        assert file in source or "gpu_pytorch_*.json" in source
        result = json.loads((ROOT / file).read_text(encoding="utf-8"))
        assert (record["machine"], record["commit"]) == (result["machine"], result["commit"])
        assert record["seconds_per_epoch"]
        for contender, seconds in record["seconds_per_epoch"].items():
            assert seconds == result["seconds_per_epoch"][contender]
