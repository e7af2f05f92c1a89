"""What processes that train one network together share besides gradients: their settings, and what they report.

This module also contains the replica check: are the parameters on all devices still the same? Every ``check_every``
steps, their checksums are compared. All devices do the same updates with the same sums of gradients, so their copies
should never differ by even one bit. If they do, something is wrong: the memory, a cable, or a program that is not the
same everywhere. Without the check, you would notice only that nothing is learned.
"""

import math
from dataclasses import fields

from ..base.text import listed
from ..cluster import check_same_on_all_ranks, gather
from ..cluster.rendezvous import usual_of
from ..devices import to_host
from .history import sha256

DIGITS = 12
"""How many hexadecimal digits of a checksum are compared; a float can hold this many exactly."""


def compare_processes(group, settings, options, test_set, params, checksum, position):
    """Raise ValueError in all processes of a `Cluster` if they begin with different settings, data or ``params``.

    ``checksum``: the training set's.
    """
    if group.world is None:
        return
    what = settings.recorded(fields(settings))
    what |= {"the number of test images": test_set.size, "metrics": sorted(test_set.metrics), "position": position}
    what |= {"checkpoint_steps": options.checkpoint_steps}
    what |= {name: getattr(options, name) is not None for name in ("checkpoint", "keep_best")}
    what["the checksum of the training set"] = checksum and checksum[:16]
    what["the checksum of the initial parameters"] = sha256(params)[:16]
    check_same_on_all_ranks(group.world, what, group.patience, "the comparison of what they train")


def share_times(group, history):
    """Make ``history`` the same in all processes of a `Cluster`: rank 0's seconds, and how busy all devices were.

    The seconds of ``phases`` are means over all devices.
    """
    if group.size == 1:
        return
    speed = history.examples_per_second
    own = [*history.seconds_per_epoch, math.nan if speed is None else speed, *history.phases.values()]
    rows = gather(group, [[*own, worked] for worked in history.utilisation.values()])
    epochs = len(history.seconds_per_epoch)
    history.seconds_per_epoch = rows[0, :epochs].tolist()
    history.examples_per_second = None if speed is None else float(rows[0, epochs])
    history.phases = dict(zip(history.phases, rows[:, epochs + 1 : -1].mean(axis=0).tolist(), strict=True))
    history.utilisation = dict(zip(group.names, rows[:, -1].tolist(), strict=True))


class DriftError(RuntimeError):
    """Copies of the parameters differ, although they should be the same."""


def check_copies(copies, group, with_statistics, epoch, step):
    """Raise DriftError, in all processes, if ``copies`` (see `Runner`) differ after ``step`` of ``epoch``, from 1.

    ``with_statistics``: whether batch norm's statistics should be alike, too.
    """
    arrays = [[*params, *(statistics if with_statistics else ())] for params, statistics in copies]
    found = gather(group, [[int(sha256(map(to_host, own))[:DIGITS], 16)] for own in arrays])
    has_statistics = with_statistics and bool(copies[0][1])
    what = "parameters or statistics" if has_statistics else "parameters"
    _check_alike(group.names, found[:, 0].tolist(), what, epoch, step)


def _check_alike(names, checksums, what, epoch, step):
    usual = usual_of(checksums)
    others = [name for name, checksum in zip(names, checksums, strict=True) if checksum != usual]
    if not others:
        return
    same = [name for name in names if name not in others]
    known = "" if len(same) > 1 else " (which of them is right is not known)"
    raise DriftError(
        f"after step {step} of epoch {epoch} "
        f"the {what} on {listed(others)} differ from those on {listed(same)}{known}; "
        "no checkpoint of them was written"
    )
