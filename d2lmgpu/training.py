"""Train LeNet on any number of devices, and evaluate it on all of them."""

import math
import time
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

import numpy as np

from .collectives import check_algorithm
from .data import epoch_order, to_float
from .devices import check_devices, to_host, try_gpu
from .fashion_mnist import load_fashion_mnist
from .monitor import Progress, stop_on_interrupt
from .networks import count_correct, init_params
from .parallel import EagerStep, GraphStep, check_precision, get_params, split_batch
from .timing import Timeline

EVALUATION_BATCH = 4096
"""Test images that are on the devices at a time."""


@dataclass
class History:
    """What a training run was and how it went. Lists have an entry for each complete epoch.

    ``train_loss`` is per example, seconds exclude the evaluation, ``phases`` are
    total seconds. ``interrupted`` is None, or for a run that was stopped a dict of
    ``epoch`` (the one cut short, from 1), ``steps`` done in it, and the
    ``train_loss`` and ``test_accuracy`` reached.
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
    train_loss: list = field(default_factory=list)
    test_accuracy: list = field(default_factory=list)
    seconds_per_epoch: list = field(default_factory=list)
    examples_per_second: float = None
    phases: dict = field(default_factory=dict)
    interrupted: dict = None

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


class Result(NamedTuple):
    """What `train` returns: ``history, params = train(...)``."""

    history: History
    params: list


def train(
    devices=None,
    batch_size=256,
    lr=0.2,
    num_epochs=10,
    algorithm="ring",
    seed=0,
    init="normal",
    data=None,
    flat=True,
    overlap=False,
    prefetch=True,
    graphs=True,
    precision="float32",
    timeline=None,
    environment=None,
    progress=True,
):
    """Train LeNet data-parallel; returns a `Result`: the history, and the parameters as NumPy arrays.

    ``devices``: a list of devices (``[try_gpu(0)]`` unless given). ``lr`` applies
    to the mean gradient of a minibatch. ``algorithm``: an allreduce by name.
    ``seed`` decides the initial weights and all shuffles: the same seed on the
    same number of devices gives the same history, bit for bit. ``init``:
    "normal" (the textbook) or "he". ``data``: X_train, y_train, X_test, y_test
    (Fashion-MNIST unless given). ``flat``: exchange all gradients as one message,
    not one a parameter. ``overlap``: exchange them in buckets while others are
    being computed. ``prefetch``: prepare the next minibatch while the devices
    compute. ``graphs``: on GPUs, where it is possible, launch each step as a CUDA
    graph; the three options before it then have no meaning. ``precision``:
    "float32", or with graphs "tf32" or "mixed" (see `GraphStep`). ``timeline``: a
    `Timeline` that is to keep what the devices did when. ``environment``: a name
    for the history. ``progress``: show a bar and a line an epoch.

    Ctrl-C ends training after the current step; what was learned is returned,
    and said in ``history.interrupted``.

    Raises ValueError for settings that make no sense, DataError if the data set
    cannot be loaded.
    """
    devices = check_devices([try_gpu(0)] if devices is None else devices)
    check_settings(batch_size, lr, num_epochs, seed)
    check_algorithm(algorithm, training=True)
    check_precision(precision, devices)
    params = init_params(seed, init=init)
    X_train, y_train, X_test, y_test = load_fashion_mnist() if data is None else data
    check_data(X_train, y_train)
    check_data(X_test, y_test)
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
    )
    bar = Progress(num_epochs, len(X_train), progress)
    device_params = [get_params(params, device) for device in devices]
    if graphs and GraphStep.can_do(X_train, y_train, devices, algorithm):
        runner = GraphStep(X_train, y_train, device_params, devices, batch_size, algorithm, precision=precision)
    elif precision != "float32":
        raise ValueError(f"precision {precision!r} needs CUDA graphs: graphs=True, uint8 images, an allreduce of ours")
    else:
        settings = {"algorithm": algorithm, "flat": flat, "overlap": overlap, "prefetch": prefetch}
        runner = EagerStep(X_train, y_train, device_params, devices, batch_size, **settings)
    timeline = timeline or Timeline(devices)
    total_seconds = 0.0
    with stop_on_interrupt() as stop, timeline:
        for epoch in range(num_epochs):
            begin = time.perf_counter()
            bar.start_epoch(epoch)
            runner.start_epoch(epoch_order(len(X_train), seed, epoch), lr)
            for steps in range(1, runner.steps + 1):  # noqa: B007
                bar.step(runner.step(), runner.loss)
                if stop.requested:
                    break
            loss = runner.end_epoch()
            seconds = time.perf_counter() - begin
            timeline.settle()
            total_seconds += seconds
            loss /= bar.end_epoch()

            accuracy = evaluate(device_params, X_test, y_test, devices)
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
        history.phases = timeline.phases(total_seconds)
    return Result(history, [to_host(param) for param in device_params[0]])


def evaluate(params_or_device_params, X, y, devices):
    """Accuracy, the fraction of images whose label is the largest logit, computed on all the devices.

    ``X`` uint8 or float (N, 1, 28, 28) and ``y`` (N,) on the host. The parameters
    are one list, which is then copied to every device, or a list of such lists,
    one on each device. Every example counts the same however the shards fall:
    correct answers are counted, and divided once.

    Raises ValueError if there are no examples, or not one label from 0 to 9 for each.
    """
    devices = check_devices(devices)
    check_data(X, y)
    device_params = params_or_device_params
    if not isinstance(device_params[0], (list, tuple)):
        device_params = [get_params(params_or_device_params, device) for device in devices]
    tasks = []
    for start in range(0, len(X), EVALUATION_BATCH):
        part = slice(start, start + EVALUATION_BATCH)
        X_shards, y_shards = split_batch(to_float(X[part]), y[part], devices)
        for device, X_shard, y_shard, params in zip(devices, X_shards, y_shards, device_params, strict=True):
            tasks.append(device.run(count_correct, X_shard, y_shard, params))
    return sum(int(task.result()) for task in tasks) / len(X)


def check_settings(batch_size, lr, num_epochs, seed):
    """Raise ValueError for numbers with which no training can be done."""
    for name, value, least in (("batch_size", batch_size, 1), ("epochs", num_epochs, 1), ("seed", seed, 0)):
        if not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f"{name} is {value!r}; it should be a whole number, at least {least}")
    if not (math.isfinite(lr) and lr > 0):
        raise ValueError(f"lr is {lr}; it should be a finite number above 0, such as 0.2")


def check_data(X, y):
    """Raise ValueError unless each image has a label from 0 to 9: a GPU would take others without a word."""
    if len(X) == 0 or len(X) != len(y):
        raise ValueError(f"{len(X)} images and {len(y)} labels; there should be some, and a label for each image")
    if y.min() < 0 or y.max() > 9:
        raise ValueError(f"labels from {y.min()} to {y.max()}; they should be whole numbers from 0 to 9")
