"""The table of settings and splits in docs/splits.md is what the script finds: a sample, another for each commit."""

import re
import sys
from pathlib import Path

import pytest
from at_random import nightly
from conftest import sampled

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))
import matrix  # noqa: E402

CELLS = [(setting, way) for setting in matrix.SETTINGS for way in matrix.WAYS]
CASES = [(place, *cell) for place in matrix.PLACES for cell in CELLS if matrix.done_in(place, *cell)]
QUICK = [case for case in CASES if case[1:] in CELLS[::29] and case[0] in ("virtual devices", "processes")]


def told():
    """The cells of the page's table, and the reasons below it."""
    text = (ROOT / "docs" / "splits.md").read_text(encoding="utf-8")
    text = re.search(r"(?s)<!-- matrix -->\n(.*)\n<!-- end of matrix -->", text)[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]
    cells = {(row[0], way.strip("`")): cell for row in rows[1:] for way, cell in zip(rows[0][1:], row[1:], strict=True)}
    return cells, dict(re.findall(r"(?m)^(\d+)\. (.*)$", text))


def test_every_cell_is_there():
    cells, reasons = told()
    assert list(cells) == CELLS and {*cells.values()} == {"=", *reasons}


@pytest.mark.parametrize("place, setting, way", [*QUICK, *sampled(CASES, 64), *nightly(*CASES[::5])])
def test_a_cell(place, setting, way):
    cells, reasons = told()
    assert matrix.outcome(setting, way, place) == reasons.get(cells[setting, way], "=")
