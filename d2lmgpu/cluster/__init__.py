"""The devices of several processes, on one machine or on many: MPI carries the messages between them."""

from .communicator import HangError
from .gather import add_gather, gather, rows_of
from .launch import NoDeviceError, begin_together, started_together
from .measure import Wires, measure_across, measure_wires, network_of
from .members import Across, Cluster, Place, as_cluster, cluster
from .rendezvous import PATIENCE, agree, checksum_of_code
