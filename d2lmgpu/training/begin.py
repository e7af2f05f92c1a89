"""Train a network on any number of devices: settings are checked, everything is made, and the loop runs."""

from ..arguments import check_path, plain
from ..checkpoints import save_checkpoint
from ..data import check_parts, epoch_order, epoch_size
from ..devices import check_devices, nothing_left_behind, to_host, try_gpu
from ..fashion_mnist import load_fashion_mnist
from ..live_plot import LivePlot, in_notebook
from ..monitor import Progress
from ..networks import init_params
from ..output import holding
from ..timing import Timeline
from .accuracy import TestSet
from .by_name import takes_settings
from .checks import check_checkpoint, check_data, check_statistics, check_ways, find_network, image_shape
from .history import History, Result, sha256
from .likeness import check_changed, likeness
from .loop import Loop
from .model import Model, model_state
from .resume import Position, data_checksum, restore, snapshot
from .runner import make_runner
from .saved import load_run


@takes_settings
def train(
    devices,
    settings,
    *,
    data=None,
    checkpoint=None,
    checkpoint_steps=None,
    resume=None,
    changed=(),
    callbacks=(),
    timeline=None,
    environment=None,
    invert=False,
    progress=True,
):
    """Train a network data-parallel; returns a `Result`: ``history, params``.

    ``devices``: a list of devices (``[try_gpu(0)]`` unless given). Then the settings, each
    described in `Settings`: by name, ``train(devices, lr=0.1)``, or as one value,
    ``train(devices, settings)``. The same seed on the same number of devices gives the same history, bit
    for bit. ``data``: X_train, y_train, X_test, y_test, and
    maybe the names of the classes, as `load_image_data` gives them (Fashion-MNIST
    unless given); a network by name then has as many classes.

    ``checkpoint``: a file that is written after every epoch, after every
    ``checkpoint_steps`` steps if given, and when training is stopped; it must not
    exist, unless it is the one to resume, and no other run may be writing it.
    ``resume``: a checkpoint to go on from, with the same settings; on as many
    devices the run then ends as it would have without the break, bit for bit. A
    network, a schedule and a ``preprocess`` of your own are compared by what they
    do with a few examples; ``changed`` names those that may do something else, of
    "network", "schedule", "preprocess".

    ``callbacks``: `monitor.Callback` objects, which are called as training goes on
    and may end it. ``timeline``: a `Timeline` that is to keep what the devices did when.
    ``environment``: a name for the history. ``invert``: whether the pictures in ``data``
    were inverted when they were read: it is kept in the history, and so in a checkpoint,
    so that ``d2lmgpu predict`` does the same with others. ``progress``: show a bar and a
    line an epoch; in a notebook with ipywidgets a `LivePlot`, which has a Stop button.

    Ctrl-C ends training after the current step; what was learned is returned,
    and said in ``history.interrupted``. A run that diverges ends after the epoch
    in which it did, and says so in ``history.diverged``.

    Raises TypeError for an argument that there is not, ValueError for settings that make no sense, DataError if the
    data set cannot be loaded, CheckpointError for a file that is no complete checkpoint of this run, OSError for one
    that cannot be read or written.
    """
    devices = check_devices([try_gpu(0)] if devices is None else devices)
    settings, checkpoint_steps = settings.on(devices), plain(checkpoint_steps)
    check_ways(callbacks, timeline, environment, progress=progress, invert=invert)
    invert = bool(invert)
    if checkpoint is not None:
        check_path("checkpoint", checkpoint)
    with nothing_left_behind(devices), holding(checkpoint):
        check_checkpoint(checkpoint, checkpoint_steps, resume)
        check_changed(changed)
        start = None if resume is None else load_run(resume)
        X_train, y_train, X_test, y_test, *names = load_fashion_mnist() if data is None else check_parts(data)
        classes = names[0] if names else None
        name, network = find_network(settings.network, classes, image_shape(X_train))
        check_statistics(settings.batch_statistics, network, name)
        check_data(X_train, y_train, network)
        check_data(X_test, y_test, network)
        bar = Progress(settings.num_epochs, epoch_size(len(X_train), settings.batch_size, settings.drop_last), progress)
        runner, settings = make_runner(
            X_train,
            y_train,
            init_params(settings.seed, init=settings.init, network=network),
            devices,
            network,
            settings,
            note=bar.note,
            saved_loads=start and start.state["history"]["loads"],
        )
        history = History(
            devices=[str(device) for device in devices],
            environment=environment or "+".join(sorted({device.kind for device in devices}, reverse=True)),
            settings=settings.recorded(),
            classes=classes,
            invert=invert,
        )
        replicas = runner.replicas
        if progress and in_notebook():
            bar.visible = False  # the live plot says it all
            if not any(isinstance(callback, LivePlot) for callback in callbacks):
                callbacks = [*callbacks, LivePlot()]
        checksum = alike = None
        if checkpoint or resume:
            checksum = data_checksum(X_train, y_train)
            alike = likeness(settings, X_train, y_train)
        position = Position()
        if resume:
            position = restore(start, history, runner, replicas, checksum, alike, changed)
        loop = Loop(
            history=history,
            network=network,
            test_set=TestSet(X_test, y_test, devices, network),
            replicas=replicas,
            runner=runner,
            order=lambda epoch: epoch_order(len(X_train), settings.seed, epoch),
            rates=lambda epoch: settings.learning_rates(epoch, runner.steps),
            bar=bar,
            timeline=timeline or Timeline(devices),
            callbacks=list(callbacks),
            save=_saver(checkpoint, history, network, runner, replicas, checksum, alike),
            save_steps=checkpoint_steps,
        )
        try:
            loop.run(position)
            first = replicas[0]  # they are all alike
            model = Model(
                network, list(map(to_host, first.params)), list(map(to_host, first.statistics)), classes, invert
            )
            history.final_parameters_sha256 = sha256([*model.params, *model.statistics])
        finally:
            runner.close()
            loop.tell("on_end", history)
        return Result(history, model)


def _saver(checkpoint, history, network, runner, replicas, checksum, alike):
    """A function that writes a checkpoint for a `Position`, or does nothing."""
    if checkpoint is None:
        return lambda position: None
    state = {"model": model_state(network, history.classes, history.invert), "data": checksum, "likeness": alike}
    return lambda position: save_checkpoint(checkpoint, snapshot(history, position, runner, replicas, state))
