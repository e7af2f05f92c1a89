"""Scaling experiments: the same network trained on 1, 2, 4, … devices.

    strong   the minibatch stays the same, and each of k devices gets a k-th of it
    weak     each device's part stays the same, and the minibatch is k times as large

Sources: Amdahl 1967 for the limits of strong scaling, Gustafson 1988 for weak scaling.
"""

import math
import statistics

from ..arguments import plain
from ..collectives import check_algorithm
from ..devices import check_devices
from ..measuring import take_rounds
from .predict import Compute, check_predictable, fit_messages, predict_scaling
from .setup import batch_sizes, begin, check_counts, check_steps, count_places, find_subject
from .turns import Contender, make_rows

MOST_STEPS = 100
"""The most steps of a turn in `measure_compute`."""


def measure_scaling(devices, counts=(1, 2, 4), mode="strong", algorithm="ring", steps=20, predict=False, **what):
    """Time training on the first k of ``devices``, for each k in ``counts``, which includes 1; return a `Scaling`.

    In each round, for each k in turn, k devices train for ``steps`` whole steps, as in `train` (fewer if the data set
    has fewer minibatches); see `take_rounds`. The other arguments, such as the network and the number of rounds,
    ``repeats``, are those of `setup.begin`.

    ``predict``: add predictions to the rows. For these, in the same rounds, as many of the k devices as can work at the
    same time also train independently; then messages are timed.

    Raises ValueError, before anything is trained, for settings that make no sense.
    """
    devices = check_devices(devices)
    counts = check_counts(counts, devices)
    check_algorithm(algorithm, training=True)
    if predict:
        check_predictable(algorithm)
    scaling, data, network = begin(devices, algorithm, mode, **what)
    scaling.devices = [str(device) for device in devices[: max(counts)]]
    batches, how, repeats = batch_sizes(mode, counts, scaling.batch_size), scaling.settings, scaling.rounds
    scaling.steps = steps = check_steps(steps, repeats, batches, len(data[0]))
    scaling.places = places = count_places(devices)
    contenders = {k: Contender([devices[:k]], network, batches[k], steps, data, algorithm, how) for k in counts}
    shards = {k: (min(k, places), math.ceil(batches[k] / k)) for k in counts if k > 1 and predict}
    for busy, n in set(shards.values()):
        alone = [[device] for device in devices[:busy]]
        contenders[busy, n] = Contender(alone, network, n, steps, data, how=how)
    turns = take_rounds(contenders, repeats)
    scaling.rows = make_rows({k: turns[k] for k in counts}, batches, steps, len(data[0]))
    if shards:
        _predict(scaling, shards, turns, devices, len(data[0]))
    return scaling


def measure_compute(devices, sizes, network="lenet", width=1, steps=20, repeats=5, data=None):
    """Time steps in which devices exchange nothing, for parts of all ``sizes``; return a `Compute`.

    Each of ``devices`` trains its own network at the same time, with minibatches of
    these sizes; a single device has the machine to itself. ``steps`` is for the largest
    size; smaller sizes take more steps, up to `MOST_STEPS`, so that no turn is too short
    to be timed. The other arguments are those of `measure_scaling`.

    Raises ValueError for settings that make no sense.
    """
    data, _, network = find_subject(data, network, width)
    sizes = sorted(plain(sizes))
    steps = check_steps(steps, repeats, {1: sizes[-1]}, len(data[0]))
    groups = [[device] for device in devices]
    counts = {n: max(steps, min(MOST_STEPS, steps * sizes[-1] // n)) for n in sizes}
    turns = take_rounds({n: Contender(groups, network, n, counts[n], data) for n in sizes}, repeats)
    return Compute(sizes, [_median(turns[n]) / counts[n] for n in sizes])


def _predict(scaling, shards, turns, devices, epoch):
    """Add predictions. Those for a round come from the times that devices needed in it without an exchange.

    ``shards``: for each number of devices, how many are busy, and the number of examples on each; this pair is the key
    of their turns.
    """
    exchange, constants = fit_messages(devices, list(shards), scaling.allreduce, scaling.places)
    step = scaling.batch_size, scaling.parameters, exchange, scaling.mode, scaling.allreduce, scaling.places
    for row in scaling.rows[1:]:
        busy, n = shards[row.devices]
        steps = []
        for turn in turns[busy, n]:
            compute = Compute([n], [turn.seconds / scaling.steps])
            steps += predict_scaling(compute, [row.devices], *step)
        predicted = [step.seconds_per_step / row.batch_size * epoch for step in steps]
        measured = [turn.seconds / scaling.steps / row.batch_size * epoch for turn in turns[row.devices]]
        row.enter_prediction(predicted, measured)
    seconds = {key: _median(turns[key]) / scaling.steps for key in shards.values()}
    computes = [{"busy": busy, "examples": n, "seconds": time} for (busy, n), time in seconds.items()]
    scaling.model = {"compute": computes, "messages": constants}


def _median(turns):
    return statistics.median(turn.seconds for turn in turns)
