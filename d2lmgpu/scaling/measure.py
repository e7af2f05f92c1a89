"""Scaling experiments: the same network trained on 1, 2, 4, … devices.

    strong   the minibatch stays as it is, and each of k devices gets a k-th of it
    weak     each device's part stays as it is, and the minibatch is k times as large

Sources: Amdahl 1967 for what the first can reach, Gustafson 1988 for the second.
"""

import math
import statistics
from dataclasses import asdict, dataclass, field
from datetime import date

from ..arguments import check_flag, check_function, check_list, check_whole, shown
from ..collectives import check_algorithm
from ..data import check_parts
from ..devices import check_devices
from ..fashion_mnist import load_fashion_mnist
from ..measuring import take_rounds
from ..networks import init_params
from ..training.checks import check_data
from ..words import several
from .predict import Compute, check_predictable, fit_messages, predict_scaling
from .rows import make_rows
from .setup import (
    batch_sizes,
    check_counts,
    check_steps,
    count_places,
    machine,
    subject,
    versions,
    widened,
)
from .turns import Contender

MOST_STEPS = 100
"""Of a turn in `measure_compute`."""


@dataclass
class Scaling:
    """A scaling experiment: what was trained, on what, and a `Row` for each number of devices.

    ``batch_size``: examples in all in mode "strong", on each device in mode "weak".
    ``parameters``: how many numbers the network learns. ``steps`` of a turn.
    ``places``: how many of the devices can work at the same time, cores or GPUs.
    ``model``: what predictions were made from, or None. ``settings``: others that are not as by default.
    """

    mode: str
    network: str
    width: float
    parameters: int
    batch_size: int
    allreduce: str
    steps: int
    rounds: int
    devices: list
    places: int
    machine: str
    versions: dict
    date: str
    rows: list
    model: dict = None
    settings: dict = field(default_factory=dict)

    as_dict = asdict

    def of_places(self):
        """What the devices are, in words: "2 cores", "1 GPU"."""
        kinds = {name.partition("(")[0] for name in self.devices}
        kind = "/".join("core" if kind == "cpu" else "GPU" for kind in sorted(kinds))
        return several(self.places, kind)


def measure_scaling(
    devices,
    counts=(1, 2, 4),
    mode="strong",
    batch_size=256,
    network="lenet",
    width=1,
    algorithm="ring",
    steps=20,
    repeats=5,
    data=None,
    predict=False,
    after_round=None,
    settings=None,
):
    """Time training on the first k of ``devices``, for each k in ``counts``, 1 among them; returns a `Scaling`.

    In each of ``repeats`` rounds each k trains ``steps`` whole steps, as `train` does
    them (fewer where the data set has not so many minibatches); see `take_rounds`.
    ``batch_size``: of the minibatch in mode "strong", of each device's part in mode
    "weak". ``network``: a name, or what `networks.sequential` makes; ``width``
    multiplies the channels of one by name. ``algorithm``: an allreduce by name. ``data``: X_train,
    y_train and maybe more, as `train` takes it; Fashion-MNIST unless given.

    ``predict``: the rows get predictions, too. For these, in the same rounds, as many
    devices as k devices keep busy train without each other; then messages are timed.
    ``after_round(number, {k: its turns so far})`` is called after each round. ``settings``: a
    `Settings`, of which those in `setup.HOW` are trained with, such as ``Settings(preprocess="flip")``.

    Raises ValueError, before anything is trained, for settings that make no sense.
    """
    devices = check_devices(devices)
    check_flag("predict", predict)
    if after_round is not None:
        check_function("after_round", after_round)
    data, name, network, how = subject(data, network, width, settings, devices)
    counts = check_counts(counts, devices)
    check_algorithm(algorithm, training=True)
    if predict:
        check_predictable(algorithm)
    batches = batch_sizes(mode, counts, batch_size)
    steps = check_steps(steps, repeats, batches, len(data[0]))
    places = count_places(devices)
    contenders = {k: Contender([devices[:k]], network, batches[k], steps, data, algorithm, how) for k in counts}
    shards = {k: (min(k, places), math.ceil(batches[k] / k)) for k in counts if k > 1 and predict}
    for busy, n in set(shards.values()):
        alone = [[device] for device in devices[:busy]]
        contenders[busy, n] = Contender(alone, network, n, steps, data, how=how)
    turns = take_rounds(contenders, repeats, after_round)
    scaling = Scaling(
        mode=mode,
        network=name,
        width=width,
        parameters=sum(param.size for param in init_params(network=network)),
        batch_size=batch_size,
        allreduce=algorithm,
        steps=steps,
        rounds=repeats,
        devices=[str(device) for device in devices[: max(counts)]],
        places=places,
        machine=machine(devices),
        versions=versions(devices),
        date=date.today().isoformat(),
        rows=make_rows({k: turns[k] for k in counts}, batches, steps, len(data[0])),
        settings=how,
    )
    if shards:
        _predict(scaling, shards, turns, devices, len(data[0]))
    return scaling


