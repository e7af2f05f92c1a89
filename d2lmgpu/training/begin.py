"""Train a network on any number of devices: settings are checked, everything is made, and the loop runs."""

from ..arguments import check_path
from ..checkpoints import save_checkpoint
from ..data import check_parts, epoch_order, epoch_size
from ..devices import check_devices, nothing_left_behind, to_host, try_gpu
from ..fashion_mnist import load_fashion_mnist
from ..live_plot import LivePlot, in_notebook
from ..monitor import Progress
from ..networks import init_params
from ..output import holding
from ..parallel import check_loads, check_precision, name_of
from ..schedules import learning_rates
from ..timing import Timeline
from .accuracy import TestSet
from .checks import check_checkpoint, check_data, check_settings, check_statistics, check_ways, find_network, plain
from .history import History, Result, sha256
from .likeness import check_changed, likeness
from .loop import Loop
from .resume import Position, data_checksum, restore, snapshot
from .runner import make_runner
from .saved import load_run


def train(
    devices=None,
    batch_size=256,
    lr=0.2,
    num_epochs=10,
    algorithm="ring",
    seed=0,
    init="normal",
    data=None,
    network="lenet",
    optimizer="sgd",
    loads=None,
    batch_statistics="local",
    scale_batch=False,
    preprocess=None,
    drop_last=False,
    warmup=0,
    schedule="constant",
    flat=True,
    overlap=False,
    prefetch=True,
    graphs=True,
    precision="float32",
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

    ``devices``: a list of devices (``[try_gpu(0)]`` unless given). ``lr`` applies
    to the mean gradient of a minibatch. ``algorithm``: an allreduce by name.
    ``seed`` decides the initial weights and all shuffles: the same seed on the
    same number of devices gives the same history, bit for bit. ``init``:
    "normal" (the textbook) or "he". ``data``: X_train, y_train, X_test, y_test, and
    maybe the names of the classes, as `load_image_data` gives them (Fashion-MNIST
    unless given); a network by name then has as many classes.

    ``network``: a name of `networks.NETWORKS`, or what `networks.sequential`
    makes. ``optimizer``: a name of `optimizers.OPTIMIZERS`. ``loads``: each
    device's share of every minibatch, in any unit; 0 leaves it idle; "auto"
    measures how fast each is (the history then has the shares that were found).
    ``batch_statistics``: over which images batch norm takes its statistics, one of
    `parallel.BATCH_STATISTICS` ("local" for networks without it). ``scale_batch``:
    multiply batch size and lr by the number of devices. ``preprocess``: a function
    (X, y, rng) → (X, y) of each minibatch of the training set, see `MinibatchQueue`;
    test images are evaluated as they are. ``drop_last``: leave out an epoch's ragged
    rest. ``warmup`` and ``schedule``: see `schedules.learning_rates`.

    ``flat``: exchange all gradients as one message, not one a parameter.
    ``overlap``: exchange them in buckets while others are being computed.
    ``prefetch``: prepare the next minibatch while the devices compute.
    ``graphs``: on GPUs, where it is possible (not with ``preprocess``, whose images
    come from the host), launch each step as a CUDA graph; the three options before
    it then have no meaning. ``precision``: "float32"; "mixed" (products of float16,
    see networks/mixed.py, parameters and sums of float32, the loss scaled), which is
    faster on GPUs and on CPUs shows what it does; with graphs also "tf32" (products
    of numbers with 11 bits).

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

    Raises ValueError for settings that make no sense, DataError if the data set
    cannot be loaded, CheckpointError for a file that is no complete checkpoint of
    this run, OSError for one that cannot be read or written.
    """
    devices = check_devices([try_gpu(0)] if devices is None else devices)
    batch_size, lr, num_epochs, seed, warmup = map(plain, (batch_size, lr, num_epochs, seed, warmup))
    drop_last, checkpoint_steps = map(plain, (drop_last, checkpoint_steps))
    choices = {"algorithm": algorithm, "optimizer": optimizer, "batch_statistics": batch_statistics}
    check_settings(
        batch_size, lr, num_epochs, seed, init, precision=precision, warmup=warmup, schedule=schedule, **choices
    )
    check_precision(precision, devices)
    flags = {"scale_batch": scale_batch, "drop_last": drop_last, "flat": flat, "overlap": overlap}
    flags |= {"prefetch": prefetch, "graphs": graphs, "progress": progress, "invert": invert}
    check_ways(preprocess, callbacks, timeline, environment, **flags)
    if checkpoint is not None:
        check_path("checkpoint", checkpoint)
    if loads is not None and not (isinstance(loads, str) and loads == "auto"):
        loads = check_loads(loads, len(devices)).tolist()
    with nothing_left_behind(devices), holding(checkpoint):
        check_checkpoint(checkpoint, checkpoint_steps, resume)
        check_changed(changed)
        start = None if resume is None else load_run(resume)
        if scale_batch:
            batch_size, lr = batch_size * len(devices), lr * len(devices)
        X_train, y_train, X_test, y_test, *names = load_fashion_mnist() if data is None else check_parts(data)
        classes = names[0] if names else None
        name, network = find_network(network, classes)
        check_statistics(batch_statistics, network, name)
        check_data(X_train, y_train, network)
        check_data(X_test, y_test, network)
        examples = epoch_size(len(X_train), batch_size, drop_last)
        history = History(
            devices=[str(device) for device in devices],
            environment=environment or "+".join(sorted({device.kind for device in devices}, reverse=True)),
            batch_size=batch_size,
            lr=lr,
            epochs=num_epochs,
            seed=seed,
            allreduce=algorithm,
            init=init,
            precision=precision,
            network=name,
            optimizer=optimizer,
            loads=loads,
            batch_statistics=batch_statistics,
            preprocess=None if preprocess is None else name_of(preprocess),
            drop_last=drop_last,
            classes=classes,
            invert=bool(invert),
            warmup=warmup,
            schedule=schedule if isinstance(schedule, str) else "custom",
        )
        bar = Progress(num_epochs, examples, progress)
        runner = make_runner(
            X_train,
            y_train,
            init_params(seed, init=init, network=network),
            devices,
            network,
            history,
            note=bar.note,
            saved_loads=start and start.state["history"]["loads"],
            preprocess=preprocess,
            graphs=graphs,
            flat=flat,
            overlap=overlap,
            prefetch=prefetch,
        )
        replicas = runner.replicas
        if progress and in_notebook():
            bar.visible = False  # the live plot says it all
            if not any(isinstance(callback, LivePlot) for callback in callbacks):
                callbacks = [*callbacks, LivePlot()]
        checksum = alike = None
        if checkpoint or resume:
            checksum = data_checksum(X_train, y_train)
            own = network if name == "custom" else None, schedule if callable(schedule) else None, preprocess
            alike = likeness(*own, X_train, y_train, batch_size, seed)
        position = Position()
        if resume:
            position = restore(start, history, runner, replicas, checksum, alike, changed)
        loop = Loop(
            history=history,
            network=network,
            test_set=TestSet(X_test, y_test, devices, network),
            replicas=replicas,
            runner=runner,
            order=lambda epoch: epoch_order(len(X_train), seed, epoch),
            rates=lambda epoch: learning_rates(lr, epoch, runner.steps, num_epochs, warmup, schedule),
            bar=bar,
            timeline=timeline or Timeline(devices),
            callbacks=list(callbacks),
            save=_saver(checkpoint, history, runner, replicas, checksum, alike),
            save_steps=checkpoint_steps,
        )
        try:
            loop.run(position)
            params = [to_host(param) for param in replicas[0].params]
            statistics = [to_host(array) for array in replicas[0].statistics]
            history.final_parameters_sha256 = sha256([*params, *statistics])
        finally:
            runner.close()
            loop.tell("on_end", history)
        return Result(history, params, statistics, network)


def _saver(checkpoint, history, runner, replicas, checksum, alike):
    """A function that writes a checkpoint for a `Position`, or does nothing."""
    if checkpoint is None:
        return lambda position: None
    run = runner, replicas, checksum, alike
    return lambda position: save_checkpoint(checkpoint, snapshot(history, position, *run))
