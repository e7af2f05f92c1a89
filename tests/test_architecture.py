"""The plan of the house: a room imports only rooms that stand before it, and no two files import each other."""

import ast
import collections
import graphlib
from pathlib import Path

import pytest
import tables
from budget import code_lines, followed, tree_of

PACKAGE = Path(__file__).resolve().parents[1] / "d2lmgpu"
FLOORS = (
    "base",
    "devices",
    "data layers collectives",
    "kernels cluster",
    "networks",
    "parallel plans",
    "pictures exercises",
    "training",
    "experiments",
    "cli",
)
"""From the ground up: the folders of the package, each of which imports only what lies on floors below its own."""
ROOMS = [room for floor in FLOORS for room in floor.split()]
DOORS = {"__init__.py", "__main__.py", "py.typed"}
"""What is beside the rooms."""
WITHOUT_KERNELS = "collectives", "plans"


@pytest.fixture(scope="module")
def imports():
    """By a room those that it imports."""
    return tables.imports_of_rooms()


@pytest.mark.parametrize("number, floor", enumerate(FLOORS))
def test_a_room_imports_only_rooms_on_lower_floors(number, floor, imports):
    below = {room for floor in FLOORS[:number] for room in floor.split()}
    for room in floor.split():
        assert imports[room] <= below, f"{room} imports {imports[room] - below}"


def test_every_room_has_its_place(imports):
    assert set(imports) == set(ROOMS)
    assert len(ROOMS) <= 15 and len(FLOORS) <= 10
    assert {path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"} == DOORS | set(ROOMS)


@pytest.mark.parametrize("room", WITHOUT_KERNELS)
def test_what_is_data_is_proved_and_executed_without_the_kernels(room, imports):
    assert "kernels" not in imports[room]


def files_imported(file):
    """The package's files that a file imports, also within functions."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = file.parents[node.level - 1] if node.level else PACKAGE.parent
            module = base.joinpath(*(node.module or "").split("."))
            for alias in node.names:
                yield file_of(module / alias.name) or file_of(module)
        elif isinstance(node, ast.Import):
            yield from (file_of(PACKAGE.parent.joinpath(*alias.name.split("."))) for alias in node.names)


def file_of(module):
    """The file of a module of the package, without ".py"; None if there is none, as for other packages' modules."""
    if PACKAGE in (module, *module.parents):
        return next(filter(Path.is_file, (module.with_name(f"{module.name}.py"), module / "__init__.py")), None)
    return None


def test_no_files_import_each_other_directly_or_in_a_circle():
    imports = {file: {*files_imported(file)} - {None} for file in PACKAGE.rglob("*.py")}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" imports ".join(str(file.relative_to(PACKAGE)) for file in reversed(error.args[1])))


OF_TWO_KINDS = {"channels", "execute", "prove", "simulate", "write_html"}
"""What is done with a schedule is done with a plan, too; and networks have channels by which a plan splits them."""


def test_a_public_name_is_defined_in_one_file():
    """Kernels for CPUs and CUDA have the same names, and so have commands; exercises are named after functions."""
    defined = collections.Counter()
    for file in PACKAGE.rglob("*.py"):
        if file.relative_to(PACKAGE).parts[0] not in ("kernels", "exercises", "cli"):
            nodes = tree_of(file).body
            names = {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
            assigned = (target for node in nodes if isinstance(node, ast.Assign) for target in node.targets)
            names |= {target.id for target in assigned if isinstance(target, ast.Name)}
            defined.update(name for name in names if not name.startswith("_"))
    assert {name for name, count in defined.items() if count > 1} <= OF_TWO_KINDS


MAX_LINES, MAX_FILES, MAX_TESTS = 16_145, 219, 18_469
"""Of code in the package, and in its tests. Whoever adds takes away in the same commit; who takes away lowers this."""

MAX_FOLLOWED = {"parallel/step.py": (21, 1_458), "training/begin.py": (132, 10_387)}
"""How many files and code lines one must open to follow a file."""


def test_the_house_stays_small():
    files = [*PACKAGE.rglob("*.py")]
    assert sum(map(code_lines, files)) <= MAX_LINES and len(files) <= MAX_FILES
    assert sum(map(code_lines, Path(__file__).parent.rglob("*.py"))) <= MAX_TESTS


@pytest.mark.parametrize("file", MAX_FOLLOWED)
def test_the_step_and_the_run_are_soon_followed(file):
    files = followed(PACKAGE / file)
    max_files, max_lines = MAX_FOLLOWED[file]
    assert len(files) <= max_files and sum(map(code_lines, files)) <= max_lines
