"""Train a network on any number of devices: check the settings, prepare everything, run the loop."""

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from os import PathLike
from types import SimpleNamespace
from typing import Any, NoReturn

from ..base.arguments import check_arguments
from ..cluster import Across, Cluster, check_same_on_all_ranks, gather
from ..data.fashion_mnist import load_fashion_mnist
from ..data.minibatches import check_parts, epoch_size
from ..devices import Device, isolated_errors, put
from ..devices.timeline import Timeline
from ..networks import Network, find_loss, try_loss
from ..networks.losses import EXAMPLES
from ..plans.plan import Plan
from .checks import classes_of, network_for
from .history import History, sha256
from .live_plot import LivePlot, in_notebook
from .loop import Run
from .make_runner import make_runner
from .model import Model, Result
from .monitor import Callback, Progress
from .options import check_files_of_run, check_options, find_group, first_params, start_from
from .resume import Position, data_checksum, load_run, restore
from .settings import USUAL, Settings


def train(
    devices: int | str | Device | Sequence[int | str | Device] | Cluster | None = None,
    batch_size: int | Settings = USUAL["batch_size"],
    lr: float = USUAL["lr"],
    num_epochs: int = USUAL["num_epochs"],
    algorithm: str | Callable | Across = USUAL["algorithm"],
    seed: int = USUAL["seed"],
    init: str | PathLike | Sequence | object = USUAL["init"],
    network: str | Network = USUAL["network"],
    width: float = USUAL["width"],
    loss: str | tuple[Callable, Callable] = USUAL["loss"],
    optimizer: str = USUAL["optimizer"],
    weight_decay: float = USUAL["weight_decay"],
    loads: list[float] | Sequence[float] | str | None = USUAL["loads"],
    batch_statistics: str = USUAL["batch_statistics"],
    scale_batch: bool = USUAL["scale_batch"],
    preprocess: str | Callable | None = USUAL["preprocess"],
    drop_last: bool = USUAL["drop_last"],
    warmup: float = USUAL["warmup"],
    schedule: str | Callable = USUAL["schedule"],
    flat: bool = USUAL["flat"],
    overlap: bool = USUAL["overlap"],
    prefetch: bool = USUAL["prefetch"],
    graphs: bool = USUAL["graphs"],
    precision: str = USUAL["precision"],
    sums: str = USUAL["sums"],
    split: str | Plan | None = USUAL["split"],
    pipeline: str | None = USUAL["pipeline"],
    micro_batches: int = USUAL["micro_batches"],
    *,
    data: Sequence[Any] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_steps: int | None = None,
    keep_best: str | PathLike[str] | None = None,
    resume: str | PathLike[str] | None = None,
    callbacks: Callback | Sequence[Callback] = (),
    timeline: Timeline | None = None,
    environment: str | None = None,
    num_gpus: int | None = None,
    invert: bool = False,
    progress: bool = True,
    metrics: dict[str, Callable] | None = None,
    **unknown: NoReturn,
) -> Result:
    """Train a network, data-parallel unless ``split`` says otherwise, and return a `Result`: ``history, params``.

    ``devices``: a list of devices (by default ``[try_gpu(0)]``); a number, as in ``train(2)``, of GPUs if there are any
    and otherwise of CPU devices; names, as in ``train(["cpu:0", "cpu:1"])``; or a `Cluster` (see below). Instead you
    may give ``num_gpus``, as in the textbook (0: one CPU device), or an ``environment``, with or without a number of
    devices: "auto", "cpu", "gpu", or "multi-gpu" for all GPUs.

    The settings, described in `Settings`, are given by name or in order, as in ``train(devices, 256, lr=0.1)``, or as
    one value in the place of ``batch_size``, as in ``train(devices, settings)``; what is given besides replaces its
    values. The same seed on the same number of devices gives the same history, bit for bit.

    ``data``: X_train, y_train, X_test, y_test, and optionally the names of the classes, as `load_image_data` returns
    them (by default Fashion-MNIST); a network given by name then has as many classes as the data. Labels are whole
    numbers (N,) or, if the ``loss`` accepts them, floats (N, K): one-hot or soft labels, or other targets, for K
    outputs.

    ``init``: what training starts from. This is the name of a way to draw initial weights, or your own parameters, a
    `Model`, a `Result`, or a model's file; see options.py.

    ``checkpoint``: a file that is written after every epoch, after every ``checkpoint_steps`` steps if this is given,
    and when training is stopped. The file must not exist yet, unless the run resumes from it. ``keep_best``: a file
    that keeps the best model so far on the test set (`History.best`), for `load_model`; it must not exist yet, unless a
    run is resumed. ``resume``: a checkpoint to continue from, with the same settings; on the same number of devices,
    the run then ends as it would have ended without the break, bit for bit, unless the schedule is now over another
    number of epochs, or sums are added in another order. Functions of your own are compared by their names: that they
    still do the same is up to you.

    ``callbacks``: `monitor.Callback` objects, which are called during training and may end it. ``timeline``: a
    `Timeline` that records what each device did, and when. ``invert``: whether the pictures in ``data`` were inverted
    when they were read; the history and the checkpoint keep this, so that ``d2lmgpu predict`` treats other pictures the
    same way. ``progress``: whether to show a progress bar and one line per epoch or, in a notebook with ipywidgets, a
    `LivePlot` with a Stop button. ``metrics``: a dict of functions of outputs and labels, which are evaluated on the
    test set after each epoch and recorded in ``history.metrics``; they return sums over images (see evaluation.py).

    Ctrl-C ends training after the current step; what was learned is returned, and ``history.interrupted`` says how far
    the run got. A run that diverges ends after that epoch, and ``history.diverged`` says so.

    On a `Cluster` (``d2l.cluster()``) all processes call this with the same arguments. The minibatch and the test set
    are split over all devices, and each process feeds its own devices. All processes get the same result, bit for bit
    the same as that of one process that has all the devices. All processes must be able to read the file that a run
    resumes from; only rank 0 shows the progress and writes the checkpoint, and a stop requested in one process stops
    them all.

    Raises TypeError for an unknown argument, ValueError for settings that make no sense, DataError if the data set
    cannot be loaded, CheckpointError for a file that is not a complete checkpoint of this run, or whose run was given
    up, or OSError for a file that cannot be read or written.
    """
    given = locals()  # all arguments, by name
    check_arguments("train", given.pop("unknown"), given)
    settings, options = Settings.of(given), SimpleNamespace(**given)
    check_options(options)
    group, environment = find_group(devices, environment, num_gpus)
    with isolated_errors(group.mine):
        if group.rank == 0:
            check_files_of_run(options)
        return run_to_end(*prepare(settings.on(group), options, group, environment))


