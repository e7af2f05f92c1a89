"""What an item is, and what the checks of items have in common."""

import contextlib
import functools
import io
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.networks import Conv2d, Dense, Flatten, MaxPool2d, ReLU, sequential

DOCUMENTS = ("guide", "japanese", "loops", "article", "textbook", "others")
"""MATLAB's guide, its Japanese edition, MATLAB's page on custom training loops, an article on TensorFlow, the chapter.

The last is no document: it is what PyTorch, and TensorFlow's own guide, have beyond those.
"""

NOT_HERE = "not here: "
"""How ``here`` begins where this project does not do it: then comes why."""


class Item(NamedTuple):
    """What one of the documents lets its reader do, and what does it here, both as Markdown.

    ``check``: a function that asserts it, in an empty folder, on 60 images of Fashion-MNIST; its arguments are names of
    pytest's fixtures. Or a test that shows it: "test_file.py::test_name". None for what this project does not do.
    """

    document: str
    item: str
    here: str
    check: Callable | str | None


ITEMS = []


def item(document, item, here, check=None):
    """Enter an `Item`. Without a ``check`` the function that it decorates is the check, unless it is `NOT_HERE`."""

    def enter(check):
        ITEMS.append(Item(document, item, here, check))
        return check

    return enter if check is None and not here.startswith(NOT_HERE) else enter(check)


def items_of(document):
    """The function `item` for a document."""
    return functools.partial(item, document)


QUICK = {"num_epochs": 1, "batch_size": 24, "lr": 0.05, "init": "he", "progress": False}
"""Settings of a run of three steps, the last of which has 12 examples."""

OPTIONS = "--epochs 1 --batch-size 24 --lr 0.05 --init he"
"""The same for the command ``train``."""

TINY = sequential((1, 28, 28), Conv2d(3, 5), ReLU(), MaxPool2d(4), Flatten(), Dense(10))
"""A network that trains in a moment."""


def trained(devices=None, **settings):
    """What `train` returns for these settings beside the `QUICK` ones."""
    return d2l.train(devices, **QUICK | settings)


@functools.cache
def on_one(**settings):
    """What one device learns with these settings; once in a run of the tests, for comparisons."""
    return trained([d2l.cpu(0)], **settings)


def command(text):
    """What a command prints, which ends with success."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert cli.main(shlex.split(text)) == 0
    return printed.getvalue()


def result_of(text):
    """What a command writes as JSON."""
    command(f"{text} --json result.json")
    return json.loads(Path("result.json").read_text("utf-8"))


def refused(error, call, *words):
    """Assert that a call raises such an error, in whose message these words are."""
    try:
        call()
    except error as raised:
        assert all(word in str(raised) for word in words), raised
    else:
        raise AssertionError(f"no {error.__name__}")


def close(arrays, others):
    """Assert that arrays are the same up to rounding."""
    for one, other in zip(arrays, others, strict=True):
        np.testing.assert_allclose(d2l.to_host(one), d2l.to_host(other), rtol=1e-3, atol=2e-5)


def is_picture(name):
    """Assert that a file is a PNG."""
    assert Path(name).read_bytes().startswith(b"\x89PNG")
