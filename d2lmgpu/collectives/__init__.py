"""Collectives as schedules: one file for each algorithm, and the modules that read schedules."""

import functools
from typing import Any

from ..arguments import check_function, check_name, shown
from ..devices import Batch, check_devices
from ..language.actions import Transfer as Transfer, chunk_bounds as chunk_bounds, place as place, together as together
from ..language.prove import Proof as Proof, ScheduleError as ScheduleError, prove as prove
from .algorithms import ALGORITHMS as ALGORITHMS
from .along import order_along as order_along, ring_along as ring_along
from .bidirectional_ring import bidirectional_ring as bidirectional_ring
from .bounds import bound as bound
from .draw import (
    draw_bytes as draw_bytes,
    draw_steps as draw_steps,
    plot_measurements as plot_measurements,
    plot_predictions as plot_predictions,
    plot_times as plot_times,
)
from .execute import add_program, check_arrays, execute as execute, needs_staging
from .fewest import fewest_steps as fewest_steps
from .halving_doubling import halving_doubling as halving_doubling
from .hierarchical import hierarchical as hierarchical
from .html import write_html as write_html
from .invent import Invented as Invented, invent as invent, invented as invented
from .library import LIBRARIES
from .measure import (
    Measurement as Measurement,
    check_measured as check_measured,
    fit_virtual_devices as fit_virtual_devices,
    measure as measure,
    parse_size as parse_size,
    predict as predict,
    virtual_devices as virtual_devices,
)
from .naive import naive as naive
from .none import none as none
from .program import compile_algorithm
from .recursive_doubling import recursive_doubling as recursive_doubling
from .ring import all_gather as all_gather, reduce_scatter as reduce_scatter, ring as ring
from .sharded import sharded as sharded
from .simulate import Simulation as Simulation, simulate as simulate
from .tree import tree as tree

NAMES = (*ALGORITHMS, *LIBRARIES)
TRAINING_NAMES = tuple(name for name in NAMES if name != "none")
"""The names of all allreduces, and of those that keep replicas identical."""


def check_algorithm(name, training=False):
    """Raise ValueError, listing the known names, unless ``name`` is an allreduce or a function that makes schedules.

    If ``training`` is true, "none" is an error, too, because replicas would drift apart. An object with a method
    ``add_to(batch, data)``, which adds the allreduce to a batch, is also accepted: `cluster.across` makes such objects.
    """
    if training and isinstance(name, str) and name == "none":
        raise ValueError("allreduce 'none' exchanges nothing, so replicas drift apart; it is for measurements only")
    if callable(name):
        check_function("allreduce", name, "k", "n")
    elif not hasattr(name, "add_to"):
        known = [known for known in (*ALGORITHMS, *LIBRARIES) if not training or known != "none"]
        check_name("allreduce", name, known, also=", or give a function of k and n")


def schedules_of(algorithm):
    """The function of k and n that makes an algorithm's schedules; ``algorithm`` is a name or your own function.

    If ``algorithm`` is your own function, its schedules are proved first, which may raise `ScheduleError`.
    """
    return _proved(algorithm) if callable(algorithm) else ALGORITHMS[algorithm]


@functools.lru_cache
def _proved(function):
    def schedules(k, n):
        schedule = function(k, n)
        prove(schedule, k, n)
        return schedule

    return schedules


def allreduce(data, algorithm: Any = "naive", batch=None):
    """Sum arrays over devices, in place: afterwards each array holds the sum of all.

    ``data`` is a list of arrays of the same shape and dtype, each on a different device. ``algorithm`` is a name from
    `ALGORITHMS`, "nccl", or your own function of k and n like those in `ALGORITHMS`; its schedules are proved correct
    before they run. ``d2l.cluster().across(algorithm)`` sums over the devices of all processes; each process passes its
    own arrays. All devices end with the same bits in every run, because the schedule fixes the order of the additions.

    The whole sum is submitted to the devices as one batch. If a ``batch`` (`devices.Batch`) is given, the sum is added
    to that batch instead.

    Raises ValueError if the arrays differ in shape or dtype, share a device or are not contiguous, or if the algorithm
    is unknown; `ScheduleError` if your own function is not an allreduce; DeviceError for "nccl" where it cannot run.
    """
    check_algorithm(algorithm)
    data = check_arrays(data)
    if batch is not None and not isinstance(batch, Batch):
        raise ValueError(f"batch is {shown(batch)}; it should be a devices.Batch")
    whole = Batch() if batch is None else batch
    if hasattr(algorithm, "add_to"):
        algorithm.add_to(whole, data)
    elif not callable(algorithm) and algorithm in LIBRARIES:
        LIBRARIES[algorithm](whole, data)
    else:
        schedule = schedules_of(algorithm)
        staged = needs_staging([array.device for array in data], data[0].dtype)
        add_program(whole, compile_algorithm(schedule, len(data), data[0].size, staged), data)
    if batch is None:
        whole.commit()


def measure_allreduce(devices, algorithms, sizes):
    """Time allreduces: an iterator over a `Measurement` for each size in bytes and algorithm (a name or a function).

    Raises ValueError, at once, for unknown algorithms and for sizes that are not whole numbers of at least 4;
    RuntimeError for a wrong sum.
    """
    devices, (algorithms, sizes) = check_devices(devices), check_measured(algorithms, sizes)
    for algorithm in algorithms:
        check_algorithm(algorithm)

    def timed(nbytes, algorithm):
        ours = callable(algorithm) or algorithm in ALGORITHMS
        schedule = schedules_of(algorithm)(len(devices), nbytes // 4) if ours else None
        return measure(allreduce, devices, algorithm, nbytes, schedule)

    return (timed(nbytes, algorithm) for nbytes in sizes for algorithm in algorithms)
