"""Settings: one owner, from which everything else is made."""

import inspect
from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from test_training import quick

import d2lmgpu as d2l
from d2lmgpu.cli import COMMANDS
from d2lmgpu.cli.parser import make_parser
from d2lmgpu.experiments import DEFAULTS
from d2lmgpu.networks import Dense, Flatten, sequential
from d2lmgpu.training.fields import cli_name

NAMES = [about.name for about in fields(d2l.Settings)]


def test_a_setting_is_everywhere():
    """An argument of train with this default, a line of the docstring, an option of the commands, a row's column."""
    parsers = make_parser(COMMANDS)[1].choices
    for about in fields(d2l.Settings):
        assert f"{about.name} = {about.default!r}: {about.metadata['help']}" in d2l.Settings.__doc__
        assert about.metadata["recorded"] == (cli_name(about) in d2l.Settings().recorded())
        assert DEFAULTS[about.name] == about.default
        no = "no-" if about.default is True else ""
        for command in ("train", "sweep"):
            assert f"--{no}{cli_name(about)}".replace("_", "-") in parsers[command]._option_string_actions


def test_train_has_every_setting_in_its_signature():
    """In their order, of their types, and with their defaults, as one reads them."""
    _, first, *others = inspect.signature(d2l.train).parameters.values()
    told = [(each.name, each.annotation, repr(each.default)) for each in others]
    expected = [(about.name, about.type, repr(about.default)) for about in fields(d2l.Settings)]
    assert [("batch_size", int, repr(first.default)), *told][: len(expected)] == expected
    assert first.annotation == int | d2l.Settings


def test_settings_as_one_value_and_by_name(small):
    settings = d2l.Settings(batch_size=50, lr=0.1, num_epochs=1, init="he", seed=3, overlap=True)
    devices = [d2l.cpu(0), d2l.cpu(1)]
    runs = [
        d2l.train(devices, settings, data=small_data(small), progress=False),
        d2l.train(devices, **named(settings), data=small_data(small), progress=False),
        d2l.train(devices, 50, 0.1, 1, init="he", seed=3, overlap=True, data=small_data(small), progress=False),
        d2l.train(devices, replace(settings, lr=5), lr=0.1, data=small_data(small), progress=False),
        d2l.train(
            devices, replace(settings, width=0.5), width=1, data=small_data(small), progress=False
        ),  # the default
    ]
    assert len({run.history.final_parameters_sha256 for run in runs}) == 1
    for run in runs:
        assert run.history.settings == settings.recorded()
        assert (run.history.batch_size, run.history.epochs, run.history.allreduce) == (50, 1, "ring")


def small_data(small):
    X, y, X_test, y_test = small
    return X[:200], y[:200], X_test, y_test


def named(settings):
    return {name: getattr(settings, name) for name in NAMES}


def test_a_value():
    settings = d2l.Settings(np.int64(16), lr=np.float32(0.5), loads=np.array([1, 2]), drop_last=np.True_)
    assert settings == d2l.Settings(batch_size=16, lr=0.5, loads=(1, 2), drop_last=1)
    assert (type(settings.batch_size), type(settings.lr), type(settings.drop_last)) == (int, float, bool)
    with pytest.raises(FrozenInstanceError):
        settings.lr = 1
    with pytest.raises(ValueError, match="lr is 0; it should be a finite number, above 0"):
        replace(settings, lr=0)


def test_what_devices_make_of_them():
    settings = d2l.Settings(batch_size=10, lr=0.25, scale_batch=True, loads=[1, 2, 0])
    here = settings.on([d2l.cpu(i) for i in range(3)])
    assert (here.batch_size, here.lr, here.scale_batch) == (30, 0.75, False)
    with pytest.raises(ValueError, match="loads .*: give 2 numbers"):
        settings.on([d2l.cpu(0), d2l.cpu(1)])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"learning_rates": 1}, "train: there is no argument 'learning_rates'"),
        ({"sheduel": 1}, "train: there is no argument 'sheduel'; did you mean schedule?"),
        ({"batch_sizes": 1}, "did you mean batch_size?"),
    ],
)
def test_unknown_names(arguments, message):
    with pytest.raises(TypeError) as error:
        d2l.train([d2l.cpu(0)], **arguments)
    assert message in str(error.value)


def test_what_a_history_tells_of_what_is_no_name(small):
    network = sequential((1, 28, 28), Flatten(), Dense(10))

    def doubled(X, y, rng):
        return X, y

    result = quick([d2l.cpu(0)], small, num_epochs=1, network=network, preprocess=doubled, schedule=lambda part: 1.0)
    told = result.history.as_dict()
    assert (told["network"], told["preprocess"], told["schedule"]) == ("custom", "doubled", "custom")
    assert d2l.History.from_dict(told) == result.history
    with pytest.raises(AttributeError, match="a history has no momentum"):
        _ = result.history.momentum
