"""Train a network on any number of devices, and evaluate it on all of them."""

import functools
import hashlib
import math
import time
from dataclasses import asdict, dataclass, field

import numpy as np

from .collectives import check_algorithm
from .data import epoch_order, to_float
from .devices import check_devices, to_host, try_gpu
from .fashion_mnist import load_fashion_mnist
from .monitor import Progress, stop_on_interrupt
from .networks import LENET, NETWORKS, count_correct, init_params
from .optimizers import check_optimizer
from .parallel import (
    EagerStep,
    GraphStep,
    Replica,
    check_batch_statistics,
    check_loads,
    check_precision,
    get_params,
    split_batch,
)
from .schedules import learning_rates
from .timing import Timeline

EVALUATION_BATCH = 4096
"""Test images that are on the devices at a time."""

HOPE = 3
"""Epochs in a row after which training that has learned nothing is given up."""


@dataclass
class History:
    """What a training run was and how it went. Lists have an entry for each complete epoch.

    ``train_loss`` is per example, seconds exclude the evaluation, ``phases`` are
    total seconds. ``batch_size`` and ``lr`` are those of a step, after scaling.
    ``interrupted`` is None, or for a run that was stopped a dict of ``epoch`` (the
    one cut short, from 1), ``steps`` done in it, and the ``train_loss`` and
    ``test_accuracy`` reached. ``diverged`` is None, or says in a line why training
    was given up.
    """

    devices: list
    environment: str
    batch_size: int
    lr: float
    epochs: int
    seed: int
    allreduce: str
    init: str
    precision: str = "float32"
    network: str = "lenet"
    optimizer: str = "sgd"
    loads: list = None
    batch_statistics: str = "local"
    warmup: float = 0
    schedule: str = "constant"
    final_parameters_sha256: str = None
    train_loss: list = field(default_factory=list)
    test_accuracy: list = field(default_factory=list)
    seconds_per_epoch: list = field(default_factory=list)
    examples_per_second: float = None
    phases: dict = field(default_factory=dict)
    interrupted: dict = None
    diverged: str = None

    as_dict = asdict

    def add_epoch(self, loss, accuracy, seconds, examples):
        """Enter a complete epoch of ``examples`` examples."""
        self.train_loss.append(loss)
        self.test_accuracy.append(accuracy)
        self.seconds_per_epoch.append(seconds)
        self.examples_per_second = examples * len(self.seconds_per_epoch) / sum(self.seconds_per_epoch)

    def summary(self):
        """The textbook's last line: ``test acc: 0.84, 2.2 sec/epoch on [gpu(0), gpu(1)]``."""
        accuracy = self.interrupted["test_accuracy"] if self.interrupted else self.test_accuracy[-1]
        epochs = self.seconds_per_epoch
        speed = f"{sum(epochs) / len(epochs):.1f} sec/epoch" if epochs else "no complete epoch"
        return f"test acc: {accuracy:.2f}, {speed} on [{', '.join(self.devices)}]"


