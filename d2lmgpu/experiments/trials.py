"""The trials of a sweep: dicts of settings, all checked before the first one is trained, and how one is trained.

A trial is plain data, from its settings to the resulting row, so that it can run anywhere.

Your own network becomes data in a trial, with a name, so that other processes can rebuild it and files can keep it:

    {"name": "small", "input_shape": [1, 28, 28], "layers": [["Flatten", {}], ["Dense", {"outputs": 10}]]}
"""

import functools
import hashlib
import itertools
import os
import threading
import warnings
from dataclasses import fields

from ..base.arguments import check_list, check_name, plain, shown
from ..base.files import as_json
from ..base.text import legible, one_line
from ..data.fashion_mnist import load_fashion_mnist
from ..data.minibatches import check_limit, check_parts, first_examples
from ..devices import choose_indices
from ..networks import Network, described, restored
from ..training import Settings, train
from ..training.checks import find_network

DEFAULTS = {"devices": None, "environment": "auto", "limit": None}
DEFAULTS |= {about.name: about.default for about in fields(Settings)}
"""All settings of a trial: those of `Settings`, the number of devices (or which), their environment, and `limit`."""

_turns = {}
"""One lock per process, since trials in several threads would train on the same devices, in the same memory.

A forked process gets a new lock: one held by another thread of the parent would never be released.
"""

fashion_mnist = functools.cache(load_fashion_mnist)


def grid(**values) -> list[dict]:
    """All combinations of the values, as a list of dicts: the values of the last name change fastest.

    ``grid(devices=[1, 2], lr=[0.1, 0.2], num_epochs=3)`` makes four trials: a value
    that is not a list is the same in all trials. You may name your own networks for
    tables and plots: ``grid(network={"small": network, "LeNet": "lenet"})``.

    Raises ValueError for an empty list, and for networks whose layers are your own functions.
    """
    lists = {name: _values(name, value) for name, value in values.items()}
    return [dict(zip(lists, chosen, strict=True)) for chosen in itertools.product(*lists.values())]


def _values(name, value):
    if name == "network" and isinstance(value, dict) and "layers" not in value:
        value = [_as_data(network, called) for called, network in value.items()]
    value = value if isinstance(value, Network) else plain(value)  # a network is a tuple of layers
    if value == []:
        raise ValueError(f"grid: the list of {name} is empty")
    return value if isinstance(value, list) else [value]


def complete_trials(trials):
    """Each trial with all its settings: those that it does not give are taken from `DEFAULTS`.

    Raises ValueError for an unknown setting, for values that cannot be trained with, and for duplicate trials.
    """
    complete = []
    for number, trial in enumerate(check_list("trials", trials, of="dicts of settings", one=dict), 1):
        try:
            settings = complete_trial(trial)
        except (TypeError, ValueError) as error:
            raise ValueError(f"trial {number}: {error}") from None
        if settings in complete:
            raise ValueError(f"trials {complete.index(settings) + 1} and {number} are the same; give each value once")
        complete.append(settings)
    if not complete:
        raise ValueError("there are no trials; d2lmgpu.grid(lr=[0.1, 0.2]) makes two")
    return complete


def complete_trial(trial):
    """A trial with all its settings, for any machine.

    Raises ValueError or TypeError for an unknown setting, and for values that cannot be trained with.
    """
    if not isinstance(trial, dict):
        raise ValueError(f"{shown(trial)} is not a dict of settings, such as {{'lr': 0.1, 'devices': 2}}")
    settings = dict(DEFAULTS)
    for name, value in trial.items():
        check_name("setting", name, DEFAULTS)
        settings[name] = _as_data(value) if name == "network" else plain(value)
        as_json(settings[name])  # trials go to other processes and to files
    if settings["devices"] is None and settings["environment"] != "multi-gpu":
        settings["devices"] = 1
    given = settings | {"network": network_of(settings["network"])}
    Settings(**{about.name: given[about.name] for about in fields(Settings)})
    find_network(given["network"], width=settings["width"], batch_statistics=settings["batch_statistics"])
    check_limit(settings["limit"])
    choose_indices("cpu", settings["devices"])
    return settings


def _as_data(network, name=None):
    """Your own network as data in a trial; ``name``: for lines and plots, by default derived from its layers."""
    if isinstance(network, dict):
        network, name = network_of(network), network.get("name")
    if not isinstance(network, Network):
        return network
    description = described(network)
    if description is None:
        raise ValueError(
            "a network whose layers are your own functions cannot be sent to other processes or kept in a file; "
            "build it from the library's layers, or train it with train"
        )
    name = name or f"custom-{hashlib.sha256(as_json(description).encode()).hexdigest()[:6]}"
    return {"name": name} | description


def network_of(setting):
    """The network for `Settings` from a trial's setting: a name, or the network that the data describe."""
    if not isinstance(setting, dict):
        return setting
    return restored({name: setting[name] for name in setting if name != "name"})


def varying(trials):
    """The names of the settings in which trials differ, in the order of `DEFAULTS`."""
    return [name for name in DEFAULTS if any(settings[name] != trials[0][name] for settings in trials)]


def describe(settings, names):
    """``devices 2, lr 0.1``: the settings with these names on a line."""
    return ", ".join(f"{name} {show(settings[name])}" for name in names)


def show(value):
    """A setting's value as a person would write it; a network of your own is shown by its name."""
    if isinstance(value, float):
        return f"{value:g}"
    return legible(value["name"] if isinstance(value, dict) else str(value))


def run_trial(settings, data=None, invert=False, model=None) -> dict:
    """Train with these ``settings``, a trial of `grid`; return a row, a dict that JSON can represent.

    The row has the complete ``settings``, with defaults for those that were not given, a ``status``, a ``message``
    (None, or a line on why it diverged or failed), the ``history`` of `train` as a dict, and the file of its ``model``,
    or None. The status is "done" (trained to the end), "diverged" (given up by `train`), "interrupted" (by Ctrl-C) or
    "failed" (an error, without a history).

    ``data``: as in `train`; by default Fashion-MNIST, read once in each process. ``invert``: as in `train`. ``model``:
    a file in which the model is saved if the trial is done.

    It raises no errors: the row reports them.
    """
    row = make_row(settings, "failed")
    with _turns.setdefault(os.getpid(), threading.Lock()), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # from NumPy, about diverging runs
        try:
            row["settings"] = complete_trial(settings)
            given = row["settings"] | {"network": network_of(row["settings"]["network"])}
            data = first_examples(parts_or_fashion_mnist(data), given.pop("limit"))
            result = train(data=data, invert=invert, progress=False, **given)
            history = result.history
            status = next((name for name in ("diverged", "interrupted") if getattr(history, name)), "done")
            if status == "done" and model is not None:
                result.model.save(model)
                row["model"] = model
            return row | {"status": status, "message": history.diverged, "history": history.as_dict()}
        except Exception as error:
            return row | {"message": one_line(error)}


def parts_or_fashion_mnist(data):
    """The parts of a data set, or for None of Fashion-MNIST."""
    return check_parts(fashion_mnist() if data is None else data)


def make_row(settings, status, message=None, history=None):
    """A row as `run_trial` describes it."""
    return {"settings": settings, "status": status, "message": message, "history": history, "model": None}
