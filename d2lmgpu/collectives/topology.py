"""The definition of a network: its links, and the route that each message takes over them.

A link carries ``bandwidth`` bytes per second in one direction, which all messages of a step that go over it share. Each
message also takes the latency of its route once (α), and occupies each link for the link's ``occupancy``, however short
the message is. A device that adds a message it receives spends ``reduce_seconds_per_byte`` (γ) on it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..base.arguments import MAX_DEVICES, check_whole, shown

NO_LINK = -1
"""The number that fills up routes with fewer links than the longest."""


@dataclass(eq=False)
class Topology:
    """A network of ``k`` devices.

    ``bandwidth`` (bytes/s) and ``occupancy`` (seconds per message) are arrays with an entry for each link, or one
    number for all links; ``links`` lists the links' names. ``route(sources, destinations)`` takes arrays of m device
    numbers and returns the links of each route: an array (m, hops) of link numbers, with `NO_LINK` where a route is
    shorter. ``latency(sources, destinations)`` returns α for each route, in seconds; it may be one number for all.
    ``startup``: seconds before the first step. ``direct``: a boolean array (k, k), true where a message passes through
    no other device, by default everywhere. ``wired``: the wires and latency from which the network was made.
    """

    name: str
    k: int
    links: list
    bandwidth: np.ndarray
    route: Callable
    latency: Callable = 0.0
    occupancy: np.ndarray = 0.0
    reduce_seconds_per_byte: float = 0.0
    startup: float = 0.0
    direct: np.ndarray = None
    wired: tuple = None

    def __post_init__(self):
        self.k = check_whole(f"{self.name}: the number of devices", self.k, most=MAX_DEVICES)
        for name in ("bandwidth", "occupancy"):
            setattr(self, name, np.full(len(self.links), getattr(self, name), float))
        if not callable(self.latency):
            seconds = float(self.latency)
            self.latency = lambda sources, destinations: np.full(len(sources), seconds)
        if self.direct is None:
            self.direct = ~np.eye(self.k, dtype=bool)
        if not (self.bandwidth > 0).all():
            raise ValueError(f"{self.name}: the lowest bandwidth is {self.bandwidth.min()}; all should be above 0")


def check_topology(network):
    """Return ``network``. Raises ValueError unless it is a `Topology`."""
    if not isinstance(network, Topology):
        raise ValueError(f"network is {shown(network)}; give one of collectives.network, such as full_switch(4, 16e9)")
    return network
