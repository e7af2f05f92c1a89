"""The devices of several processes, on one machine or on many; MPI carries the messages between the processes."""

from .gather import (
    add_gather as add_gather,
    gather as gather,
    rows_gathered as rows_gathered,
    sum_disjoint as sum_disjoint,
)
from .launch import NoDeviceError as NoDeviceError, begin_together as begin_together
from .members import Across as Across, Cluster as Cluster, Place as Place, as_cluster as as_cluster, cluster as cluster
from .rendezvous import (
    PATIENCE as PATIENCE,
    check_same_on_all_ranks as check_same_on_all_ranks,
    checksum_of_code as checksum_of_code,
)