def measure_compute(devices, sizes, network="lenet", width=1, steps=20, repeats=5, data=None):
    """Seconds of a step in which devices exchange nothing, for parts of all ``sizes``; returns a `Compute`.

    On each of ``devices``, at the same time, a network is trained with minibatches of
    so many examples; with one device it has the machine to itself. ``steps`` are of
    the largest size; smaller ones have more, up to `MOST_STEPS`, so that no turn is
    too short to be timed. The other arguments are those of `measure_scaling`.

    Raises ValueError for settings that make no sense.
    """
    devices = check_devices(devices)
    sizes = check_list("sizes", sizes, of="numbers of examples")
    for n in sizes:
        check_whole("a size", n)
    if not sizes or len(set(sizes)) < len(sizes):
        raise ValueError(f"sizes are {shown(sizes)}; give different numbers of examples")
    data = load_fashion_mnist() if data is None else check_parts(data, least=2)
    _, network = widened(network, width, data)
    check_data(*data[:2], network)
    sizes = sorted(sizes)
    steps = check_steps(steps, repeats, dict.fromkeys(sizes, max(sizes, default=1)), len(data[0]))
    groups = [[device] for device in devices]
    counts = {n: max(steps, min(MOST_STEPS, steps * sizes[-1] // n)) for n in sizes}
    turns = take_rounds({n: Contender(groups, network, n, counts[n], data) for n in sizes}, repeats)
    return Compute(sizes, [_median(turns[n]) / counts[n] for n in sizes], len(devices))


def _predict(scaling, shards, turns, devices, epoch):
    """Enter predictions, each round's from what devices needed in it without exchange.

    ``shards``: for each number of devices how many are busy, and the examples on each, which names their turns.
    """
    exchange, constants = fit_messages(devices, list(shards), scaling.allreduce, scaling.places)
    settings = scaling.mode, scaling.allreduce, scaling.places
    for row in scaling.rows[1:]:
        busy, n = shards[row.devices]
        steps = []
        for turn in turns[busy, n]:
            compute = Compute([n], [turn.seconds / scaling.steps], busy)
            steps += predict_scaling(
                compute, [row.devices], scaling.batch_size, scaling.parameters, exchange, *settings
            )
        row.enter_prediction(
            [step.seconds_per_step / row.batch_size * epoch for step in steps],
            [turn.seconds / scaling.steps / row.batch_size * epoch for turn in turns[row.devices]],
        )
    seconds = {key: _median(turns[key]) / scaling.steps for key in shards.values()}
    computes = [{"busy": busy, "examples": n, "seconds": time} for (busy, n), time in seconds.items()]
    scaling.model = {"compute": computes, "messages": constants}


def _median(turns):
    return statistics.median(turn.seconds for turn in turns)
