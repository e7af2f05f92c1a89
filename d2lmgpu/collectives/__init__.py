"""Collectives as schedules: a file an algorithm, beside the readers of schedules."""

from .bidirectional_ring import bidirectional_ring
from .draw import animate, draw_bytes, draw_steps, plot_measurements, plot_predictions, plot_times
from .execute import check_arrays, execute, needs_staging, run_program
from .fit import fit_virtual_devices, predict, virtual_devices
from .halving_doubling import halving_doubling
from .hierarchical import hierarchical
from .library import LIBRARIES
from .measure import Measurement, measure, parse_size
from .naive import naive
from .none import none
from .program import compile_algorithm
from .prove import Proof, ScheduleError, prove
from .recursive_doubling import recursive_doubling
from .ring import all_gather, reduce_scatter, ring
from .schedule import Transfer, chunk_bounds, place, together
from .sharded import sharded
from .simulate import Simulation, simulate
from .tree import broadcast, tree

ALGORITHMS = {
    "naive": naive,
    "none": none,
    "sharded": sharded,
    "tree": tree,
    "recursive_doubling": recursive_doubling,
    "halving_doubling": halving_doubling,
    "ring": ring,
    "bidirectional_ring": bidirectional_ring,
    "hierarchical": hierarchical,
}
"""Allreduce algorithms by name: functions of the number of devices k and of elements n, which return a schedule."""


def check_algorithm(name, training=False):
    """Raise ValueError, with the known names, unless ``name`` is an allreduce.

    With ``training`` also for "none", with which replicas would drift apart.
    """
    if name not in ALGORITHMS and name not in LIBRARIES:
        raise ValueError(f"allreduce {name!r} is unknown; choose from {', '.join([*ALGORITHMS, *LIBRARIES])}")
    if training and name == "none":
        raise ValueError("allreduce 'none' exchanges nothing, so that replicas drift apart; it is for measuring only")


def allreduce(data, algorithm="naive"):
    """Sum arrays over devices, in place: afterwards each of them is the sum of all.

    ``data`` is a list of arrays of one shape and dtype, each on another device.
    ``algorithm`` is a name from `ALGORITHMS`, or "nccl". All devices end with the same
    bits, and with the same bits on every run, since the order of additions is
    fixed by the schedule.

    Raises ValueError if the arrays are not alike, not one a device, or not
    contiguous, or if the algorithm is unknown; DeviceError for "nccl" where it
    cannot run.
    """
    check_algorithm(algorithm)
    check_arrays(data)
    if algorithm in LIBRARIES:
        LIBRARIES[algorithm](data)
    else:
        schedule = ALGORITHMS[algorithm]
        run_program(compile_algorithm(schedule, len(data), data[0].size, needs_staging(data)), data)


def measure_allreduce(devices, algorithms, sizes):
    """Time allreduces: yields a `Measurement` for each size in bytes and each algorithm by name.

    Raises ValueError for unknown algorithms, RuntimeError for a wrong sum.
    """
    for algorithm in algorithms:
        check_algorithm(algorithm)
    for nbytes in sizes:
        for algorithm in algorithms:
            schedule = ALGORITHMS.get(algorithm)
            steps = len(schedule(len(devices), nbytes // 4)) if schedule else None
            yield measure(allreduce, devices, algorithm, nbytes, steps)


__all__ = [
    "ALGORITHMS",
    "LIBRARIES",
    "Measurement",
    "Proof",
    "ScheduleError",
    "Simulation",
    "Transfer",
    "all_gather",
    "allreduce",
    "animate",
    "bidirectional_ring",
    "broadcast",
    "check_algorithm",
    "chunk_bounds",
    "draw_bytes",
    "draw_steps",
    "execute",
    "fit_virtual_devices",
    "halving_doubling",
    "hierarchical",
    "measure",
    "measure_allreduce",
    "naive",
    "none",
    "parse_size",
    "place",
    "plot_measurements",
    "plot_predictions",
    "plot_times",
    "predict",
    "prove",
    "recursive_doubling",
    "reduce_scatter",
    "ring",
    "sharded",
    "simulate",
    "together",
    "tree",
    "virtual_devices",
]
