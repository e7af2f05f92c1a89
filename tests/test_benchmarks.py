"""Comparisons with others run by hand, some with PyTorch: here, that what they take of the package is there."""

import ast
import importlib
from pathlib import Path

import pytest

SCRIPTS = sorted(Path(__file__).parent.with_name("benchmarks").rglob("*.py"))


def names_used(source):
    """What a script takes from d2lmgpu, as (module, name): by ``from d2lmgpu.x import name`` and ``d2l.name``."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "d2lmgpu":
            yield from ((node.module, alias.name) for alias in node.names)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "d2l":
            yield "d2lmgpu", node.attr


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_what_a_script_takes_from_the_package_is_there(script):
    for module, name in names_used(script.read_text()):
        assert hasattr(importlib.import_module(module), name) or importlib.util.find_spec(f"{module}.{name}"), name
