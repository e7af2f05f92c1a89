"""A collective by all devices at the same time: each does its part of the compiled schedule in its own queue.

A device does its part phase by phase (see program.py), and waits for others' phases
only where it must. On a GPU a phase is done when its work was given to the stream; a
GPU that waits for it lets its own stream wait for a CUDA event, and a virtual device
fetches in the GPU's stream. A kernel adds what lies on another card where the cards
use each other's memory; otherwise messages are copied to a staging buffer first.
"""

import itertools

import numpy as np

from ..devices import array_module
from ..devices.peers import connect
from ..devices.records import timed
from ..devices.transfer import copy_between
from ..kernels.cuda import add
from ..timing import span


def add_phases(batch, program, devices, flat, records):
    """Add each device's part of a `Program` to a `Batch`.

    ``flat``: the devices' flat plain arrays, ``records``: of each transfer, as `note_transfer` gives them.
    """
    done = [[batch.record(device)] for device in devices]  # events: each device is there, and has done each phase
    for i, phase in program.order:
        for other, count in phase.waits:
            batch.wait(devices[i], done[other][count])
        before = [done[other][count] for other, count in phase.waits if count]
        done[i].append(batch.submit(devices[i], _do_phase, phase, i, devices, flat, program, records, before))
    for device, readers in zip(devices, program.readers, strict=True):
        for reader in readers:  # what overwrites the array next comes after those who still read it
            batch.wait(device, done[reader][-1])


def _do_phase(phase, i, devices, flat, program, records, before):
    """Runs on device i; its result, a mark of the phase's end, makes the task an event.

    ``before``: others' phases that are done. If one of them failed, so does this one, and whoever waits for its device.
    """
    for task in before:
        if task.error:
            raise task.error
    with span("allreduce"):
        size = program.stage_sizes[i]
        stage = devices[i].buffer("stage", size, flat[i].dtype) if size else None  # lasts until the next collective
        for action in phase.actions:
            do_action(action, i, devices, flat, stage, records[action.number])
    return devices[i].mark()


def needs_staging(arrays):
    """Whether every message must be staged: where a device's code cannot read another's memory.

    That is so where some devices are GPUs and others not, between cards that do not
    use each other's memory, and for dtypes that no kernel of ours adds.
    """
    places = {getattr(array.device, "card", "host") for array in arrays}
    if len(places) == 1:
        return False
    return "host" in places or str(arrays[0].dtype) not in add.DTYPES or not are_connected(places)


def are_connected(cards):
    """Whether kernels on each of the cards can add what lies on the others."""
    pairs = itertools.combinations(sorted(cards), 2)
    return all(connect(card, other) and add.adds_across(card, other) for card, other in pairs)


def do_action(action, i, devices, flat, stage, record):
    """Do an `Action` of device i's program on all devices' flat plain arrays. Runs where that device is current.

    ``stage``: the device's plain staging buffer, None if the program has no use for one.
    """
    kind, source, start, stop, op, place, _ = action
    target = flat[i][start:stop]
    message = None if kind == "apply" else flat[source][start:stop]  # that array may be gone when a message is applied
    if kind == "direct" and op == "add":
        timed(record, _add, target, message, devices[i], devices[source])
    elif kind == "direct":
        timed(record, copy_between, target, devices[i], message, devices[source])
    elif kind == "fetch":
        timed(record, copy_between, stage[place : place + stop - start], devices[i], message, devices[source])
    elif op == "add":
        _add(target, stage[place : place + stop - start], devices[i], devices[i])
    else:
        target[...] = stage[place : place + stop - start]


def _add(target, message, device, source):
    """target += message, which may lie on another card than the target."""
    if getattr(device, "card", None) != getattr(source, "card", None):
        add.add(target, message)
        return
    with np.errstate(invalid="ignore"):  # infinities may cancel; see parallel/loss_scale.py
        array_module(target).add(target, message, out=target)
