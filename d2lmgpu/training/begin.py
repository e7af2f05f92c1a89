"""Train a network on any number of devices: check the settings, prepare everything, run the loop."""

from pathlib import Path

from ..data import check_parts, epoch_size
from ..devices import nothing_left_behind, put, to_host
from ..devices.trials import tell
from ..fashion_mnist import load_fashion_mnist
from ..live_plot import LivePlot, in_notebook
from ..monitor import Progress
from ..networks import find_loss, try_loss
from ..networks.losses import EXAMPLES
from ..timing import Timeline
from .checks import check_files, check_ways, classes_of, find_everybody, network_for
from .history import History, sha256
from .loop import Loop
from .metrics import check_metrics
from .model import Model, Result, model_state
from .resume import Position, data_checksum, load_run, restore
from .runner import make_runner, make_test_set
from .saving import Saver
from .signature import Arguments, called_with
from .start import first_params, start_from
from .together import compare, share_times


@called_with(Arguments)
def train(settings, ways) -> Result:
    """Train a network, data-parallel unless ``split`` says otherwise, and return a `Result`: ``history, params``.

    ``devices``: a list of devices (by default ``[try_gpu(0)]``); a number, as in ``train(2)``, of GPUs if there are any
    and otherwise of CPU devices; names, as in ``train(["cpu:0", "cpu:1"])``; or a `Cluster` (see below). Instead you
    may give ``num_gpus``, as in the textbook (0: one CPU device), or an ``environment``, with or without a number of
    devices: "auto", "cpu", "gpu", or "multi-gpu" for all GPUs.

    The settings, described in `Settings`, are given by name, as in ``train(devices, lr=0.1)``, or as one value, as in
    ``train(devices, settings)``; the command line's names ``epochs`` and ``allreduce`` work, too. The same seed on the
    same number of devices gives the same history, bit for bit.

    ``data``: X_train, y_train, X_test, y_test, and optionally the names of the classes, as `load_image_data` returns
    them (by default Fashion-MNIST); a network given by name then has as many classes as the data. Labels are whole
    numbers (N,) or, if the ``loss`` accepts them, floats (N, K): one-hot or soft labels, or other targets, for K
    outputs.

    ``init``: what training starts from. This is the name of a way to draw initial weights, or your own parameters, a
    `Model`, a `Result`, or a model's file; see start.py.

    ``checkpoint``: a file that is written after every epoch, after every ``checkpoint_steps`` steps if this is given,
    and when training is stopped. The file must not exist yet, unless the run resumes from it. ``keep_best``: a file
    that keeps the best model so far on the test set (`History.best`), for `load_model`; it must not exist yet, unless a
    run is resumed. ``resume``: a checkpoint to continue from, with the same settings; on the same number of devices,
    the run then ends as it would have ended without the break, bit for bit. A note says why not, if the schedule is now
    over another number of epochs or sums are added in another order. Functions of your own are compared by their names:
    that they still do the same is up to you.

    ``callbacks``: `monitor.Callback` objects, which are called during training and may end it. ``timeline``: a
    `Timeline` that records what each device did, and when. ``invert``: whether the pictures in ``data`` were inverted
    when they were read; the history and the checkpoint keep this, so that ``d2lmgpu predict`` treats other pictures the
    same way. ``progress``: whether to show a progress bar and one line per epoch or, in a notebook with ipywidgets, a
    `LivePlot` with a Stop button. ``metrics``: a dict of functions of outputs and labels, which are evaluated on the
    test set after each epoch and recorded in ``history.metrics``; they return sums over images (see metrics.py).

    Ctrl-C ends training after the current step; what was learned is returned, and ``history.interrupted`` says how far
    the run got. A run that diverges ends after that epoch, and ``history.diverged`` says so.

    On a `Cluster` (``d2l.cluster()``) all processes call this with the same arguments. The minibatch and the test set
    are split over all devices, and each process feeds its own devices. All processes get the same result, bit for bit
    the same as that of one process that has all the devices. All processes must be able to read the file that a run
    resumes from; only rank 0 shows the progress and writes the checkpoint, and a stop requested in one process stops
    them all.

    Raises TypeError for an unknown argument, ValueError for settings that make no sense, DataError if the data set
    cannot be loaded, CheckpointError for a file that is not a complete checkpoint of this run, or whose run was given
    up, OSError for a file that cannot be read or written, DriftError if ``check_every`` finds devices with different
    parameters.
    """
    ways = check_ways(ways)
    everybody, environment = find_everybody(ways.devices, ways.environment, ways.num_gpus)
    devices, settings, callbacks = everybody.mine, settings.on(everybody), ways.callbacks
    checkpoint, resume, invert, metrics = ways.checkpoint, ways.resume, ways.invert, check_metrics(ways.metrics)
    speaks = everybody.rank == 0
    with nothing_left_behind(devices):
        if speaks:
            check_files(checkpoint, ways.keep_best, resume)
        start = None if resume is None else load_run(resume)
        data = load_fashion_mnist() if ways.data is None else check_parts(ways.data)
        X_train, y_train, X_test, y_test, *_ = data
        loss, classes = find_loss(settings.loss), classes_of(data)
        given, note, settings = start_from(settings, data)
        _, network = network_for(data, settings.network, settings.width, loss, settings.batch_statistics)
        if loss.is_own:
            devices[0].run(try_loss, loss, put(y_train[:EXAMPLES], devices[0]), network.classes).result()
        size = epoch_size(len(X_train), settings.batch_size, settings.drop_last)
        bar = Progress(settings.num_epochs, size, ways.progress and speaks)
        params = first_params(given, network, settings)
        saved = start and start.state["history"]
        runner = make_runner(X_train, y_train, params, everybody, network, settings, note=bar.note, saved=saved)
        settings = runner.settings
        if isinstance(given, Model) and given.statistics:
            runner.execution.set_statistics([given.statistics] * len(devices))
        if note and resume is None:
            bar.note(note)
        test_set = make_test_set(X_test, y_test, runner, network, metrics)
        history = History(
            devices=everybody.names,
            processes=everybody.size,
            environment=environment,
            settings=settings.recorded(),
            classes=classes,
            invert=invert,
            metrics={name: [] for name in metrics},
            peak_memory=runner.peak_memory,
        )

        if ways.progress and in_notebook():
            bar.visible = False  # the live plot shows everything
            if not any(isinstance(callback, LivePlot) for callback in callbacks):
                callbacks.append(LivePlot())
        checksum = data_checksum(X_train, y_train) if checkpoint or resume or everybody.size > 1 else None
        position = Position()
        if resume:
            position = restore(start, history, runner, network, checksum)
            params = start.arrays["params"]
            if speaks and ways.keep_best and history.best and not Path(ways.keep_best).exists():
                tell(f"keep_best {ways.keep_best} begins with what is better than epoch {history.best['epoch']} was")
        compare(everybody, settings, ways, test_set, params, checksum, position)

        def model():
            params = list(map(to_host, runner.replicas[0].params))
            return Model(network, params, runner.execution.statistics()[0], classes, invert, settings.loss)

        state = {"model": model_state(network, classes, invert, loss), "data": checksum}
        saver = Saver(checkpoint, ways.keep_best, history, runner, state, model)
        for callback in callbacks:
            callback.model = model
        timeline = ways.timeline or Timeline(devices)
        watched = bar, saver, timeline, list(callbacks)
        loop = Loop(runner, history, test_set, *watched, ways.checkpoint_steps, data)
        try:
            loop.run(position)
            share_times(everybody, history)
            trained = model()
            history.final_parameters_sha256 = sha256([*trained.params, *trained.statistics])
        finally:
            runner.close()
            loop.tell("on_end", history)
            for callback in callbacks:
                vars(callback).pop("model", None)
        return Result(history, trained)
