"""``d2lmgpu allreduce --on``: simulated on a wiring, by its name or from a file, with one invented for it."""

import json
import sys

import pytest

from d2lmgpu.cli import main
from d2lmgpu.collectives import ALGORITHMS, bound, invent, ring_along, simulate
from d2lmgpu.collectives.network import read_wires, topology

HOUSE = """0-1: 25 GB/s
1-2: 25 GB/s
2-3: 25 GB/s
3-0: 25 GB/s
2-4: 10 GB/s
3-4: 10 GB/s  # the roof
latency: 3 us
"""


def rows(options, tmp_path):
    assert main(["allreduce", *options, "--json", str(tmp_path / "rows.json")]) == 0
    return json.loads((tmp_path / "rows.json").read_text())


def test_a_wiring_from_a_file(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        sys.modules["d2lmgpu.collectives.wirings.invent"], "_MESSAGES", 1_000
    )  # a small part of the searching
    file, network, page = tmp_path / "house.txt", read_wires(HOUSE), tmp_path / "page.html"
    file.write_text(HOUSE)
    options = f"--on {file} --invent --algorithms ring,tree --sizes 256,4K --html {page}"
    found = rows(options.split(), tmp_path)
    assert found["network"] == "house.txt" and found["times"] == "simulated, not measured"
    names = ["ring", "tree", "ring along", "both rings along", "invented"]
    told = [(row["algorithm"], row["bytes"]) for row in found["rows"]]
    assert told == [(name, size) for size in (2**8, 2**12) for name in names]
    along = {"ring along": ring_along(network), "both rings along": ring_along(network, True)}
    for row in found["rows"]:
        n = row["bytes"] // 4
        name = row["algorithm"]
        schedule = invent(network, n) if name == "invented" else (ALGORITHMS | along)[name](5, n)
        assert row["devices"] == 5 and row["seconds"] == pytest.approx(simulate(schedule, network).seconds)
        assert row["bound"] == pytest.approx(bound(network, n)) and row["steps"] == len(schedule)
    said = capsys.readouterr().out
    assert "simulated, not measured" in said and said.count("invented, proved") == 2
    assert "invented: 5 devices, 1024 elements" in page.read_text().replace("1,024", "1024")


def test_a_network_by_name(tmp_path):
    for name, k in [("torus", 6), ("hypercube", 4), ("pcie_bus", 3)]:
        found = rows(["--on", name, "--devices", str(k), "--algorithms", "ring", "--sizes", "4K"], tmp_path)
        assert found["network"] == topology(name, k).name
        assert all(row["devices"] == k and row["bound"] <= row["seconds"] for row in found["rows"])
