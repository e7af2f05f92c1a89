"""The plan of the house: a room imports only rooms that stand before it."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "d2lmgpu"
ROOMS = (
    "interrupted words arguments devices timing layers kernels networks collectives checkup output download "
    "fashion_mnist images data transforms optimizers schedules parallel plots monitor live_plot checkpoints training "
    "scaling sweeps exercises cli"
).split()


def rooms_imported(file):
    """Names of the rooms that a file imports, from its relative imports."""
    depth = len(file.relative_to(PACKAGE).parts)  # 1 for a file of the package itself
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == depth:
            yield from [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_rooms_before_it(room):
    files = [PACKAGE / f"{room}.py"] if (PACKAGE / f"{room}.py").exists() else list((PACKAGE / room).glob("*.py"))
    assert files
    before = ROOMS[: ROOMS.index(room)]
    for file in files:
        assert set(rooms_imported(file)) <= set(before), file


def test_every_room_has_its_place():
    names = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert names - {"__init__", "__main__", "__pycache__"} == set(ROOMS)