def prepare(settings, options, group, environment):
    """Load and check what a `Run` is given, and put it on the devices; return it and the `Position` to go on from."""
    saved = None if options.resume is None else load_run(options.resume)
    data = load_fashion_mnist() if options.data is None else check_parts(options.data)
    X, y, X_test, y_test, *_ = data
    first, loss = group.mine[0], find_loss(settings.loss)
    given, note, settings = start_from(settings, data)
    _, network = network_for(data, settings.network, settings.width, loss, settings.batch_statistics)
    if loss.is_own:
        first.run(try_loss, loss, put(y[:EXAMPLES], first), network.classes).result()
    size = epoch_size(len(X), settings.batch_size, settings.drop_last)
    bar = Progress(settings.num_epochs, size, options.progress and group.rank == 0)
    params = first_params(given, network, settings)
    before = saved and saved.state["history"]
    runner = make_runner(X, y, params, group, network, settings, note=bar.note, saved=before)
    if isinstance(given, Model) and given.statistics:
        runner.set_statistics(given.statistics)
    if note and saved is None:
        bar.note(note)
    history = History(
        devices=group.names,
        processes=group.size,
        environment=environment,
        settings=runner.settings.recorded(),
        classes=classes_of(data),
        invert=options.invert,
        metrics={name: [] for name in options.metrics},
        peak_memory=runner.peak_memory,
    )
    test_set = runner.make_test_set(X_test, y_test, options.metrics)
    checksum = data_checksum(X, y) if options.checkpoint or options.resume or group.size > 1 else None
    if options.progress and in_notebook():
        bar.visible = False  # the live plot shows everything
        if not any(isinstance(callback, LivePlot) for callback in options.callbacks):
            options.callbacks.append(LivePlot())
    timeline = options.timeline or Timeline(group.mine)
    run = Run(options, group, data, network, loss, params, bar, runner, history, test_set, timeline, checksum)
    position = restore(run, saved) if saved else Position()
    compare_processes(run, position)
    return run, position


def run_to_end(run, position):
    """Train, from a `Position` on, and return the `Result`."""
    try:
        for callback in run.callbacks:
            callback.model = run.model
        run.run(position)
        share_times(run.group, run.history)
        trained = run.model()
        run.history.final_parameters_sha256 = sha256([*trained.params, *trained.statistics])
    finally:
        run.runner.close()
        run.tell("on_end", run.history)
        for callback in run.options.callbacks:
            vars(callback).pop("model", None)
    return Result(run.history, trained)


def compare_processes(run, position):
    """Raise ValueError in all processes of a `Cluster` if they begin with different settings, data or parameters."""
    group, settings, options = run.group, run.settings, run.options
    if group.world is None:
        return
    what = settings.recorded(fields(settings))
    what |= {"the number of test images": run.test_set.size, "metrics": sorted(options.metrics), "position": position}
    what |= {"checkpoint_steps": options.checkpoint_steps}
    what |= {name: getattr(options, name) is not None for name in ("checkpoint", "keep_best")}
    what["the checksum of the training set"] = run.checksum[:16]
    what["the checksum of the initial parameters"] = sha256(run.params)[:16]
    check_same_on_all_ranks(group.world, what, group.patience, "the comparison of what they train")


def share_times(group, history):
    """Make ``history`` the same in all processes of a `Cluster`: rank 0's seconds, and how busy all devices were.

    The seconds of ``phases`` are means over all devices.
    """
    if group.size == 1:
        return
    speed = history.examples_per_second
    own = [*history.seconds_per_epoch, math.nan if speed is None else speed, *history.phases.values()]
    rows = gather(group, [[*own, worked] for worked in history.utilisation.values()])
    epochs = len(history.seconds_per_epoch)
    history.seconds_per_epoch = rows[0, :epochs].tolist()
    history.examples_per_second = None if speed is None else float(rows[0, epochs])
    history.phases = dict(zip(history.phases, rows[:, epochs + 1 : -1].mean(axis=0).tolist(), strict=True))
    history.utilisation = dict(zip(group.names, rows[:, -1].tolist(), strict=True))
