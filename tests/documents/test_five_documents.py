"""The five documents, item by item: each item's program does what the item promises, and what it names is there."""

import ast
import builtins
import concurrent.futures
import configparser
import copy
import functools
import importlib
import inspect
import pickle
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import standin_cupy
from conftest import forget_gpus
from five_documents import DOCUMENTS, ITEMS, NOT_HERE, by_hand, elsewhere, places, runs, splits
from five_documents.rows import CHECKS
from test_pages import code, options_of

import d2lmgpu as d2l
from d2lmgpu import cli, collectives, layers, networks, plans
from d2lmgpu.cli.options import make_parser
from d2lmgpu.data import fashion_mnist
from d2lmgpu.networks import LENET, optimizers
from d2lmgpu.training import Result

ROOT = Path(__file__).resolve().parents[2]
FILES = by_hand, elsewhere, places, runs, splits
"""Those that enter checks."""
PROGRAMS = {check.__name__: check for check in CHECKS.values() if callable(check)}
PARSER, COMMANDS = make_parser(cli.COMMANDS)

found_once = functools.cache(fashion_mnist.find_file)
"""A file's sum is computed once, which takes longer than most of these programs."""


@pytest.fixture(autouse=True)
def sixty_images(monkeypatch, tmp_path):
    """Fashion-MNIST has 60 images to train on and 60 to test with, and files are written into an empty folder."""
    monkeypatch.setattr(fashion_mnist, "find_file", found_once)
    monkeypatch.setattr(fashion_mnist, "read_idx", lambda path, read=fashion_mnist.read_idx: read(path)[:60])
    monkeypatch.setattr("d2lmgpu.experiments.trials.fashion_mnist", d2l.load_fashion_mnist)  # and none are kept
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cards(monkeypatch):
    """A stand-in for CuPy with three cards."""
    forget_gpus()
    standin_cupy.install(monkeypatch, cards=3)
    monkeypatch.setattr("d2lmgpu.networks.compute.USE_CUDA_KERNELS", False)  # they would take minutes
    yield
    forget_gpus()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name, request):
    program = PROGRAMS[name]
    program(*map(request.getfixturevalue, inspect.signature(program).parameters))


def test_each_row_has_a_check_or_a_reason():
    """Tests that are named exist."""
    assert {item.document for item in ITEMS} == {*DOCUMENTS} and len(ITEMS) > 230
    for item in ITEMS:
        assert (item in CHECKS) != item.here.startswith(NOT_HERE), item
    for test in {check for check in CHECKS.values() if isinstance(check, str)}:
        file, name = test.split("::")
        text = "".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob(file))
        assert re.search(rf"^def {name}\(", text, re.MULTILINE), test


@pytest.mark.parametrize("document", DOCUMENTS)
def test_what_is_named_exists(document):
    """Commands and their options, and in programs the names of the package and the arguments that are given."""
    for item in ITEMS:
        if item.document == document:
            for text in code(item.here):
                try:
                    check_named(text)
                except (Exception, SystemExit) as error:
                    raise AssertionError(f"{item.item}: `{text}`: {error}") from error


def check_named(text):
    """Raise an error unless what the page shows as code is a command, an option or a program whose names exist."""
    if text.startswith("pip "):
        setup = configparser.ConfigParser()
        setup.read(ROOT / "setup.cfg")
        (extra,) = re.findall(r"\[(\w+)\]", text)
        assert extra in setup["options.extras_require"]
    elif match := re.fullmatch(r"(?:\S+=\S+ |mpiexec .*)?d2lmgpu (.*)", text):
        _, rest = PARSER.parse_known_args(shlex.split(match[1]))
        assert not any(word.startswith("-") for word in rest), rest
    elif text.startswith("-"):
        words = shlex.split(text)
        command = "train" if words[0] in options_of(COMMANDS.choices["train"]) else "sweep"
        assert not PARSER.parse_known_args([command, *words])[1]
    elif not re.fullmatch(r"[A-Z_]{4,}(=\S+)?|mpiexec", text):  # of other programs
        check_program(ast.parse(text))


@functools.cache
def names():
    """What names mean in the programs that the page shows; others are arguments, or the reader's."""
    rooms = collectives, layers, networks, optimizers, plans
    known = {room.__name__.removeprefix("d2lmgpu."): room for room in rooms}
    known |= {"d2l": d2l, "concurrent": concurrent, "copy": copy, "pickle": pickle, **networks.build.RECIPES}
    history, model = d2l.History(["cpu(0)"], "cpu", d2l.Settings().recorded()), d2l.Model(LENET, d2l.init_params())
    return known | {
        "animator": d2l.Animator(),
        "cluster": d2l.cluster(),
        "device": d2l.cpu(0),
        "executor": concurrent.futures.ThreadPoolExecutor(),
        "history": history,
        "layer": LENET[0],
        "model": model,
        "queue": d2l.MinibatchQueue(np.zeros((1, 1, 28, 28)), np.zeros(1, int), [d2l.cpu(0)], 1),
        "result": Result(history, model),
    }


@functools.cache
def results():
    """By a function what it returns, for programs that go on with it."""
    plan = plans.PLANS["data"](1)
    return {plans.prove: plans.prove(plan), plans.simulate: plans.simulate(plan)}


def check_program(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found(node)
        elif isinstance(node, ast.Call):
            function, named = found(node.func), {key.arg: None for key in node.keywords}
            bound = inspect.signature(function).bind_partial(*[None] * len(node.args), **named)
            assert "unknown" not in bound.arguments, ast.unparse(node)
    statement = tree.body[0]
    if isinstance(statement, ast.Import):
        importlib.import_module(statement.names[0].name)
    elif isinstance(statement, ast.Assign):  # a setting
        assert statement.targets[0].id in inspect.signature(d2l.train).parameters
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Name):
        name = statement.value.id
        assert name in {*names(), *plans.PLANS, *inspect.signature(d2l.train).parameters, *d2l.Callback.__dict__}


def found(node):
    """What a name, an attribute or a result stands for. Raises whatever says that there is no such thing."""
    if isinstance(node, ast.Attribute):
        return getattr(found(node.value), node.attr)
    if isinstance(node, ast.Call):
        return results()[found(node.func)]
    assert isinstance(node, ast.Name) and (node.id in names() or hasattr(builtins, node.id)), ast.unparse(node)
    return names().get(node.id) or getattr(builtins, node.id)
