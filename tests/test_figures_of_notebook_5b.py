"""Figures of an H100 that notebook 5b carries, as a copy of the course has no benchmarks: those of the benchmarks."""

import ast
import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONTENDERS = {
    "as a graph": "ours, 1 device",
    "kernel by kernel": "ours, without graphs",
    "two devices that share the GPU": "ours, 2 devices on one GPU",
    "PyTorch eager": "PyTorch eager",
    "PyTorch as a graph": "PyTorch CUDA graph",
}
FILES = {"batch 256": "gpu_pytorch_float32.json", "batch 2048": "gpu_pytorch_2048.json"}


def test_they_are_the_benchmarks():
    cells = json.loads((ROOT / "notebooks" / "05b_is_it_faster.ipynb").read_text(encoding="utf-8"))["cells"]
    (text,) = (text for text in map("".join, (cell["source"] for cell in cells)) if "H100 = {" in text)
    shown = ast.literal_eval(re.search(r"^H100 = (\{.*?^\})", text, re.MULTILINE | re.DOTALL)[1])
    assert len(shown) == 7
    for name, seconds in shown.items():
        batch, _, what = name.partition(", ")
        assert FILES[batch] in text
        result = json.loads((ROOT / "benchmarks" / "results" / FILES[batch]).read_text(encoding="utf-8"))
        assert "H100" in result["machine"]
        assert seconds == result["seconds_per_epoch"][CONTENDERS[what]]["median"]
