"""Names from elsewhere: what stands in the table exists, and errors that meet one of them say what it is here."""

import ast
import copy
import functools
import inspect
import re
import subprocess
import sys
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.base.arguments import perhaps_meant
from d2lmgpu.base.names import names, spelled_alike
from d2lmgpu.cli.parser import make_parser, parse
from d2lmgpu.devices import ENVIRONMENTS
from d2lmgpu.experiments.trials import complete_trial

ROWS = [row for rows in names().values() for row in rows]
PARSERS = make_parser(cli.COMMANDS)[1].choices


@pytest.fixture(scope="module")
def x():
    return d2l.put(np.arange(3.0), d2l.cpu(0))


def exists(way, x):
    """Whether there is such a name, attribute, argument, setting, option or command."""
    if way.startswith("--"):
        return way in PARSERS["train"]._option_string_actions or parse(cli.COMMANDS, ["train", *way.split()])
    if way.startswith("d2lmgpu "):
        return way.split()[1] in PARSERS
    name, _, value = way.partition("=")
    if value:
        allowed = {about.name: about.metadata["allowed"] for about in fields(d2l.Settings)} | {
            "environment": ENVIRONMENTS
        }
        return ast.literal_eval(value) in allowed[name]
    root, *path = name.split(".")
    if path:
        functools.reduce(getattr, path, {"d2l": d2l, "x": x, "device": x.device}[root])
        return True
    return name in inspect.signature(d2l.train).parameters


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.elsewhere.split(", ")[0])
def test_what_a_row_says_exists(row, x):
    for way in filter(None, row.here.split(", ")):
        assert exists(way, x), way
    assert row.here or row.note


def test_a_name_stands_in_one_row():
    count = Counter(spelled_alike(word) for row in ROWS for word in row.elsewhere.split(", "))
    assert max(count.values()) == 1, count.most_common(1)


def test_names_that_are_the_same_here(x):
    """Those that the page has beside its tables."""
    page = (Path(__file__).parents[1] / "docs" / "names.md").read_text("utf-8")
    text = re.sub(r"^\|.*", "", page, flags=re.MULTILINE)
    named = {*re.findall(r"`(d2l\.\w+)`", text)} - {"d2l.split_and_load"}
    assert len(named) > 8 and all(exists(name, x) for name in named)


@pytest.mark.parametrize(
    "named, meant",
    [
        ({"learning_rate": 0.1}, "'learning_rate'; did you mean lr?"),
        ({"MiniBatchSize": 64}, "did you mean batch_size?"),
        ({"momentum": 0.9}, 'did you mean optimizer="momentum"?'),
    ],
)
def test_arguments_and_settings(named, meant):
    for function in (d2l.train, d2l.Settings, functools.partial(replace, d2l.Settings(lr=0.5))):
        with pytest.raises(TypeError) as error:
            function(**named)
        assert meant in str(error.value)


@pytest.mark.parametrize(
    "name, meant", [("ExecutionEnvironment", "environment"), ("gpus", "num_gpus"), ("ctx", "devices")]
)
def test_arguments_of_train_that_are_no_settings(name, meant):
    with pytest.raises(TypeError, match=rf"{name}'; did you mean {meant}\?"):
        d2l.train(**{name: 2})


@pytest.mark.parametrize(
    "named, meant",
    [
        ({"optimizer": "sgdm"}, "did you mean momentum?"),
        ({"network": "LeNet5"}, "did you mean lenet?"),
        ({"network": "ResNet18"}, "; there are no skip connections; "),
        ({"loss": "mse"}, "did you mean squared_error?"),
        ({"split": "FSDP"}, "did you mean zero3?"),
    ],
)
def test_values(named, meant):
    with pytest.raises(ValueError) as error:
        d2l.Settings(**named)
    assert meant in str(error.value)


@pytest.mark.parametrize("environment, meant", [("multigpu", "multi-gpu"), ("gpus", "multi-gpu"), ("cuda", "gpu")])
def test_environments(environment, meant):
    with pytest.raises(ValueError, match=rf"did you mean {meant}\?"):
        d2l.choose_devices(environment)


@pytest.mark.parametrize(
    "words, meant",
    [
        ("train --learning-rate 0.1", "did you mean --lr?"),
        ("train --momentum 0.9", "did you mean --optimizer momentum?"),
        ("train --optimizer sgdm --devices 1", "did you mean momentum?"),
        ("sweep --learning_rate 0.1", "did you mean --lr?"),
        ("fit", "did you mean train?"),
    ],
)
def test_the_command_line(words, meant, capsys):
    try:
        assert cli.main(words.split()) == 2
    except SystemExit as exit:
        assert exit.code == 2
    assert meant in capsys.readouterr().err


def test_a_sweep():
    with pytest.raises(ValueError, match=r"setting 'learning_rate' is unknown; .*; did you mean lr\?"):
        complete_trial({"learning_rate": 0.1})


def test_what_is_not_similar_is_not_suggested():
    assert perhaps_meant("num_gpus", ["num_epochs"]).startswith("; here: num_gpus, --devices, ")
    assert perhaps_meant("tpus", ["cpu", "gpu", "cpus"]) == "; did you mean cpus?"
    assert perhaps_meant("xyz", ["cpu"]) == perhaps_meant("--", ["--lr"]) == perhaps_meant("", ["lr"]) == ""


def errors_of(thing, *names):
    """The text of the AttributeError of each."""
    for name in names:
        with pytest.raises(AttributeError) as error:
            getattr(thing, name)
        yield str(error.value)


def test_names_of_the_package():
    shown = list(errors_of(d2l, "split_and_load", "npx", "trian", "__path_hooks__"))
    none = "module 'd2lmgpu' has no attribute"
    assert shown == [
        f"{none} 'split_and_load'; here: d2l.split_batch (images and labels in one call)",
        f"{none} 'npx'; d2lmgpu uses no framework, only NumPy, CuPy and its own functions",
        f"{none} 'trian'",
        f"{none} '__path_hooks__'",
    ]
    assert not hasattr(d2l, "split_and_load") and getattr(d2l, "attach_grad", None) is None
    with pytest.raises(ImportError, match="cannot import name 'split_and_load'"):
        pass


def test_names_of_an_array(x):
    shown = list(errors_of(x, "attach_grad", "grad", "backward", "copyto", "cuda", "ctx", "as_in_ctx", "asnumpy"))
    expected = [*["d2l.loss_and_grads"] * 3, *["d2l.put"] * 2, "x.device", "d2l.put", "d2l.to_host"]
    for text, name in zip(shown, expected, strict=True):
        assert f"; here: {name}" in text
    assert list(errors_of(x, "_repr_html_")) == ["a device array has no '_repr_html_'"]
    assert np.array_equal(d2l.to_host(copy.copy(x)), [0, 1, 2])


def test_probing_imports_nothing():
    """`hasattr`, as of IPython and pickle, and modules that are imported from the package later."""
    program = """import sys, d2lmgpu
before = set(sys.modules)
assert not any(hasattr(d2lmgpu, name) for name in ("__wrapped__", "_ipython_display_", "split_and_load", "exercises"))
assert set(sys.modules) == before
from d2lmgpu import exercises
assert d2lmgpu.exercises is exercises"""
    subprocess.run([sys.executable, "-c", program], check=True)
