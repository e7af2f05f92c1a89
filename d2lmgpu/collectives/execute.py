"""One reader of schedules: do it, on real arrays on real devices.

Each device gets its part of the schedule as work for its queue, phase by phase
(see program.py), and waits for others' phases only where it must, so that all
parts run at the same time. On a GPU a phase is done when its work was given to
the stream; a GPU that waits for it lets its own stream wait for a CUDA event, and
a virtual device fetches in the GPU's stream. A kernel adds what lies on another
card where the cards use each other's memory; otherwise messages are copied to a
staging buffer first. Short arrays of virtual devices are an exception: see `SHORT`.
"""

import itertools

import numpy as np

from ..arguments import check_list, shown
from ..devices import Batch, DeviceArray, array_module, check_devices
from ..devices.peers import connect
from ..devices.transfer import copy_between, note_transfer, timed
from ..kernels.cuda import add
from ..timing import span, spans
from .program import compile_schedule
from .prove import check_form

SHORT = 2**21
"""Bytes up to which one worker carries out the collective of virtual devices for all of them, when all have got there.

Meeting in every step takes longer than copying such arrays on one core
(benchmarks/compare_gloo.py shows by how much).
"""


def execute(schedule, arrays):
    """Carry out a schedule, any schedule, in place on ``arrays``: contiguous ones, one on each device.

    The host program does not wait: work that is submitted to the devices
    afterwards, and `to_host`, come after the collective.

    Raises ValueError for arrays that are not alike, contiguous, and one a device,
    and ScheduleError for transfers between devices or of elements that there are not.
    """
    arrays = check_arrays(arrays)
    schedule = check_form(schedule, len(arrays), arrays[0].size)
    batch = Batch()
    add_program(batch, compile_schedule(schedule, len(arrays), needs_staging(arrays)), arrays)
    batch.commit()


def add_program(batch, program, arrays):
    """Add each device's part of a compiled schedule to a `Batch`."""
    devices = [array.device for array in arrays]
    flat = [array.raw.reshape(-1) for array in arrays]  # views, since the arrays are contiguous
    itemsize = arrays[0].dtype.itemsize
    records = [note_transfer(devices[t.source], devices[t.destination], t.size * itemsize) for t in program.transfers]
    if arrays[0].nbytes <= SHORT and all(device.kind == "cpu" for device in devices):
        batch.submit_to_all(devices, _do_all, program, devices, flat, records)
    else:
        _add_phases(batch, program, devices, flat, records)


def _add_phases(batch, program, devices, flat, records):
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
        stage = _stage(program, i, devices[i], flat[i].dtype)
        for action in phase.actions:
            do_action(action, i, devices, flat, stage, records[action.number])
    return devices[i].mark()


def _do_all(program, devices, flat, records):
    """Runs on one device: all devices' phases."""
    with spans(devices, "allreduce"):
        for i, phase in program.order:
            stage = _stage(program, i, devices[i], flat[i].dtype)
            for action in phase.actions:
                do_action(action, i, devices, flat, stage, records[action.number])


def _stage(program, i, device, dtype):
    """Device i's staging buffer: it lasts until the next collective."""
    size = program.stage_sizes[i]
    return device.buffer("stage", size, dtype) if size else None


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


def check_arrays(arrays):
    """``arrays`` as a list. Raises ValueError unless they can be reduced: alike, contiguous, one on each device."""
    if not isinstance(arrays, (list, tuple)):
        arrays = check_list("collective: data", arrays, of="arrays, one for each device")
    if not arrays:
        raise ValueError("collective: the list of arrays is empty; it should hold one array for each device")
    first = arrays[0]
    for array in arrays:
        if not isinstance(array, DeviceArray):
            raise ValueError(
                f"collective: {shown(array)} is not on a device; d2l.put(x, device) copies an array to one"
            )
        if (array.shape, array.dtype) != (first.shape, first.dtype):
            raise ValueError(
                f"collective: {array.dtype} array of shape {array.shape} on {array.device} beside "
                f"{first.dtype} {first.shape} on {first.device}; all should be alike"
            )
        if not array.flags.c_contiguous:
            raise ValueError(f"collective: the array on {array.device} is a strided view; pass contiguous arrays")
    check_devices([array.device for array in arrays])
    return arrays


def do_action(action, i, devices, flat, stage, record):
    """Do an `Action` of device i's program on all devices' flat plain arrays. Runs where that device is current.

    ``stage``: the device's plain staging buffer, None if the program has no use for one.
    """
    kind, source, start, stop, op, place, _ = action
    target, message = flat[i][start:stop], flat[source][start:stop]
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
