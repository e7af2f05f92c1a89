"""``d2lmgpu allreduce --on``: simulated on a wiring, by its name or from a file, with one invented for it."""

import json

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


def test_a_wiring_from_a_file(tmp_path, capsys):
    file, network = tmp_path / "house.txt", read_wires(HOUSE)
    file.write_text(HOUSE)
    page = tmp_path / "page.html"
    options = ["--on", file, "--invent", "--algorithms", "ring,tree", "--sizes", "4K,1M", "--html", page]
    found = rows(list(map(str, options)), tmp_path)
    assert found["network"] == "house.txt" and found["times"] == "simulated, not measured"
    names = ["ring", "tree", "ring along", "both rings along", "invented"]
    assert [(row["algorithm"], row["bytes"]) for row in found["rows"]] == [
        (name, size) for size in (2**12, 2**20) for name in names
    ]
    for row in found["rows"]:
        n = row["bytes"] // 4
        makers = {**ALGORITHMS, "ring along": ring_along(network), "both rings along": ring_along(network, True)}
        schedule = invent(network, n) if row["algorithm"] == "invented" else makers[row["algorithm"]](5, n)
        assert row["devices"] == 5 and row["seconds"] == pytest.approx(simulate(schedule, network).seconds)
        assert row["bound"] == pytest.approx(bound(network, n)) and row["steps"] == len(schedule)
    said = capsys.readouterr().out
    assert "simulated, not measured" in said and said.count("invented, proved") == 2
    assert "invented: 5 devices, 262144 elements" in page.read_text().replace("262,144", "262144")


@pytest.mark.parametrize(
    "name, k", [("torus", 6), ("hypercube", 4), ("dragonfly", 8), ("fat_tree", 5), ("pcie_bus", 3)]
)
def test_a_network_by_name(name, k, tmp_path):
    found = rows(["--on", name, "--devices", str(k), "--algorithms", "ring", "--sizes", "4K"], tmp_path)
    assert found["network"] == topology(name, k).name
    assert all(row["devices"] == k and row["bound"] <= row["seconds"] for row in found["rows"])


@pytest.mark.parametrize(
    "options, message",
    [
        (["--invent"], "--invent needs a simulated network; give its name or file"),
        (["--html", "a.html"], "--html needs a simulated network"),
        (["--on", "torus", "--devices", "gpu:0"], "--devices is 'gpu:0'; for a simulated network, give a number"),
        (["--on", "nvlink_mesh", "--devices", "5"], "--devices is 5, and nvlink_mesh has 8; leave out --devices"),
        (["--on", "torsu"], "--on torsu: there is no such file; networks by name are full_switch, pcie_bus, "),
        (["--on", "/dev/zero"], "--on /dev/zero: there is no such file"),
        (["--on", "wires.txt"], "wires.txt, line 2: '1=2' is no wire; write a line such as '0-1: 25 GB/s'"),
        (["--on", "torus", "--algorithms", "nccl"], "allreduce to simulate 'nccl' is unknown; choose from naive, "),
        (["--on", "torus", "--algorithms", "none"], "allreduce to simulate 'none' is unknown"),
    ],
)
def test_what_is_wrong_is_said(options, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wires.txt").write_text("0-1: 1 GB/s\n1=2\n")
    assert main(["allreduce", *options]) == 2
    assert message in capsys.readouterr().err
