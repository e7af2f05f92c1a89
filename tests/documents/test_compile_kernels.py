"""The compile table's pure parts: what is launched, in which order it is compiled, and how tables are compared."""

import math
from collections import Counter

import compile_kernels
import pytest
from launches import compiler, every_launch, table
from launches.record import record_step

pytestmark = pytest.mark.threads

LOG = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas         .     8 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 96 registers, used 1 barriers, 24128 bytes smem
ptxas info    : Compiling entry function 'other' for 'sm_90'
ptxas info    : Used 32 registers, used 0 barriers
"""


def test_what_the_compiler_says():
    assert compiler.resources(LOG) == {"one": (96, 24128, 8), "other": (32, 0, 0)}


def test_blocks_that_fit():
    fit = compiler.blocks_resident
    assert fit(78, 0, 455) == 1  # of registers: 15 warps, taken as 16, of 80 x 32
    assert fit(32, 0, 1024) == 2 and fit(32, 0, 1024, arch=75) == 1
    assert fit(16, 47 * 1024, 64) == 4 and fit(16, 300 * 1024, 64) == 0


@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_launches_are_those_of_the_package(precision):
    found = every_launch.record("lenet", 0.5, 7, (1, 31, 17), precision)
    names = {launch.name for launch in found}
    assert any(name.startswith("conv") for name in names) and any(name.startswith("dense") for name in names)
    convolutions = [launch.options for launch in found if launch.name.startswith("conv")]
    assert any({"-DH=31", "-DW=17", "-DO=10"} <= set(options) for options in convolutions)
    network = every_launch.NETWORKS["lenet"](width=0.5, input_shape=(1, 31, 17))
    assert "add" in {each.name for each in record_step(network, 7, precision, 2, "sgd", shape=(1, 31, 17))}


def test_every_module_once_and_for_what_can_run_it(monkeypatch):
    monkeypatch.setattr(every_launch, "WIDTHS", (1,))
    monkeypatch.setattr(every_launch, "BATCHES", (7,))
    modules = every_launch.every_module()
    assert len({(m.code, m.options) for m in modules}) == len(modules)
    jobs = every_launch.jobs(modules, (75, 90, 121))
    assert jobs[0] == (modules[0], 90) and {arch for _, arch in jobs} == {75, 90}
    assert any("-DHALF_FACTORS=1" in m.options for m in modules)


ROW = table.Row("a", 256, 0, 2048)
KEPT = {ROW: table.Kept(2, {("12", 80): (32, 48), ("12", 90): (32, 32)}), ROW._replace(kernel="c"): table.Kept(4, {})}
LAUNCHED = Counter({("a", 256, 0): 2, ("c", 256, 0): 4})


@pytest.mark.parametrize(
    "found, launched, complete, said",
    [
        ({80: {"x": 32, "y": 48}}, {}, True, ""),
        ({80: {"x": 40}}, {}, False, ""),
        ({80: {"x": 24}}, {}, False, "changed: a<256>, 2048 bytes shared, sm_"),
        ({90: {"x": 40}}, {}, False, "changed: a<256>, 2048 bytes shared, sm_"),
        ({80: {"x": 40, "y": 48}}, {}, True, "changed: a<256>, 2048 bytes shared, sm_"),
        ({75: {"x": 8}}, {}, False, "new: a<256>, 2048 bytes shared, sm_75: 8 registers, 4 blocks a multiprocessor"),
        ({}, {("b", 32, 0): 1}, False, "launches of b<32>: 1, in the table 0"),
        ({}, {("c", 256, 0): 0}, False, "launches of c<256>: 0, in the table 4"),
    ],
)
def test_tables_are_compared(found, launched, complete, said):
    """What was compiled should be among what is kept, or nearly; and all of it, if everything was compiled."""
    lines = table.compare({ROW: found}, KEPT, "12", Counter({**LAUNCHED, **launched}), complete=complete)
    assert len(lines) == bool(said) and all(line.startswith(said) for line in lines)


def test_a_compilers_columns_are_written_anew(tmp_path):
    """The other compiler's stay, and rows that no compiler has any more go."""
    gone, new = ROW._replace(kernel="gone"), ROW._replace(kernel="new")
    kept = {ROW: table.Kept(1, {("12", 90): (8, 8), ("13", 90): (9, 9)}), gone: table.Kept(1, {("13", 90): (7, 7)})}
    found = {ROW: {90: {"x": 10, "y": 16}}, new: {80: {"x": 5}}}
    file = tmp_path / "table.csv"
    table.write(file, table.with_what_was_found(kept, found, "13"))
    assert table.read(file) == {
        ROW: table.Kept(2, {("12", 90): (8, 8), ("13", 90): (10, 16)}),
        new: table.Kept(1, {("13", 80): (5, 5)}),
    }


def test_the_table_has_all_launches():
    """For each compiler; which they are, a script finds out in half a minute, so here only those of one network."""
    rows = table.read(compile_kernels.TABLE)
    for row, kept in rows.items():
        assert {version.split(".")[0] for version, _ in kept.registers} == {"12", "13"} and kept.launches > 0
        assert {arch for _, arch in kept.registers} == {*every_launch.ARCHITECTURES} and len(kept.registers) == 10
        for (_, arch), (_, most) in kept.registers.items():
            assert compiler.blocks_resident(most, row.shared, row.threads, arch) > 0
    for precision in ("float32", "mixed"):
        for launch in every_launch.record("lenet", 0.5, 7, (1, 31, 17), precision):
            group = launch.name, math.prod(launch.block), compile_kernels.is_half(launch.options)
            assert group in {row[:3] for row in rows}
