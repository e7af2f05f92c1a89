"""Sum arrays over devices, or carry out any schedule: check what is given, and submit it to the devices.

    "ring", k, n ─► schedule (algorithms/ring.py) ─► program (phases.py) ─► work in the devices' queues (execute.py)

What is given is checked here; `add_allreduce` (execute.py), which the training step calls, checks nothing.
"""

import functools
from typing import Any

from ..base.arguments import check_function, check_list, check_name, shown
from ..devices import Batch, DeviceArray, check_devices
from .algorithms import ALGORITHMS
from .execute import Collective, add_allreduce, add_program, needs_staging
from .nccl import LIBRARIES
from .phases import compile_schedule
from .prove import check_form, prove

NAMES = (*ALGORITHMS, *LIBRARIES)
TRAINING_NAMES = tuple(name for name in NAMES if name != "none")
"""The names of all allreduces, and of those that keep replicas identical."""


def check_algorithm(name, training=False):
    """Raise ValueError, listing the known names, unless ``name`` is an allreduce or a function that makes schedules.

    If ``training`` is true, "none" is an error, too, because replicas would drift apart. A `Collective`,
    such as `cluster.across` makes, is also accepted.
    """
    if training and isinstance(name, str) and name == "none":
        raise ValueError("allreduce 'none' exchanges nothing, so replicas drift apart; it is for measurements only")
    if callable(name):
        check_function("allreduce", name, "k", "n")
    elif not isinstance(name, Collective):
        known = [known for known in (*ALGORITHMS, *LIBRARIES) if not training or known != "none"]
        check_name("allreduce", name, known, also=", or give a function of k and n")


def find_algorithm(algorithm):
    """What carries out an ``algorithm`` that `check_algorithm` accepts: a function of k and n, or a `Collective`.

    If ``algorithm`` is your own function, the one returned also proves each schedule, which may raise `ScheduleError`.
    """
    if isinstance(algorithm, str):
        return LIBRARIES.get(algorithm) or ALGORITHMS[algorithm]
    return _proved(algorithm) if callable(algorithm) else algorithm


@functools.lru_cache
def _proved(function):
    def schedules(k, n):
        schedule = function(k, n)
        prove(schedule, k, n)
        return schedule

    return schedules


def allreduce(data, algorithm: Any = "naive"):
    """Sum arrays over devices, in place: afterwards each array holds the sum of all.

    ``data`` is a list of arrays of the same shape and dtype, each on a different device. ``algorithm`` is a name from
    `ALGORITHMS`, "nccl", or your own function of k and n like those in `ALGORITHMS`; its schedules are proved correct
    before they run. ``d2l.cluster().across(algorithm)`` sums over the devices of all processes; each process passes its
    own arrays. All devices end with the same bits in every run, because the schedule fixes the order of the additions.

    The whole sum is submitted to the devices as one batch.

    Raises ValueError if the arrays differ in shape or dtype, share a device or are not contiguous, or if the algorithm
    is unknown; `ScheduleError` if your own function is not an allreduce; DeviceError for "nccl" where it cannot run.
    """
    check_algorithm(algorithm)
    data = check_arrays(data)
    batch = Batch()
    add_allreduce(batch, data, find_algorithm(algorithm))
    batch.commit()


def execute(schedule, arrays):
    """Carry out any schedule in place on ``arrays``: contiguous arrays, one on each device.

    The host program does not wait for the collective, but work that is submitted to the devices afterwards, and
    `to_host`, do.

    Raises ValueError unless the arrays have the same shape and dtype, are contiguous and lie on different devices, and
    ScheduleError for transfers between devices, or of elements, that do not exist.
    """
    arrays = check_arrays(arrays)
    *_, schedule, _ = check_form(schedule, len(arrays), arrays[0].size)
    staged = needs_staging([array.device for array in arrays], arrays[0].dtype)
    batch = Batch()
    add_program(batch, compile_schedule(schedule, len(arrays), staged), arrays)
    batch.commit()


def check_arrays(arrays):
    """Return ``arrays`` as a list. Raises ValueError unless they are alike, contiguous, and on different devices."""
    arrays = check_list("collective: data", arrays, of="arrays, one for each device")
    if not arrays:
        raise ValueError("collective: the list of arrays is empty; it should hold one array for each device")
    first = arrays[0]
    for array in arrays:
        if not isinstance(array, DeviceArray):
            raise ValueError(
                f"collective: {shown(array)} is not on a device; d2l.put(x, device) copies an array to one"
            )
        if (array.shape, array.dtype) != (first.shape, first.dtype):
            raise ValueError(
                f"collective: {array.dtype} array of shape {array.shape} on {array.device} beside "
                f"{first.dtype} {first.shape} on {first.device}; all should be alike"
            )
        if not array.flags.c_contiguous:
            raise ValueError(f"collective: the array on {array.device} is a strided view; pass a contiguous array")
    check_devices([array.device for array in arrays])
    return arrays
