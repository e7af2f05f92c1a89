"""What the programs have in common: a quick run, a command, and what is asserted of results."""

import contextlib
import functools
import io
import json
import shlex
from pathlib import Path

import numpy as np

import d2lmgpu as d2l
from d2lmgpu import cli
from d2lmgpu.networks import Conv2d, Dense, Flatten, MaxPool2d, ReLU, sequential

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
def once(devices, **settings):
    """The same, for all programs that only look at it. Not where there are cards."""
    return trained(devices, **settings)


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


def cpus(k):
    return [d2l.cpu(i) for i in range(k)]
