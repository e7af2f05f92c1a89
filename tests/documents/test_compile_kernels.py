"""The compile table's pure parts: what is launched, in which order it is compiled, and how tables are compared."""

import json
import math

import compile_kernels
import pytest
from launches import compiler, every_launch
from launches.record import record_step

pytestmark = pytest.mark.threads

LOG = """ptxas info    : Compiling entry function 'one' for 'sm_90'
ptxas         .     8 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 96 registers, used 1 barriers, 24128 bytes smem
ptxas info    : Compiling entry function 'other' for 'sm_90'
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers
"""


def test_what_the_compiler_says_and_how_many_blocks_fit():
    assert compiler.resources(LOG) == {"one": (96, 24128, 8), "other": (32, 0, 0)}
    fit = compiler.blocks_resident
    assert fit(78, 0, 455) == 1  # of registers: 15 warps, taken as 16, of 80 x 32
    assert fit(32, 0, 1024) == 2 and fit(32, 0, 1024, arch=75) == 1
    assert fit(16, 47 * 1024, 64) == 4 and fit(16, 47 * 1024, 64, arch=120) == 2
    assert fit(16, 300 * 1024, 64) == 0


@pytest.mark.long
@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_launches_are_those_of_the_package_and_in_the_table(precision):
    """Of each compiler; all launches are found by a script in half a minute, here those of one network."""
    whole = json.loads(compile_kernels.TABLE.read_text())
    assert [version.split(".")[0] for version in whole] == ["12", "13"] and len({*map(len, whole.values())}) == 1
    found = every_launch.record("lenet", 0.5, 7, (1, 31, 17), precision)
    for launch in found:
        key = compile_kernels.key_of(launch.name, math.prod(launch.block), launch.options)
        for table in whole.values():
            assert {*table[key]} == {str(arch) for arch in every_launch.ARCHITECTURES}, key
            assert all(resident > 0 for _, _, resident in table[key].values())
    names = {launch.name.split("_")[0] for launch in found}
    assert {"conv", "dense", "head"} <= names
    assert any({"-DH=31", "-DW=17", "-DO=10"} <= set(launch.options) for launch in found)
    assert every_launch.record("cnn", 2, 7, (1, 31, 17), precision) == []  # it has no width
    network = every_launch.NETWORKS["lenet"](width=0.5, input_shape=(1, 31, 17))
    assert "add" in {launch.name for launch in record_step(network, 7, precision, 2, "sgd", shape=(1, 31, 17))}


@pytest.mark.long
def test_every_module_once_and_for_what_can_run_it(monkeypatch):
    monkeypatch.setattr(every_launch, "WIDTHS", (1,))
    monkeypatch.setattr(every_launch, "BATCHES", (7,))
    settings = every_launch.settings_in_order()  # the most important first
    assert settings[:2] == [("lenet", 1, 7, (1, 28, 28), "float32"), ("lenet", 1, 7, (1, 28, 28), "mixed")]
    modules = every_launch.every_module()
    assert len({(m.code, m.options) for m in modules}) == len(modules)
    jobs = every_launch.jobs(modules, (75, 90, 121))
    assert jobs[0] == (modules[0], 90) and {arch for _, arch in jobs} == {75, 90}
    assert any("-DHALF_FACTORS=1" in m.options for m in modules)


def test_tables_are_compared():
    kept = {"a": {"80": [32, 0, 8], "90": [32, 0, 8]}, "gone": {"90": [1, 2, 3]}, "not compiled": {"90": [1, 2, 3]}}
    same = {"a": {"90": [32, 0, 8]}}
    assert compile_kernels.compare(same, kept, {"a", "gone", "not compiled"}) == []
    other = {"a": {"90": [40, 0, 6]}, "b": {"80": [8, 16, 2]}}
    changed, new, *others = compile_kernels.compare(other, kept, {"a", "b", "c", "not compiled"})
    assert changed.startswith("changed: sm_90 a: 32 registers") and changed.endswith("6 blocks a multiprocessor")
    assert new.startswith("new: sm_80 b: 8 registers, 16 bytes shared")
    assert others == ["not in the table: c", "no longer launched: gone"]
