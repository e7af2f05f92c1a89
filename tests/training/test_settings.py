"""Settings: one owner, from which everything else is made; and learning rates by time."""

import inspect
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from runs import DATA, PLAIN, brief, cpus

import d2lmgpu as d2l
from d2lmgpu.cli import COMMANDS
from d2lmgpu.cli.options import make_parser
from d2lmgpu.experiments import DEFAULTS
from d2lmgpu.networks.optimizers import learning_rates
from d2lmgpu.training.checks import cli_name


def test_a_setting_is_everywhere():
    """An argument of train with this default, a line of the docstring, an option of the commands, a row's column."""
    parsers = make_parser(COMMANDS)[1].choices
    _, first, *others = inspect.signature(d2l.train).parameters.values()
    told = [("batch_size", int, repr(first.default))]
    told += [(each.name, each.annotation, repr(each.default)) for each in others]
    assert first.annotation == int | d2l.Settings
    for about, argument in zip(fields(d2l.Settings), told, strict=False):  # in this order; other arguments follow
        assert argument == (about.name, about.type, repr(about.default))
        assert f"{about.name} = {about.default!r}: {about.metadata['help']}" in d2l.Settings.__doc__
        assert about.metadata["recorded"] == (cli_name(about) in d2l.Settings().recorded())
        assert DEFAULTS[about.name] == about.default
        no = "no-" if about.default is True else ""
        for command in ("train", "sweep"):
            assert f"--{no}{cli_name(about)}".replace("_", "-") in parsers[command]._option_string_actions


def test_settings_as_one_value_and_by_name():
    settings = d2l.Settings(batch_size=25, lr=0.1, num_epochs=1, init="he", seed=3, overlap=True, network=PLAIN)
    by_name = {about.name: getattr(settings, about.name) for about in fields(settings)}
    more = {"data": DATA, "progress": False}
    runs = [
        d2l.train(cpus(2), settings, **more),
        d2l.train(cpus(2), **by_name, **more),
        d2l.train(cpus(2), 25, 0.1, 1, init="he", seed=3, overlap=True, network=PLAIN, **more),
        d2l.train(cpus(2), replace(settings, lr=5), lr=0.1, **more),
        d2l.train(cpus(2), replace(settings, init="normal"), init="he", **more),
        d2l.train(cpus(2), replace(settings, weight_decay=0.5), weight_decay=0, **more),  # the default
    ]
    assert len({run.history.final_parameters_sha256 for run in runs}) == 1
    for run in runs:
        assert run.history.settings == settings.recorded()
        assert (run.history.batch_size, run.history.epochs, run.history.allreduce) == (25, 1, "ring")


def test_a_value():
    settings = d2l.Settings(np.int64(16), lr=np.float32(0.5), loads=np.array([1, 2]), drop_last=np.True_)
    assert settings == d2l.Settings(batch_size=16, lr=0.5, loads=(1, 2), drop_last=1)
    assert (type(settings.batch_size), type(settings.lr), type(settings.drop_last)) == (int, float, bool)
    with pytest.raises(FrozenInstanceError):
        settings.lr = 1
    here = d2l.Settings(batch_size=10, lr=0.25, scale_batch=True, loads=[1, 2, 0]).on(cpus(3))
    assert (here.batch_size, here.lr, here.scale_batch) == (30, 0.75, False)
    params = d2l.init_params()
    settings = d2l.Settings(init=params)
    assert settings == settings and settings != d2l.Settings(init=params) and "init=<8 arrays>" in repr(settings)


def test_what_a_history_tells_of_what_is_no_name():
    def doubled(X, y, rng):
        return X, y

    result = brief(cpus(1), num_epochs=1, preprocess=doubled, schedule=lambda part: 1.0)
    told = result.history.as_dict()
    assert (told["network"], told["preprocess"], told["schedule"]) == ("custom", "doubled", "custom")
    assert d2l.History.from_dict(told) == result.history


COSINE = 0.4 * (1 + np.cos(np.pi * np.arange(40) / 40))


@pytest.mark.parametrize(
    "steps, num_epochs, settings, expected",
    [
        (7, 3, {}, [0.8] * 21),
        (4, 3, {"warmup": 2}, [*(0.8 * np.arange(1, 9) / 8), *[0.8] * 4]),
        (4, 2, {"warmup": 0.5}, [0.4, *[0.8] * 7]),
        (10, 4, {"schedule": "cosine"}, COSINE),
        (10, 5, {"schedule": "cosine", "warmup": 1}, [*(0.08 * np.arange(1, 11)), *COSINE]),
        (5, 4, {"schedule": "step"}, [0.8] * 10 + [0.08] * 10),
        (5, 5, {"warmup": 1, "schedule": "step"}, [0.16, 0.32, 0.48, 0.64, 0.8] + [0.8] * 10 + [0.08] * 10),
        (2, 2, {"schedule": lambda progress: 1 - progress}, [0.8, 0.6, 0.4, 0.2]),
        (2, 3, {"warmup": 1, "schedule": lambda progress: 0.5 + progress}, [0.4, 0.8, 0.4, 0.6, 0.8, 1.0]),
    ],
)
def test_learning_rates(steps, num_epochs, settings, expected):
    """The first factor of a schedule of one's own, after the warm-up, need not be 1."""
    rates = [learning_rates(0.8, epoch, steps, num_epochs, **settings) for epoch in range(num_epochs)]
    np.testing.assert_allclose(np.concatenate(rates), expected, rtol=1e-12)
