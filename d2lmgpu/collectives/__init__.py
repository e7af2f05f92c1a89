"""Collectives as schedules: one file for each algorithm, and the modules that read schedules."""

from ..language.actions import Transfer as Transfer, chunk_bounds as chunk_bounds, place as place, together as together
from ..language.prove import Proof as Proof, ScheduleError as ScheduleError, prove as prove
from .algorithms import ALGORITHMS as ALGORITHMS
from .allreduce import (
    NAMES as NAMES,
    TRAINING_NAMES as TRAINING_NAMES,
    allreduce as allreduce,
    check_algorithm as check_algorithm,
    execute as execute,
    find_algorithm as find_algorithm,
    schedules_of as schedules_of,
)
from .along import order_along as order_along, ring_along as ring_along
from .bidirectional_ring import bidirectional_ring as bidirectional_ring
from .bounds import bound as bound
from .draw import draw_bytes as draw_bytes, draw_steps as draw_steps, plot_times as plot_times
from .execute import add_allreduce as add_allreduce
from .halving_doubling import halving_doubling as halving_doubling
from .hierarchical import hierarchical as hierarchical
from .html import write_html as write_html
from .invent import Invented as Invented, invent as invent, invented as invented
from .library import LIBRARIES as LIBRARIES
from .measure import (
    fit_virtual_devices as fit_virtual_devices,
    measure_allreduce as measure_allreduce,
    virtual_devices as virtual_devices,
)
from .naive import naive as naive
from .none import none as none
from .recursive_doubling import recursive_doubling as recursive_doubling
from .ring import all_gather as all_gather, reduce_scatter as reduce_scatter, ring as ring
from .sharded import sharded as sharded
from .simulate import Simulation as Simulation, simulate as simulate
from .tree import tree as tree
