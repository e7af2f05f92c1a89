"""What a network is: links, and the route that a message takes over them.

A link carries ``bandwidth`` bytes per second, shared by all messages of a step
that go over it, in one direction. Each message also pays the latency of its
route once (α), and occupies each link for the link's ``occupancy``, however
short it is. A device that receives a message to be added spends
``reduce_seconds_per_byte`` (γ) on it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..arguments import shown

NO_LINK = -1
"""Fills up routes that are shorter than the longest."""


@dataclass(eq=False)
class Network:
    """A network of ``k`` devices.

    ``bandwidth`` (bytes/s) and ``occupancy`` (s a message) are arrays with an
    entry for each link, whose names are ``links``; a number is of all of them.
    ``route(sources, destinations)`` takes arrays of m device numbers and gives the
    links on each way: an array (m, hops) of link numbers and `NO_LINK`.
    ``latency(sources, destinations)`` gives α for each, in seconds; a number is of
    all ways. ``startup`` is the time before the first step. ``direct``, (k, k) booleans: from where to where no device
    passes a message on; everywhere unless given. ``wired``: what wires.py made it of.
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
        for name in ("bandwidth", "occupancy"):
            setattr(self, name, np.full(len(self.links), getattr(self, name), float))
        if not callable(self.latency):
            seconds = float(self.latency)
            self.latency = lambda sources, destinations: np.full(len(sources), seconds)
        if self.direct is None:
            self.direct = ~np.eye(self.k, dtype=bool)
        if not (self.bandwidth > 0).all():
            raise ValueError(f"{self.name}: bandwidths are {self.bandwidth.min()} and more; they should be above 0")


def check_network(network):
    """The same. Raises ValueError unless it is a `Network`."""
    if not isinstance(network, Network):
        raise ValueError(f"network is {shown(network)}; give one of collectives.network, such as full_switch(4, 16e9)")
    return network
