"""Train a network on any number of devices: settings are checked, everything is made, and the loop runs."""

from pathlib import Path

from ..checkpoints import load_checkpoint, save_checkpoint
from ..collectives import check_algorithm
from ..data import epoch_order
from ..devices import check_devices, to_host, try_gpu
from ..fashion_mnist import load_fashion_mnist
from ..live_plot import LivePlot, in_notebook
from ..monitor import Progress
from ..networks import init_params
from ..optimizers import check_optimizer
from ..output import check_writable
from ..parallel import (
    EagerStep,
    GraphStep,
    Replica,
    check_batch_statistics,
    check_loads,
    check_precision,
    get_params,
    measure_loads,
)
from ..schedules import learning_rates
from ..timing import Timeline
from .checks import check_data, check_settings, find_network
from .history import History, Result, sha256
from .loop import Loop
from .resume import Position, data_checksum, restore, snapshot


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
    callbacks=(),
    timeline=None,
    environment=None,
    progress=True,
):
    """Train a network data-parallel; returns a `Result`: ``history, params``.

    ``devices``: a list of devices (``[try_gpu(0)]`` unless given). ``lr`` applies
    to the mean gradient of a minibatch. ``algorithm``: an allreduce by name.
    ``seed`` decides the initial weights and all shuffles: the same seed on the
    same number of devices gives the same history, bit for bit. ``init``:
    "normal" (the textbook) or "he". ``data``: X_train, y_train, X_test, y_test
    (Fashion-MNIST unless given).

    ``network``: a name of `networks.NETWORKS`, or what `networks.sequential`
    makes. ``optimizer``: a name of `optimizers.OPTIMIZERS`. ``loads``: each
    device's share of every minibatch, in any unit; 0 leaves it idle; "auto"
    measures how fast each is (the history then has the shares that were found).
    ``batch_statistics``: over which images batch norm takes its statistics, one of
    `parallel.BATCH_STATISTICS`. ``scale_batch``: multiply batch size and lr by the
    number of devices. ``warmup`` and ``schedule``: see `schedules.learning_rates`.

    ``flat``: exchange all gradients as one message, not one a parameter.
    ``overlap``: exchange them in buckets while others are being computed.
    ``prefetch``: prepare the next minibatch while the devices compute.
    ``graphs``: on GPUs, where it is possible, launch each step as a CUDA graph;
    the three options before it then have no meaning. ``precision``: "float32", or
    with graphs "tf32" or "mixed" (see `GraphStep`).

    ``checkpoint``: a file that is written after every epoch, after every
    ``checkpoint_steps`` steps if given, and when training is stopped; it must not
    exist, unless it is the one to resume. ``resume``: a checkpoint to go on from,
    with the same settings; on as many devices the run then ends as it would have
    without the break, bit for bit.

    ``callbacks``: `monitor.Callback` objects, which are called as training goes on
    and may end it. ``timeline``: a `Timeline` that is to keep what the devices did when.
    ``environment``: a name for the history. ``progress``: show a bar and a line an epoch;
    in a notebook with ipywidgets a `LivePlot`, which has a Stop button.

    Ctrl-C ends training after the current step; what was learned is returned,
    and said in ``history.interrupted``. A run that diverges ends after the epoch
    in which it did, and says so in ``history.diverged``.

    Raises ValueError for settings that make no sense, DataError if the data set
    cannot be loaded, CheckpointError for a file that is no complete checkpoint of
    this run.
    """
    devices = check_devices([try_gpu(0)] if devices is None else devices)
    check_settings(batch_size, lr, num_epochs, seed)
    check_algorithm(algorithm, training=True)
    check_precision(precision, devices)
    check_optimizer(optimizer)
    check_batch_statistics(batch_statistics)
    learning_rates(lr, 0, 1, num_epochs, warmup, schedule)  # raises now what it would raise later
    check_checkpoint(checkpoint, checkpoint_steps, resume)
    start = None if resume is None else load_checkpoint(resume)
    name, network = find_network(network)
    if loads is not None and loads != "auto":
        loads = check_loads(loads, len(devices)).tolist()
    if scale_batch:
        batch_size, lr = batch_size * len(devices), lr * len(devices)
    params = init_params(seed, init=init, network=network)
    X_train, y_train, X_test, y_test = load_fashion_mnist() if data is None else data
    check_data(X_train, y_train, network)
    check_data(X_test, y_test, network)
    history = History(
        devices=[str(device) for device in devices],
        environment=environment or devices[0].kind,
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
        warmup=warmup,
        schedule=schedule if isinstance(schedule, str) else "custom",
    )
    bar = Progress(num_epochs, len(X_train), progress)
    replicas = [Replica(get_params(params, device), device, network, optimizer) for device in devices]
    if loads == "auto":
        saved = start and start.state["history"]["loads"]  # so that the run goes on as it was
        same = saved and len(saved) == len(devices)
        loads = history.loads = saved if same else measure_loads(X_train, y_train, replicas, batch_size)
        bar.note("loads: " + ", ".join(f"{device} {load:.2f}" for device, load in zip(devices, loads, strict=True)))
    for device, load in zip(devices, loads or [1] * len(devices), strict=True):
        if load == 0:
            bar.note(f"{device} has load 0 and stays idle")
    if graphs and optimizer == "sgd" and GraphStep.can_do(X_train, y_train, devices, algorithm, network):
        device_params = [replica.params for replica in replicas]
        settings = {"network": network, "precision": precision, "loads": loads}
        runner = GraphStep(X_train, y_train, device_params, devices, batch_size, algorithm, **settings)
    elif precision != "float32":
        raise ValueError(
            f"precision {precision!r} needs CUDA graphs: graphs=True, uint8 images, an allreduce of ours, SGD, "
            "no batch norm"
        )
    else:
        settings = {"algorithm": algorithm, "flat": flat, "overlap": overlap, "prefetch": prefetch}
        runner = EagerStep(X_train, y_train, replicas, batch_size, loads, batch_statistics=batch_statistics, **settings)
    if progress and in_notebook():
        bar.visible = False  # the live plot says it all
        if not any(isinstance(callback, LivePlot) for callback in callbacks):
            callbacks = [*callbacks, LivePlot()]
    checksum = data_checksum(X_train, y_train) if checkpoint or resume else None
    position = Position() if start is None else restore(start, history, runner, replicas, checksum)
    loop = Loop(
        history=history,
        network=network,
        test_data=(X_test, y_test),
        replicas=replicas,
        runner=runner,
        order=lambda epoch: epoch_order(len(X_train), seed, epoch),
        rates=lambda epoch: learning_rates(lr, epoch, runner.steps, num_epochs, warmup, schedule),
        bar=bar,
        timeline=timeline or Timeline(devices),
        callbacks=callbacks,
        save=_saver(checkpoint, history, runner, replicas, checksum),
        save_steps=checkpoint_steps,
    )
    try:
        loop.run(position)
        params = [to_host(param) for param in replicas[0].params]
        statistics = [to_host(array) for array in replicas[0].statistics]
        history.final_parameters_sha256 = sha256([*params, *statistics])
    finally:
        loop.tell("on_end", history)
    return Result(history, params, statistics, network)


def _saver(checkpoint, history, runner, replicas, checksum):
    """A function that writes a checkpoint for a `Position`, or does nothing."""
    if checkpoint is None:
        return lambda position: None
    return lambda position: save_checkpoint(checkpoint, snapshot(history, position, runner, replicas, checksum))


def check_checkpoint(checkpoint, checkpoint_steps, resume):
    """Raise now what would go wrong with the file later; nobody's checkpoint is overwritten by another run."""
    if checkpoint_steps is not None and (checkpoint is None or checkpoint_steps < 1):
        raise ValueError(
            f"checkpoint_steps is {checkpoint_steps}; it should be at least 1, and needs a checkpoint file"
        )
    if checkpoint is None:
        return
    check_writable(checkpoint)
    file = Path(checkpoint)
    if file.exists() and (resume is None or not file.samefile(resume)):
        raise ValueError(f"checkpoint {checkpoint} exists; resume from it, give another name, or remove it")
