"""Fit a network's α, β and γ to measured allreduces, and judge it on others.

The simulated time of a schedule is a sum of four terms, each proportional to
one constant of the network, so that fitting is a problem of least squares
(measuring.py).
"""

import numpy as np

from ..arguments import check_function, check_name, check_number, check_whole, shown
from ..measuring import fit
from .measure import check_rows
from .network import shared_cores
from .simulate import simulate

CONSTANTS = ("startup", "occupancy", "beta", "gamma")
"""Seconds: for each device to begin, for each message, for a byte to be copied, and for a byte to be added."""


def virtual_devices(constants, cores):
    """The network of virtual devices with these constants: a function of the number of devices k.

    Raises ValueError unless ``constants`` is a dict with `CONSTANTS`.
    """
    if not isinstance(constants, dict) or set(constants) != set(CONSTANTS):
        raise ValueError(f"constants are {shown(constants)}; they should be a dict of {', '.join(CONSTANTS)}")
    for name, value in constants.items():
        check_number(name, value, least=0)
    check_whole("cores", cores)

    def network(k):
        beta = max(constants["beta"], 1e-30)
        network = shared_cores(k, cores, 1 / beta, constants["occupancy"], 0.0, constants["gamma"])
        network.startup = k * constants["startup"]
        return network

    return network


def fit_virtual_devices(measurements, algorithms, cores):
    """The `CONSTANTS` of this computer, from `Measurement` rows: a dict.

    ``algorithms`` maps names to schedule functions, ``cores`` is the number of
    cores that the devices share. Raises ValueError for fewer rows than constants, or of unknown algorithms.
    """
    measurements = _check_rows(measurements, algorithms)
    check_whole("cores", cores)
    if len(measurements) < len(CONSTANTS):
        raise ValueError(f"fit: {len(measurements)} measurements are too few for {len(CONSTANTS)} constants")
    terms = [_terms(algorithms[row.algorithm], row.devices, row.bytes, cores) for row in measurements]
    seconds = [row.seconds for row in measurements]
    return dict(zip(CONSTANTS, fit(terms, seconds).tolist(), strict=True))


def predict(measurements, algorithms, network):
    """Simulated seconds for the allreduce of each row; ``network`` is a function of k.

    Raises ValueError without rows, or for those of unknown algorithms.
    """
    measurements = _check_rows(measurements, algorithms)
    check_function("network", network)
    return np.array(
        [
            simulate(algorithms[row.algorithm](row.devices, row.bytes // 4), network(row.devices)).seconds
            for row in measurements
        ]
    )


def _check_rows(measurements, algorithms):
    """The rows, which are of these algorithms."""
    measurements = check_rows(measurements)
    if not isinstance(algorithms, dict) or not all(map(callable, algorithms.values())):
        raise ValueError(f"algorithms are {shown(algorithms)}; give a dict of names and schedule functions")
    for row in measurements:
        check_name("allreduce", row.algorithm, algorithms)
    return measurements


def _terms(algorithm, k, nbytes, cores):
    """Seconds of an allreduce for each constant, were it one and the others zero."""
    schedule = algorithm(k, nbytes // 4)
    terms = []
    for name in CONSTANTS:
        only = {other: float(other == name) for other in CONSTANTS}
        terms.append(simulate(schedule, virtual_devices(only, cores)(k)).seconds)
    return terms
