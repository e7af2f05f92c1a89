"""Names from elsewhere: what stands in the table exists, and errors that meet one of them say what it is here."""

import ast
import copy
import functools
import inspect
import re
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.base.names import names, perhaps_meant, spelled_alike
from d2lmgpu.cli.options import make_parser, parse
from d2lmgpu.devices import ENVIRONMENTS

ROWS = [row for rows in names().values() for row in rows]
PARSERS = make_parser(cli.COMMANDS)[1].choices
ALLOWED = {about.name: about.metadata["allowed"] for about in fields(d2l.Settings)} | {"environment": ENVIRONMENTS}


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
        return ast.literal_eval(value) in ALLOWED[name]
    root, *path = name.split(".")
    if path:
        functools.reduce(getattr, path, {"d2l": d2l, "x": x, "device": x.device}[root])
        return True
    return name in inspect.signature(d2l.train).parameters


def test_what_a_row_says_exists(x):
    """And a name stands in one row. Those that are the same here stand on the page beside its tables."""
    ways = [way for row in ROWS for way in row.here.split(", ") if way]
    assert len(ways) > 50 and [way for way in ways if not exists(way, x)] == []
    assert all(row.here or row.note for row in ROWS)
    count = Counter(spelled_alike(word) for row in ROWS for word in row.elsewhere.split(", "))
    assert max(count.values()) == 1, count.most_common(1)
    page = (Path(__file__).parents[2] / "docs" / "names.md").read_text("utf-8")
    named = {*re.findall(r"`(d2l\.\w+)`", re.sub(r"^\|.*", "", page, flags=re.MULTILINE))} - {"d2l.split_and_load"}
    assert len(named) > 8 and all(exists(name, x) for name in named)


@pytest.mark.parametrize("function", [d2l.train, d2l.Settings, functools.partial(replace, d2l.Settings(lr=0.5))])
def test_what_is_meant(function):
    """Other rows are in the table of errors."""
    with pytest.raises(TypeError, match=r"'learning_rate'; did you mean lr\?"):
        function(learning_rate=0.1)
    with pytest.raises(ValueError, match=r"did you mean momentum\?"):
        function(optimizer="sgdm")


def test_what_is_not_similar_is_not_suggested():
    assert perhaps_meant("num_gpus", ["num_epochs"]).startswith("; here: num_gpus, --devices, ")
    assert perhaps_meant("gpuDevice", ["devices"]).startswith("; here: d2l.gpu, --devices ")  # though it is similar
    assert perhaps_meant("tpus", ["cpu", "gpu", "cpus"]) == "; did you mean cpus?"
    assert perhaps_meant("xyz", ["cpu"]) == perhaps_meant("--", ["--lr"]) == perhaps_meant("", ["lr"]) == ""
    assert not hasattr(d2l, "split_and_load") and getattr(d2l, "attach_grad", None) is None
    with pytest.raises(ImportError, match="cannot import name 'split_and_load'"):
        from d2lmgpu import split_and_load  # noqa: F401


def test_names_of_an_array(x):
    expected = dict.fromkeys(("attach_grad", "grad", "backward"), "d2l.loss_and_grads")
    expected |= {"copyto": "d2l.put", "cuda": "d2l.put", "ctx": "x.device", "as_in_ctx": "d2l.put"}
    for name, here in (expected | {"asnumpy": "d2l.to_host"}).items():
        with pytest.raises(AttributeError, match=f"; here: {here}"):
            getattr(x, name)
    with pytest.raises(AttributeError, match="^a device array has no '_repr_html_'$"):
        _ = x._repr_html_
    assert np.array_equal(d2l.to_host(copy.copy(x)), [0, 1, 2])
