"""Are the parameters of all devices still the same? Every so many steps a checksum of them is compared.

All devices do the same updates with the same sums of gradients, so that their copies never differ, in no bit. If they
do, something is broken: memory, a cable, a program that differs. Who trains on would only find that nothing is learned.
"""

import hashlib

import numpy as np

from ..cluster import gather
from ..cluster.agree import usual_of
from ..devices import to_host
from ..words import listed


class DriftError(RuntimeError):
    """Copies of the parameters that should be the same are not."""


def check_replicas(everybody, replicas, batch_statistics, epoch, step):
    """Raise DriftError, in all processes, if devices of a `Cluster` differ after ``step`` of ``epoch``, from 1 both.

    ``replicas`` are those of this process's devices. Compared are parameters, and batch norm's statistics unless they
    are each device's own: "local". All processes call it, between the same steps.
    """
    what = "parameters" if batch_statistics == "local" or not replicas[0].statistics else "parameters or statistics"
    found = gather(everybody, [_checksum(replica, batch_statistics) for replica in replicas])
    checksums = [tuple(row) for row in found.tolist()]
    if len(set(checksums)) == 1:
        return
    usual = usual_of(checksums)
    others = [name for name, checksum in zip(everybody.names, checksums, strict=True) if checksum != usual]
    same = [name for name, checksum in zip(everybody.names, checksums, strict=True) if checksum == usual]
    known = "" if len(same) > 1 else " (which of them is right, nobody knows)"
    raise DriftError(
        f"after step {step} of epoch {epoch} the {what} on {listed(others)} are not those on {listed(same)}{known}; "
        "no checkpoint was written of them"
    )


def _checksum(replica, batch_statistics):
    """Of one device's copy: two whole numbers below 2³², which travel as floats."""
    arrays = [*replica.params, *(() if batch_statistics == "local" else replica.statistics)]
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(to_host(array)))
    return [int.from_bytes(digest.digest()[start : start + 4], "big") for start in (0, 4)]
