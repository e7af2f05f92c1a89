"""Scaling experiments: the same network trained on 1, 2, 4, … devices.

    strong   the minibatch stays the same, and each of k devices gets a k-th of it
    weak     each device's part stays the same, and the minibatch is k times as large

Training runs take turns. A contender trains for some whole steps in its turn, while the others are idle; see
base/measuring.py. Their times give

    speed-up     S(k) = seconds of one device / seconds of k devices, for the same number of examples
    efficiency   E(k) = S(k) / k, the fraction of the k devices' time that is well spent

In weak scaling, k devices do k times the work in a step, so for the same number of examples S(k) = k · step time of
one / step time of k, and E(k) is the ratio of the step times.

Sources: Amdahl 1967 for the limits of strong scaling, Gustafson 1988 for weak scaling.
"""

import math
import platform
import statistics
import time
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import NamedTuple

import numpy as np

from ..base.arguments import check_list, check_name, check_whole, plain, shown
from ..base.measuring import seconds_of, take_rounds
from ..base.text import several
from ..cluster import as_cluster
from ..collectives import ALGORITHMS, check_algorithm
from ..data.fashion_mnist import load_fashion_mnist
from ..data.minibatches import check_parts
from ..devices import check_devices, count_cores, device_table, synchronize
from ..devices.timeline import Timeline
from ..networks import init_params
from ..training import Settings
from ..training.checks import network_for
from ..training.make_runner import make_runner
from .predicted_scaling import ComputeTimes, batch_sizes, fit_messages, predict_scaling

_LR = 0.01
"""The learning rate: so small that no run diverges, whatever its minibatch size. It affects nothing else."""


class Sample(NamedTuple):
    """``seconds`` of a turn, and how they divide into phases (see `Timeline.phases`).

    ``cores``: how many cores this program had, on average; fewer than the devices could use if other programs were
    running at the same time.
    """

    seconds: float
    phases: dict
    cores: float = 0.0


class Candidate:
    """Trains on all ``groups`` of devices at the same time. Each call continues training and returns a `Sample`.

    One group of k devices is data-parallel training as in `train`. Groups of one device each are independent training
    runs on the same machine that exchange nothing. ``batch_size``: the batch size of each group. All devices are
    synchronised before and after the steps.
    """

    def __init__(self, groups, network, batch_size, steps, data, algorithm="ring"):
        self.devices = [device for group in groups for device in group]
        self.examples = steps * batch_size
        X, y = (array[: self.examples] for array in data[:2])
        params, settings = init_params(0, init="he", network=network), Settings(batch_size, _LR, algorithm=algorithm)
        self.runners = [make_runner(X, y, params, as_cluster(group), network, settings) for group in groups]
        self.steps, self.rng = steps, np.random.default_rng(0)

    def __call__(self):
        for runner in self.runners:
            runner.start_epoch(self.rng.permutation(self.examples), _LR)
        with Timeline(self.devices) as timeline:
            begin = time.process_time()
            seconds = seconds_of(self._train, lambda: synchronize(self.devices))
            cores = (time.process_time() - begin) / seconds
            return Sample(seconds, timeline.phases(seconds), cores)

    def _train(self):
        for _ in range(self.steps):
            for runner in self.runners:
                runner.launch(1)
        for runner in self.runners:
            runner.pause()


@dataclass
class Row:
    """Training on ``devices`` devices. Seconds are per epoch unless their name says otherwise.

    Each round has a time, and its ratio to the same round's time on one device; the row gives the median, the minimum
    and the maximum of each. ``phases``: the epoch's seconds in each phase, in the median round. ``cores``: the median
    number of cores that the program had. ``predicted_seconds_per_epoch``: see `predict_scaling`.
    """

    devices: int
    batch_size: int
    seconds_per_epoch: float
    seconds_per_epoch_min: float
    seconds_per_epoch_max: float
    seconds_per_step: float
    speedup: float
    speedup_min: float
    speedup_max: float
    efficiency: float
    efficiency_min: float
    efficiency_max: float
    cores: float = 0.0
    phases: dict = field(default_factory=dict)
    predicted_seconds_per_epoch: float = None


