"""Train a network on any number of devices: settings are checked, everything is made, and the loop runs."""

import contextlib

from ..data import check_parts, epoch_size
from ..devices import nothing_left_behind, put, to_host
from ..fashion_mnist import load_fashion_mnist
from ..live_plot import LivePlot, in_notebook
from ..locks import holding
from ..monitor import Progress
from ..networks import find_loss, try_loss
from ..networks.losses import EXAMPLES
from ..timing import Timeline
from .checks import check_files, check_ways, classes_of, elastic_settings, find_everybody, network_for
from .fingerprint import fingerprint_of
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
    """Train a network, data-parallel unless ``split`` says otherwise; returns a `Result`: ``history, params``.

    ``devices``: a list of devices (``[try_gpu(0)]`` unless given); how many, ``train(2)``: GPUs where there are some,
    otherwise CPU devices; names, ``train(["cpu:0", "cpu:1"])``; or a `Cluster`: see below. Or ``num_gpus``, as the
    textbook has it (0: one CPU device), or an ``environment``, with or without a number of devices: "auto", "cpu",
    "gpu", or "multi-gpu", all GPUs. Then the settings, each described in `Settings`: by name, ``train(devices,
    lr=0.1)`` (``epochs`` and ``allreduce`` as on the command line are known, too), or as one value,
    ``train(devices, settings)``. The same seed on the same number of devices gives the same history, bit
    for bit. ``data``: X_train, y_train, X_test, y_test, and
    maybe the names of the classes, as `load_image_data` gives them (Fashion-MNIST
    unless given); a network by name then has as many classes. Labels are whole numbers (N,), or, as the
    ``loss`` takes them, floats (N, K): one-hot or soft labels, or other targets, for K outputs.

    ``init``: where training starts: initial weights by name, or what one has: parameters, a `Model` or a `Result`, or a
    file of one; see start.py.

    ``checkpoint``: a file that is written after every epoch, after every
    ``checkpoint_steps`` steps if given, and when training is stopped; it must not
    exist, unless it is the one to resume, and no other run may be writing it.
    ``keep_best``: a file in which the best model so far is kept, by the test set (`History.best`), for `load_model`; it
    must not exist, unless a run is resumed.
    ``resume``: a checkpoint to go on from, with the same settings; on as many
    devices the run then ends as it would have without the break, bit for bit. A
    network, a schedule, a ``preprocess`` and a ``loss`` of your own are compared by what they
    do with a few examples; ``changed`` names those that may do something else, of
    "network", "schedule", "preprocess", "loss".

    ``callbacks``: `monitor.Callback` objects, which are called as training goes on
    and may end it. ``timeline``: a `Timeline` that records what the devices did when.
    ``invert``: whether the pictures in ``data``
    were inverted when they were read: it is kept in the history, and so in a checkpoint,
    so that ``d2lmgpu predict`` does the same with others. ``progress``: show a bar and a
    line an epoch; in a notebook with ipywidgets a `LivePlot`, which has a Stop button.
    ``metrics``: functions of outputs and labels, by name, that are evaluated on the test set after each
    epoch, for ``history.metrics``; they return sums over images, see metrics.py.

    Ctrl-C ends training after the current step; what was learned is returned, and
    ``history.interrupted`` says how far the run was. A run that diverges ends after
    that epoch, and ``history.diverged`` says so.

    Of a `Cluster` (``d2l.cluster()``) all processes call this, with the same arguments. The minibatch and the test
    set are split over all devices, of which each process feeds its own, and all get the same result, with the
    bits of one process that has all the devices. A file to resume from must be there for all of them; rank 0 alone
    shows the progress and writes the checkpoint, and a stop requested in any of them stops all. ``elastic``: when a
    process dies, the others go on without it, and end with the bits of a run in which nobody died; sums are exact.

    Raises TypeError for an unknown argument, ValueError for settings that make no sense, DataError if the
    data set cannot be loaded, CheckpointError for a file that is not a complete checkpoint of this run, or of one that
    was given up, OSError for one that cannot be read or written, DriftError where ``check_every`` finds devices with
    different parameters.
    """
    check_ways(ways)
    everybody, environment = find_everybody(ways.devices, ways.environment, ways.num_gpus)
    if ways.elastic:
        settings = elastic_settings(settings, everybody)
        everybody.become_elastic()
    devices, settings, callbacks = everybody.mine, settings.on(everybody), list(ways.callbacks)
    checkpoint, resume, invert, metrics = ways.checkpoint, ways.resume, bool(ways.invert), check_metrics(ways.metrics)
    speaks = everybody.rank == 0
    with nothing_left_behind(devices), contextlib.ExitStack() as held:
        if speaks:
            held.enter_context(holding(checkpoint))
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
        how = {"note": bar.note, "saved": start and start.state["history"]}
        runner = make_runner(X_train, y_train, params, everybody, network, settings, **how)
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
            wiring=runner.wiring,
        )

        if ways.progress and in_notebook():
            bar.visible = False  # the live plot says it all
            if not any(isinstance(callback, LivePlot) for callback in callbacks):
                callbacks.append(LivePlot())
        checksum = fingerprint = None
        if checkpoint or resume or everybody.size > 1:
            checksum = data_checksum(X_train, y_train)
            fingerprint = fingerprint_of(settings, X_train, y_train, network.classes)
        position = Position()
        if resume:
            position = restore(start, history, runner, checksum, fingerprint, ways.changed)
            params = start.arrays["params"]
        compare(everybody, settings, ways, test_set, params, checksum, position)

        def model_of(runner):
            params = list(map(to_host, runner.replicas[0].params))
            return Model(network, params, runner.execution.statistics()[0], classes, invert, settings.loss)

        def make_again():
            if everybody.rank == 0:
                bar.visible = bool(ways.progress)
                held.enter_context(holding(checkpoint, patience=3.0))
            runner = make_runner(X_train, y_train, params, everybody, network, settings, **how)
            return runner, make_test_set(X_test, y_test, runner, network, metrics)

        state = {"model": model_state(network, classes, invert, loss), "data": checksum, "likeness": fingerprint}
        saver = Saver(checkpoint, ways.keep_best, history, runner, state, model_of)
        for callback in callbacks:
            callback.model = lambda: model_of(saver.runner)
        timeline = ways.timeline or Timeline(devices)
        loop = Loop(runner, history, test_set, bar, saver, timeline, list(callbacks), ways.checkpoint_steps, make_again)
        try:
            with everybody.when_it_hangs(saver.in_emergency):
                loop.run(position)
            loop.surely(share_times, everybody, history)
            model = model_of(loop.runner)
            history.final_parameters_sha256 = sha256([*model.params, *model.statistics])
        finally:
            loop.runner.close()
            loop.tell("on_end", history)
            for callback in callbacks:
                vars(callback).pop("model", None)
        return Result(history, model)
