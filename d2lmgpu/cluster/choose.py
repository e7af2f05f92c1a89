"""Find the fastest allreduce on these devices: ``allreduce="auto"`` does this once before training.

    1  measure messages between devices (measure.py), which shows how fast the wires are
    2  simulate all known allreduces on these wires, and invent one for them (collectives/invent.py)
    3  measure the few that are fastest in the simulation, the invented one, and the libraries that are available

Thanks to the simulation, the slow ones need not be measured; the choice depends only on the measurements.
"""

import functools

from ..collectives import ALGORITHMS, TRAINING_NAMES, invented, measure_allreduce, simulate
from ..collectives.library import check_cards, nccl_library
from ..collectives.network import read_wires
from ..devices import DeviceError
from ..devices.trials import works
from ..words import listed
from .gather import gather
from .measure import measure_across, measure_wires, wiring_of

FEW = 3
"""How many of the known allreduces are measured."""

SIZES = 2**12, 2**16, 2**18
"""The sizes, in bytes, of the messages that are timed: small ones, since wires between hosts may be slow."""


def choose(cluster, n):
    """The fastest allreduce of n float32 elements over the devices of a `Cluster`.

    Returns its name, the measured seconds by name, and the wiring that was found, a string for `on_wiring`. All
    processes call this and get the same result.
    """
    wiring = wiring_of(cluster, measure_wires(cluster, SIZES, hosts=True))
    network, k = read_wires(wiring), len(cluster)
    names = [name for name in TRAINING_NAMES if name in ALGORITHMS]
    simulated = {name: simulate(cluster.schedules(name)(k, n), network).seconds for name in names}
    fast = [*sorted(simulated, key=simulated.get)[:FEW], *_libraries(cluster)]
    tried = dict(zip(fast, fast, strict=True))
    own = on_wiring("invented", wiring)
    if own(k, n).name not in ALGORITHMS:
        tried["invented"] = own
    rows = _measure(cluster, [*tried.values()], 4 * n)
    seconds = dict(zip(tried, [row.seconds for row in rows], strict=True))
    return min(seconds, key=seconds.get), seconds, wiring


@functools.lru_cache
def on_wiring(name, wiring):
    """The allreduce that `choose` found, given the name and wiring that it returned: a name, or a function of k and n.

    It is cached, so that an invented allreduce is not invented again for training.
    """
    if name != "invented":
        return name
    return invented(read_wires(wiring, "the wiring that was measured"))


def _libraries(cluster):
    """Yield the libraries that work in all processes; each is tried."""
    for name in ("mpi", "nccl"):
        here = [[_works(cluster, name)]] * len(cluster.mine)
        if gather(cluster, here).all():
            yield name


def _works(cluster, name):
    try:
        cluster.across(name)
        if cluster.size == 1:
            check_cards(cluster.mine)
            nccl_library()
    except DeviceError:
        return False
    names, once = listed(cluster.mine), lambda: _measure(cluster, [name], 4)
    return name != "nccl" or works(names, "NCCL", "it is not measured", once)


def _measure(cluster, allreduces, nbytes):
    if cluster.size > 1:
        return [*measure_across(cluster, allreduces, [nbytes])]
    return [*measure_allreduce(cluster.mine, allreduces, [nbytes])]
