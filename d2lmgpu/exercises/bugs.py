"""Exercises of notebook 11, find the bug: functions to repair, each tried on more cases than the notebook shows.

faulty.py has the functions before the repair. A function that does the same as
an exercise of notebook 1 or 4 is checked by that exercise's check.
"""

import contextlib
import io

import numpy as np

from ..arguments import is_number
from ..words import several
from . import places, synchronisation
from .checking import Exercise
from .results import Wrong
from .synchronisation import RAGGED

ALLREDUCE, UPDATE, SPLIT = (synchronisation.EXERCISES[name] for name in ("allreduce", "update_replicas", "split_batch"))
TIMED = places.EXERCISES["timed"]


def _try_sum_round_the_ring(answer, k, n):
    """The sum, and no device sends more than 2(k-1) chunks."""
    transfers = synchronisation.try_allreduce(answer, k, n)
    away = [t for t in transfers if t.source != t.destination]
    sent = [sum(t.nbytes for t in away if t.source == f"cpu({i})") // 4 for i in range(k)]
    enough = 2 * (k - 1) * -(-n // k)
    if max(sent) <= enough:
        return
    found = f"{several(k, 'device')}, {n} numbers: right, but a device sends {max(sent)} numbers; {enough} are enough"
    if sent.count(max(sent)) < k:
        raise Wrong(
            f"{found}: device {int(np.argmax(sent))} sends most",
            "one device works for all: let every device add up one chunk, and give it back",
        )
    if any(t.nbytes == 4 * n for t in away):
        raise Wrong(
            f"{found}: all devices send whole arrays",
            "cut the array into k chunks, d2lmgpu.collectives.chunk_bounds(n, k), and send one at a time",
        )
    raise Wrong(found, "a chunk goes round twice: once to be added up, once to be given back as it is")


def _try_step_replicas(answer, sizes):
    """The step of notebook 4's `update_replicas`, given the shards' sizes."""

    def with_sizes(device_params, device_grads, lr, batch_size):
        return answer(device_params, device_grads, list(sizes), lr)

    synchronisation.try_update_replicas(with_sizes, sizes)


def _cut_mistakes(bounds, _, n, k):
    sizes = [stop - start for start, stop in bounds]
    ends = [start for start, _ in bounds] + [n] == [0] + [stop for _, stop in bounds]
    return (
        (len(bounds) != k, f"{len(bounds)} shards", "every device needs a pair, also those with no example left"),
        (not ends, END_TO_END),
        (max(sizes) - min(sizes) > 1, f"shards of {sizes} examples; all devices wait for the largest", RAGGED),
    )


END_TO_END = "the first shard begins at 0, each other one where the one before it ends, and the last ends at n"


def _try_stopwatch(answer, k, repeats):
    """Test it as notebook 1's `timed`; in addition, the times must not include printing.

    Each character that is printed moves the clock by a fraction of a second, and all else by whole seconds.
    """
    screen, printed = io.StringIO(), []

    def quiet(work, devices, repeats, clock):
        with contextlib.redirect_stdout(screen):
            seconds = answer(work, devices, repeats, lambda: clock() + screen.tell() / 1024)
        if screen.tell() and isinstance(seconds, list | tuple):
            printed.extend(value for value in seconds if is_number(value) and value % 1)
        return seconds

    try:
        TIMED.test(quiet, k, repeats)
    except Wrong as wrong:
        if printed:
            what = f"a time of {printed[0]:.4f} s includes the time for printing"
            raise Wrong(what, "print before or after both readings of the clock") from wrong
        raise


SHARE = "several devices may share one GPU, each with a number of its own: gpu(1) may be on the same card as gpu(0)"


def _names_mistakes(names, _, k, gpus):
    kinds = {name[:3] for name in names}
    return (
        (len(names) != k, "return a name for each of the k devices"),
        (len(kinds) > 1, "all wait for the slowest: if there is a GPU, all devices are on GPUs, otherwise none is"),
        (gpus == 0 and kinds == {"gpu"}, "without a GPU all are cpu(0), cpu(1), ..."),
        (gpus > 0 and kinds == {"cpu"}, f"the GPU has nothing to do; {SHARE}"),
        (len(set(names)) < k, "a name is in the list twice; every device has a number of its own"),
    )


IN_PLACE = "data is a list of device arrays of one shape, one on each device; afterwards each holds the sum of all"

EXERCISES = {
    "sum_into_all": ALLREDUCE._replace(
        asks=f"Repair sum_into_all(data): {IN_PLACE}. Whoever holds one of these arrays has to see the sum in it.",
    ),
    "sum_by_chunks": ALLREDUCE._replace(
        asks=f"Repair sum_by_chunks(data): {IN_PLACE}. Each device adds up one chunk, and gives it back to all.",
    ),
    "sum_from_neighbours": ALLREDUCE._replace(
        asks=f"Repair sum_from_neighbours(data), for any number of devices: {IN_PLACE}.",
    ),
    "sum_round_the_ring": ALLREDUCE._replace(
        asks=f"Repair sum_round_the_ring(data): {IN_PLACE}. No device sends more than 2(k - 1) chunks, that is, less "
        "than twice the array, however many devices there are.",
        says="all devices hold the sum, and none sends more than 2(k - 1) chunks, for 2, 3, 5 and 8 devices.",
        test=_try_sum_round_the_ring,
        cases=((2, 1000), (1, 4), (3, 999), (5, 1003), (8, 4000)),
    ),
    "step_replicas": UPDATE._replace(
        asks="Repair step_replicas(device_params, device_grads, shard_sizes, lr): for each device you get the list of "
        "its parameters, the list of its gradients, summed over its shard, and the size of its shard; all replicas "
        "take one step of SGD, in place, as one device would with all examples.",
        test=_try_step_replicas,
        cases=(((4, 3, 3),), ((1, 1, 0),), ((10,),)),
    ),
    "deal_out": SPLIT._replace(
        asks="Repair deal_out(X, y, devices): two lists, with a shard of the images X and of the labels y for each "
        "device, on that device. Sizes differ by one at most.",
    ),
    "cut": Exercise(
        "Repair cut(n, k): a list of k pairs (start, stop), one for each device, which together are the examples 0 to "
        "n - 1 in order. Sizes differ by one at most, and n may be less than k.",
        "k pairs, end to end, whose sizes differ by one at most, for any n.",
        cases=((8, 2), (9, 2), (9, 8), (38, 8), (3, 5), (0, 2), (7, 1)),
        draw=lambda rng: tuple(map(int, rng.integers(1, (300, 20)))),
        mistakes=_cut_mistakes,
        form=[(int, int)],
        returns="return a list of pairs (start, stop)",
        raises="a shard may be empty: a pair (start, stop) of equal numbers",
    ),
    "stopwatch": TIMED._replace(
        asks="Repair stopwatch(work, devices, repeats=5, clock=time.perf_counter): work() submits work to all devices; "
        "clock() reads the time. Return a list of seconds, one for each of `repeats` calls of work() after a warm-up, "
        "until all devices have done it, and nothing else.",
        test=_try_stopwatch,
    ),
    "name_devices": Exercise(
        "Repair name_devices(k, gpus): the names of k devices, 'gpu(0)', 'gpu(1)', ... on a machine with GPUs, however "
        "many it has, and 'cpu(0)', 'cpu(1)', ... on one without.",
        "all of one kind, however many GPUs there are.",
        cases=((2, 2), (2, 1), (3, 0), (4, 1), (4, 3), (1, 8)),
        draw=lambda rng: tuple(map(int, rng.integers((1, 0), 9))),
        right=lambda k, gpus: [f"{'gpu' if gpus else 'cpu'}({i})" for i in range(k)],
        mistakes=_names_mistakes,
        hint="number them from 0 on, in order",
        form=[str],
        returns="return a list of names, such as ['cpu(0)', 'cpu(1)']",
        raises=SHARE,
    ),
}
