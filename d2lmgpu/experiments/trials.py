"""The trials of a sweep: from the settings of one to its row of results, and the file that keeps the rows.

A trial is a dict of settings and a row a dict of results. Both are plain data, so that a trial can be trained anywhere.
`grid` makes trials, `complete_trials` checks them before the first one is trained, and `run_trial` trains one.

Your own network becomes data in a trial, with a name, so that other processes can rebuild it and files can keep it:

    {"name": "small", "input_shape": [1, 28, 28], "layers": [["Flatten", {}], ["Dense", {"outputs": 10}]]}

A results file has a row on each line, so that the same sweep can continue where it stopped:

    {"format": "d2lmgpu sweep", "version": 2, "data": null}
    {"settings": {...}, "status": "done", "message": null, "history": {...}, "model": null}

A row is identified by all its settings. Rows for other settings stay in the file, so a grid can grow. ``data`` is null
for Fashion-MNIST; otherwise it holds checksums. If a program is killed while it writes a row, that row is lost.
"""

import functools
import hashlib
import itertools
import os
import threading
import warnings
from dataclasses import fields
from pathlib import Path

from ..base.arguments import check_list, check_name, check_path, plain, shown
from ..base.files import as_json, check_writable, is_stream, naming, read_json, write_file
from ..base.text import legible, one_line
from ..data.fashion_mnist import load_fashion_mnist
from ..data.minibatches import check_limit, check_parts, first_examples
from ..devices import choose_indices
from ..networks import Network, described, restored
from ..training import Settings, train
from ..training.checks import find_network, of_kind
from ..training.history import HISTORY

_WHERE_AND_WHAT = {"devices": None, "environment": "auto", "limit": None}
DEFAULTS = _WHERE_AND_WHAT | {about.name: about.default for about in fields(Settings)}
"""The default of every setting that a trial may give: those of `Settings`, and on what and how much it trains."""

_FORMAT = {"format": "d2lmgpu sweep", "version": 2}

_turn = threading.Lock()
"""Trials in several threads take turns, since they train on the same devices, in the same memory."""

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
    """The list of values that ``value`` stands for: a list's own, or itself. A dict has networks by their names."""
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
    given = rebuilt(settings)
    Settings(**{about.name: given[about.name] for about in fields(Settings)})
    find_network(given["network"], width=settings["width"], batch_statistics=settings["batch_statistics"])
    check_limit(settings["limit"])
    choose_indices("cpu", settings["devices"])
    return settings


def rebuilt(settings):
    """The settings of a trial with its network rebuilt from data: a `Network`, or the name of one."""
    network = settings["network"]
    return settings | {"network": restored(network) if isinstance(network, dict) else network}


def _as_data(network, name=None):
    """Your own network as data in a trial; ``name``: for lines and plots, by default derived from its layers."""
    if isinstance(network, dict):
        network, name = restored(network), network.get("name")
    if not isinstance(network, Network):
        return network
    description = described(network)
    if description is None:
        raise ValueError("a network whose layers are your own functions cannot be sent or kept; train it with train")
    name = name or f"custom-{hashlib.sha256(as_json(description).encode()).hexdigest()[:6]}"
    return {"name": name} | description


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
    with _turn, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # from NumPy, about diverging runs
        try:
            row["settings"] = complete_trial(settings)
            given = rebuilt(row["settings"])
            data = first_examples(parts_from(data), given.pop("limit"))
            result = train(data=data, invert=invert, progress=False, **given)
            history = result.history
            status = "diverged" if history.diverged else "interrupted" if history.interrupted else "done"
            if status == "done" and model is not None:
                result.model.save(model)
                row["model"] = model
            return row | {"status": status, "message": history.diverged, "history": history.as_dict()}
        except Exception as error:
            return row | {"message": one_line(error)}


def parts_from(data):
    """The parts of a data set, or for None of Fashion-MNIST."""
    return check_parts(fashion_mnist() if data is None else data)


def make_row(settings, status, message=None, history=None):
    """A row as `run_trial` describes it."""
    return {"settings": settings, "status": status, "message": message, "history": history, "model": None}


def open_results(path, data):
    """The latest row of each trial in a results file, which is created if it does not exist.

    ``data``: checksums, or None. Raises ValueError for a file that is not a sweep's, is damaged, or is for other data
    (it stays unchanged), OSError if it could not be written.
    """
    check_path("results", path)
    check_writable(path)
    known, rows = _read(path) if os.path.exists(path) else (data, [])
    if known != data:
        raise ValueError(f"results {path} are for other data; give another file")
    lines = [_FORMAT | {"data": data}, *rows]
    write_file(path, lambda file: file.writelines(map(_line, lines)))  # without half a row at the end
    return rows


def add_row(path, row):
    """Add a row at the end of a file."""
    with naming(path), open(path, "ab") as file:
        file.write(_line(row))


def _line(value):
    return as_json(value).encode() + b"\n"


def load_sweep(path) -> list[dict]:
    """The rows that a sweep has kept in a file, in the order in which the trials first ended.

    Raises ValueError for a file that is not a sweep's results file, OSError if it cannot be read.
    """
    check_path("results", path)
    return _read(path)[1]


def _read(path):
    """What a file says of its data, and the latest row of each trial, with defaults for settings that the file has not.

    Raises ValueError if it is not a results file that this version can read.
    """
    lines = [] if is_stream(path) else Path(path).read_bytes().split(b"\n")[:-1]  # each line that has an end
    about, *rows = map(read_json, lines or [b""])
    if not isinstance(about, dict) or not _FORMAT.items() <= about.items():
        raise ValueError(f"results {path}: not a sweep's results file, or damaged, or of another version; give another")
    latest = {}
    try:
        for row in rows:
            history = row["history"] and of_kind("history", row["history"], HISTORY)
            settings = complete_trial(row["settings"])
            latest[as_json(settings)] = row | {"settings": settings, "history": history}
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"results {path}: its rows are damaged ({error}); give another file") from None
    return about.get("data"), list(latest.values())