class Result(tuple):
    """What `train` returns: ``history, params = train(...)``, the parameters as NumPy arrays.

    ``result.statistics`` are batch norm's running means and variances, ``result.network`` the network.
    """

    def __new__(cls, history, params, statistics, network):
        result = super().__new__(cls, (history, params))
        result.history, result.params, result.statistics, result.network = history, params, statistics, network
        return result


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
    device's share of every minibatch, in any unit; 0 leaves it idle.
    ``batch_statistics``: over which images batch norm takes its statistics, one of
    `parallel.BATCH_STATISTICS`. ``scale_batch``: multiply batch size and lr by the
    number of devices. ``warmup`` and ``schedule``: see `schedules.learning_rates`.

    ``flat``: exchange all gradients as one message, not one a parameter.
    ``overlap``: exchange them in buckets while others are being computed.
    ``prefetch``: prepare the next minibatch while the devices compute.
    ``graphs``: on GPUs, where it is possible, launch each step as a CUDA graph;
    the three options before it then have no meaning. ``precision``: "float32", or
    with graphs "tf32" or "mixed" (see `GraphStep`). ``timeline``: a `Timeline`
    that is to keep what the devices did when. ``environment``: a name for the
    history. ``progress``: show a bar and a line an epoch.

    Ctrl-C ends training after the current step; what was learned is returned,
    and said in ``history.interrupted``. A run that diverges ends after the epoch
    in which it did, and says so in ``history.diverged``.

    Raises ValueError for settings that make no sense, DataError if the data set
    cannot be loaded.
    """
    devices = check_devices([try_gpu(0)] if devices is None else devices)
    check_settings(batch_size, lr, num_epochs, seed)
    check_algorithm(algorithm, training=True)
    check_precision(precision, devices)
    check_optimizer(optimizer)
    check_batch_statistics(batch_statistics)
    learning_rates(lr, 0, 1, num_epochs, warmup, schedule)  # raises now what it would raise later
    name, network = find_network(network)
    loads = None if loads is None else check_loads(loads, len(devices)).tolist()
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
    for device, load in zip(devices, loads or [1] * len(devices), strict=True):
        if load == 0:
            bar.note(f"{device} has load 0 and stays idle")
    device_params = [get_params(params, device) for device in devices]
    replicas = [
        Replica(params, device, network, optimizer) for params, device in zip(device_params, devices, strict=True)
    ]
    if graphs and optimizer == "sgd" and GraphStep.can_do(X_train, y_train, devices, algorithm, network):
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
    timeline = timeline or Timeline(devices)
    total_seconds = 0.0
    with stop_on_interrupt() as stop, timeline:
        for epoch in range(num_epochs):
            begin = time.perf_counter()
            bar.start_epoch(epoch)
            rates = learning_rates(lr, epoch, runner.steps, num_epochs, warmup, schedule)
            runner.start_epoch(epoch_order(len(X_train), seed, epoch), rates)
            for steps in range(1, runner.steps + 1):  # noqa: B007
                bar.step(runner.step(), runner.loss)
                if stop.requested:
                    break
            loss = runner.end_epoch()
            seconds = time.perf_counter() - begin
            timeline.settle()
            total_seconds += seconds
            loss /= bar.end_epoch()

            device_statistics = [replica.statistics for replica in replicas]
            accuracy = evaluate(device_params, X_test, y_test, devices, network, device_statistics)
            learned = f"loss {loss:.3f}, test acc {accuracy:.3f}"
            complete = steps == runner.steps
            if complete:
                history.add_epoch(loss, accuracy, seconds, len(X_train))
                bar.report(f"{learned}, {seconds:.1f} s, {len(X_train) / seconds:,.0f} examples/s")
            if stop.requested and not (complete and epoch + 1 == num_epochs):
                history.interrupted = {
                    "epoch": epoch + 1,
                    "steps": steps,
                    "train_loss": loss,
                    "test_accuracy": accuracy,
                }
                bar.report(f"stopped after {steps} steps: {learned}")
                break
            history.diverged = why_diverged(history.train_loss, network)
            if history.diverged:
                bar.report(history.diverged)
                break
        history.phases = timeline.phases(total_seconds)
    params = [to_host(param) for param in device_params[0]]
    statistics = [to_host(array) for array in replicas[0].statistics]
    history.final_parameters_sha256 = sha256([*params, *statistics])
    return Result(history, params, statistics, network)


def evaluate(params_or_device_params, X, y, devices, network=LENET, statistics=()):
    """Accuracy, the fraction of images whose label is the largest logit, computed on all the devices.

    ``X`` uint8 or float (N, C, H, W) and ``y`` (N,) on the host. The parameters
    are one list, which is then copied to every device, or a list of such lists,
    one on each device; so are batch norm's ``statistics``. Every example counts
    the same however the shards fall: correct answers are counted, and divided once.

    Raises ValueError if there are no examples, or not one label for each, of the network's classes.
    """
    devices = check_devices(devices)
    check_data(X, y, network)
    device_params = _on_each(params_or_device_params, devices)
    device_statistics = _on_each(statistics, devices)
    count = functools.partial(count_correct, network=network)
    tasks = []
    for start in range(0, len(X), EVALUATION_BATCH):
        part = slice(start, start + EVALUATION_BATCH)
        X_shards, y_shards = split_batch(to_float(X[part]), y[part], devices)
        each_device = zip(devices, X_shards, y_shards, device_params, device_statistics, strict=True)
        for device, X_shard, y_shard, params, fixed in each_device:
            tasks.append(device.run(count, X_shard, y_shard, params, statistics=fixed))
    return sum(int(task.result()) for task in tasks) / len(X)


def _on_each(arrays, devices):
    """``arrays`` on each device: as they are if they are a list for each device, otherwise copied."""
    if arrays and isinstance(arrays[0], (list, tuple)):
        return arrays
    return [get_params(arrays, device) if arrays else [] for device in devices]


def find_network(network):
    """The name and the layers of a network, given by either; ValueError for a name that there is not."""
    if not isinstance(network, str):
        return "custom", network
    if network not in NETWORKS:
        raise ValueError(f"network {network!r} is unknown; choose from {', '.join(NETWORKS)}")
    return network, NETWORKS[network]


def why_diverged(losses, network):
    """A line that says so if training losses, one an epoch, show that nothing will be learned any more; else None."""
    guessing = math.log(network.classes)  # the loss of one who knows nothing
    advice = f"where guessing gives {guessing:.3g}; try a smaller learning rate, or a warm-up"
    if not losses[-1] < 1.5 * guessing:  # or not a number
        return f"diverged in epoch {len(losses)}: the training loss is {losses[-1]:.3g}, {advice}"
    if len(losses) >= HOPE and min(losses[-HOPE:]) > 0.999 * guessing:  # the textbook's weights may take one epoch
        return f"nothing was learned in {HOPE} epochs: the training loss is {losses[-1]:.3g}, {advice}"
    return None


def sha256(arrays):
    """A checksum of the arrays' values."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def check_settings(batch_size, lr, num_epochs, seed):
    """Raise ValueError for numbers with which no training can be done."""
    for name, value, least in (("batch_size", batch_size, 1), ("epochs", num_epochs, 1), ("seed", seed, 0)):
        if not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f"{name} is {value!r}; it should be a whole number, at least {least}")
    if not (math.isfinite(lr) and lr > 0):
        raise ValueError(f"lr is {lr}; it should be a finite number above 0, such as 0.2")


def check_data(X, y, network=LENET):
    """Raise ValueError unless each image fits the network and has a label: a GPU would take others without a word."""
    if len(X) == 0 or len(X) != len(y):
        raise ValueError(f"{len(X)} images and {len(y)} labels; there should be some, and a label for each image")
    if X.shape[1:] != network.input_shape:
        raise ValueError(f"images of shape {X.shape[1:]}; the network takes {network.input_shape}")
    if y.min() < 0 or y.max() >= network.classes:
        raise ValueError(
            f"labels from {y.min()} to {y.max()}; they should be whole numbers from 0 to {network.classes - 1}"
        )