def make_rows(turns, batch_sizes, steps, epoch):
    """A `Row` for each number of devices.

    ``turns``: {devices: a `Sample` for each round}, with 1 among the keys; each turn has ``steps`` steps of
    ``batch_sizes[devices]`` examples. ``epoch``: the number of examples in an epoch.
    """
    seconds = {k: [turn.seconds * epoch / (steps * batch_sizes[k]) for turn in mine] for k, mine in turns.items()}
    rows = []
    for k, mine in turns.items():
        speedups = [one / own for one, own in zip(seconds[1], seconds[k], strict=True)]
        measured = _spread("seconds_per_epoch", seconds[k]) | _spread("speedup", speedups)
        measured |= _spread("efficiency", [speedup / k for speedup in speedups])
        median = measured["seconds_per_epoch"]
        middle = sorted(mine, key=lambda turn: turn.seconds)[len(mine) // 2]
        phases = {name: value * median / middle.seconds for name, value in middle.phases.items()}
        per_step, cores = median * batch_sizes[k] / epoch, statistics.median(turn.cores for turn in mine)
        rows.append(Row(k, batch_sizes[k], **measured, seconds_per_step=per_step, cores=cores, phases=phases))
    return rows


def _spread(name, values):
    """The median, the minimum and the maximum of the rounds' values, by their names in a `Row`."""
    return {name: statistics.median(values), f"{name}_min": min(values), f"{name}_max": max(values)}


@dataclass
class Scaling:
    """A scaling experiment: what was trained, on which devices, and the results.

    ``batch_size``: the number of examples in all in mode "strong", or on each device in mode "weak". ``parameters``:
    how many numbers the network learns. ``steps``: the steps per turn. ``places``: how many of the devices can work at
    the same time (cores or GPUs).

    ``rows``: a `Row` for each number of devices. ``messages``: the constants of messages that predictions use (see
    `fit_messages`), or None without predictions.
    """

    mode: str
    network: str
    width: float
    parameters: int
    batch_size: int
    allreduce: str
    rounds: int
    steps: int
    devices: list
    places: int
    machine: str
    date: str
    rows: list = None
    messages: dict = None

    as_dict = asdict

    def of_places(self):
        """The processors, in words: "2 cores", "1 GPU"."""
        kinds = {name.partition("(")[0] for name in self.devices}
        kind = "/".join("core" if kind == "cpu" else "GPU" for kind in sorted(kinds))
        return several(self.places, kind)


def measure_scaling(
    devices,
    counts=(1, 2, 4),
    mode="strong",
    algorithm="ring",
    steps=20,
    predict=False,
    batch_size=256,
    network="lenet",
    width=1,
    repeats=5,
    data=None,
):
    """Time training on the first k of ``devices``, for each k in ``counts``, which includes 1; return a `Scaling`.

    In each of ``repeats`` rounds, for each k in turn, k devices train for ``steps`` whole steps, as in `train` (fewer
    if the data set has fewer minibatches); see `take_rounds`. ``batch_size``: the size of the minibatch in mode
    "strong", of each device's part in mode "weak". ``network``: a name, or the result of `networks.sequential`;
    ``width`` multiplies the channels of a network given by name. ``data``: X_train, y_train and optionally more, as in
    `train`; by default Fashion-MNIST.

    ``predict``: add predictions to the rows. For these, in the same rounds, as many of the k devices as can work at the
    same time also train independently; then messages are timed.

    Raises ValueError, before anything is trained, for settings that make no sense.
    """
    devices = check_devices(devices)
    counts = check_counts(counts, devices)
    check_algorithm(algorithm, training=True)
    if predict:
        check_name("allreduce to predict from", algorithm, ALGORITHMS)
    steps, repeats, width = check_whole("steps", steps), check_whole("repeats", repeats), plain(width)
    batches, places = batch_sizes(mode, counts, batch_size), count_places(devices)
    data = load_fashion_mnist() if data is None else check_parts(data, least=2)
    name, network = network_for(data, network, width)
    examples, largest = len(data[0]), max(batches.values())
    if largest > examples:
        raise ValueError(f"a minibatch of {largest} examples is more than the {examples} there are; give a smaller one")
    steps = min(steps, examples // largest)
    contenders = {k: Candidate([devices[:k]], network, batches[k], steps, data, algorithm) for k in counts}
    shards = {k: (min(k, places), math.ceil(batches[k] / k)) for k in counts if k > 1 and predict}
    for busy, n in set(shards.values()):
        contenders[busy, n] = Candidate([[device] for device in devices[:busy]], network, n, steps, data)
    turns = take_rounds(contenders, repeats)
    scaling = Scaling(
        mode=mode,
        network=name,
        width=width,
        parameters=sum(param.size for param in init_params(network=network)),
        batch_size=batches[1],
        allreduce=algorithm,
        rounds=repeats,
        steps=steps,
        devices=[str(device) for device in devices[: max(counts)]],
        places=places,
        machine=machine_of(devices),
        date=date.today().isoformat(),
        rows=make_rows({k: turns[k] for k in counts}, batches, steps, examples),
    )
    if shards:
        _predict(scaling, shards, turns, devices, examples)
    return scaling


def _predict(scaling, shards, turns, devices, epoch):
    """Add predictions, from the times that devices needed in the same rounds without an exchange.

    ``shards``: for each number of devices, how many are busy, and the number of examples on each; this pair is the key
    of their turns.
    """
    exchange, scaling.messages = fit_messages(devices, list(shards), scaling.allreduce, scaling.places)
    step = scaling.batch_size, scaling.parameters, exchange, scaling.mode, scaling.allreduce, scaling.places
    for row in scaling.rows[1:]:
        busy, n = shards[row.devices]
        seconds = statistics.median(turn.seconds for turn in turns[busy, n]) / scaling.steps
        (predicted,) = predict_scaling(ComputeTimes([n], [seconds]), [row.devices], *step)
        row.predicted_seconds_per_epoch = predicted.seconds_per_step / row.batch_size * epoch


def check_counts(counts, devices=None):
    """The numbers of devices, ascending. Raises ValueError unless 1 is among them, and for more than ``devices``."""
    counts = sorted({check_whole("devices", k) for k in check_list("devices", counts, of="numbers, such as 1,2,4")})
    if 1 not in counts:
        raise ValueError(f"devices are {shown(counts)}; 1 should be among them, for comparison")
    if devices is not None and counts[-1] > len(devices):
        raise ValueError(f"devices are {shown(counts)}, but only {len(devices)} were given")
    return counts


def count_places(devices):
    """How many of the devices can work at the same time: distinct GPUs, or cores for virtual devices."""
    cards = {device.card for device in devices if device.kind == "gpu"}
    virtual = sum(device.kind == "cpu" for device in devices)
    return len(cards) + min(virtual, count_cores())


def machine_of(devices):
    """The processors behind the devices, in words."""
    kinds = {device.kind for device in devices}
    found = [row.description for row in device_table() if row.kind in kinds]
    names = ", ".join(f"{found.count(name)} × {name}" for name in dict.fromkeys(found))
    return f"{names}; {platform.system()} {platform.machine()}"
