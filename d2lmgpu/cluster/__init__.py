"""The devices of several processes, on one machine or on many: MPI carries the messages between them."""

from .agree import agree, checksum_of_code
from .communicator import HangError
from .gather import add_gather, gather, rows_of
from .launch import begin_together, started_together
from .measure import measure_across
from .members import Across, Cluster, Place, as_cluster, cluster
from .messages import Wires, measure_wires, network_of
from .own_devices import NoDeviceError
from .rendezvous import PATIENCE

__all__ = [
    "PATIENCE",
    "Across",
    "Cluster",
    "HangError",
    "NoDeviceError",
    "Place",
    "Wires",
    "add_gather",
    "agree",
    "as_cluster",
    "begin_together",
    "checksum_of_code",
    "cluster",
    "gather",
    "measure_across",
    "measure_wires",
    "network_of",
    "rows_of",
    "started_together",
]
