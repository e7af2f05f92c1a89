"""docs/pytorch.md shows functions of scripts in PyTorch and JAX, and what they printed; the tests need neither."""

import json
import re

from record_frameworks import FILE, HERE, PAGE, SCRIPTS, filled

from d2lmgpu.plans import PLANS, prove

SHOWN = PAGE.read_text(encoding="utf-8")
RECORD = json.loads(FILE.read_text(encoding="utf-8"))


def test_the_page_shows_functions_of_the_scripts():
    """Each block has top-level parts of one script, verbatim."""
    scripts = [(HERE / f"{name}.py").read_text(encoding="utf-8") for name in SCRIPTS]
    blocks = re.findall(r"```py\n(.*?)\n```", SHOWN, re.DOTALL)
    assert len(blocks) == 6
    for block in blocks:
        parts = block.split("\n\n\n")
        assert any(all(f"\n{part}\n\n" in script for part in parts) for script in scripts), block


def test_the_page_shows_what_they_printed():
    lines = [line for script in SCRIPTS for line in RECORD["printed"][script]]
    assert "".join(re.findall(r"```text\n(.*?)```", SHOWN, re.DOTALL)).splitlines() == lines
    assert filled(SHOWN, RECORD) == SHOWN


def test_what_they_printed_is_what_the_page_says():
    """Their gradients are ours, apart from the two in JAX that are meant to be wrong; FSDP holds as much as zero3."""
    printed = RECORD["printed"]
    differ = [float(line.split()[-1]) for script in SCRIPTS for line in printed[script]]
    wrong = [differ.pop(-3), differ.pop(-2)]
    assert max(differ) < 1e-5 and min(wrong) > 0.1
    held = [int(number) for number in re.findall(r"holds (\d+) parameters", "\n".join(printed["same_in_pytorch"]))]
    assert held == [nbytes // 4 for nbytes in prove(PLANS["zero3"](2), 64).between] and "LeNet's 129,068" in SHOWN
    assert sum(held) == 129_068
