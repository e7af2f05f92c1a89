"""Sums over devices, written as schedules: lists of steps, each a list of transfers that happen at the same time.

Read the modules in this order; all but the first two need only what actions.py says:

    actions.py       what a transfer and a schedule are
    algorithms/      the allreduces, one file each: functions of the number of devices and elements to a schedule
    prove.py         is a schedule right? columns.py holds its transfers as arrays, diagnosis.py says what is wrong
    phases.py        what each device does, and what it waits for
    execute.py       the devices do it; allreduce.py checks what users give, and nccl.py calls NVIDIA's library instead
    simulate.py      how long a schedule takes on a network, which topology.py defines and network.py makes
    bounds.py        how long any schedule takes at least
    benchmark.py     how long an allreduce really takes, and networks fitted to such times
    wirings/         networks of wires, and a search for schedules that suit them
"""

from ..base.packages import looked_up
from .actions import Transfer as Transfer, chunk_bounds as chunk_bounds, in_parallel as in_parallel, place as place
from .algorithms import (
    ALGORITHMS as ALGORITHMS,
    bidirectional_ring as bidirectional_ring,
    halving_doubling as halving_doubling,
    hierarchical as hierarchical,
    naive as naive,
    none as none,
    recursive_doubling as recursive_doubling,
    ring as ring,
    sharded as sharded,
    tree as tree,
)
from .algorithms.ring import all_gather as all_gather, reduce_scatter as reduce_scatter
from .allreduce import (
    NAMES as NAMES,
    TRAINING_NAMES as TRAINING_NAMES,
    allreduce as allreduce,
    check_algorithm as check_algorithm,
    execute as execute,
    find_algorithm as find_algorithm,
)
from .benchmark import measure_allreduce as measure_allreduce
from .bounds import bound as bound
from .execute import Collective as Collective, add_allreduce as add_allreduce
from .nccl import LIBRARIES as LIBRARIES
from .prove import Proof as Proof, ScheduleError as ScheduleError, prove as prove
from .simulate import Simulation as Simulation, simulate as simulate
from .wirings.along import order_along as order_along, ring_along as ring_along
from .wirings.invent import Invented as Invented, invent as invent, invented as invented

__getattr__, __dir__ = looked_up(
    __name__, {"..pictures.schedules": "draw_bytes draw_steps plot_times", "..pictures.films": "write_html"}
)
