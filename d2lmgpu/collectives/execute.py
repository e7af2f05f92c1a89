"""Carry out a schedule on real arrays on real devices.

Devices do their parts of the compiled schedule phase by phase (see phases.py). On virtual devices, arrays of up to
`SHORT` bytes, such as all of LeNet's gradients, are exchanged by one thread, which does every device's part once all
devices have reached the exchange. With longer arrays, and on GPUs, all devices work at the same time, each in its own
queue.

In the latter case, a device waits for other devices' phases only where it must. On a GPU, a phase counts as done when
its work has been given to the stream; another GPU waits for that work by letting its own stream wait for a CUDA event,
and a virtual device fetches messages in the GPU's stream. Where cards can use each other's memory, a kernel adds
directly from the other card; otherwise messages are copied to a staging buffer first.
"""

import itertools
from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np

from ..devices import array_module
from ..devices.peers import ADDERS, connect
from ..devices.records import note_transfer, span
from ..devices.transfer import copy_between
from .phases import compile_algorithm

SHORT = 2**21
"""Up to this many bytes, one thread carries out a collective for all virtual devices.

Synchronising in every step takes longer than copying such arrays on one core
(docs/performance.md shows by how much).
"""


@runtime_checkable
class Collective(Protocol):
    """An allreduce that a library carries out, or one over the devices of a cluster.

    ``schedules``: the function of k and n that makes its schedules; None for a library, which does not show them.
    """

    schedules: Callable | None

    def add_to(self, batch, data):
        """Add to a `Batch`: sum the arrays ``data``, one on each device, in place."""


def add_allreduce(batch, arrays, algorithm):
    """Add to a `Batch`: sum the arrays, one a device, in place.

    ``algorithm``: a function like those in `ALGORITHMS`, or a `Collective`; `find_algorithm` returns one for a name.
    """
    if isinstance(algorithm, Collective):
        algorithm.add_to(batch, arrays)
        return
    staged = needs_staging([array.device for array in arrays], arrays[0].dtype)
    add_program(batch, compile_algorithm(algorithm, len(arrays), arrays[0].size, staged), arrays)


def add_program(batch, program, arrays):
    """Add the `Phases` of a collective over arrays that exist, one a device, to a `Batch`."""
    flat = [array.raw.reshape(-1) for array in arrays]  # views, since the arrays are contiguous
    add_exchange(batch, program, [array.device for array in arrays], flat, arrays[0].size, arrays[0].dtype.itemsize)


def add_exchange(batch, program, devices, flat, size, itemsize):
    """Add the `Phases` of a collective over flat arrays of ``size`` elements to a `Batch`.

    ``flat[i]`` is looked up when device i does its work, so work that is submitted earlier may make the array, as a
    plan's computations do. ``flat`` may be any object with such a lookup.
    """
    for t in itertools.chain.from_iterable(program.steps):
        note_transfer(devices[t.source], devices[t.destination], t.size * itemsize)
    if size * itemsize <= SHORT and all(device.kind == "cpu" for device in devices):
        batch.submit_to_all(devices, _do_all_phases, program, devices, flat)
    else:
        add_phases(batch, program, devices, flat)


def _do_all_phases(program, devices, flat):
    """Do all devices' phases in their order; runs on one of the virtual devices."""
    with span("allreduce", devices), np.errstate(invalid="ignore"):  # infinities may cancel: networks/mixed.py
        for i, phase in program.order:
            _do_phase(phase, i, devices, flat, program)


def add_phases(batch, program, devices, flat):
    """Add each device's part of a `Phases` to a `Batch`. ``flat``: the devices' flat plain arrays."""
    done = [[batch.record(device)] for device in devices]  # events: each device has arrived, and has done each phase
    for i, phase in program.order:
        for other, count in phase.waits:
            batch.wait(devices[i], done[other][count])
        before = [done[other][count] for other, count in phase.waits if count]
        done[i].append(batch.submit(devices[i], _do_own_phase, before, phase, i, devices, flat, program))
    for device, readers in zip(devices, program.readers, strict=True):
        for reader in readers:  # work that overwrites the array comes after what still reads it
            batch.wait(device, done[reader][-1])


def _do_own_phase(before, phase, i, devices, *what):
    """Do one of device i's own phases; runs on it. The result is a mark on which other devices can wait.

    ``before``: the phases of other devices that this phase has waited for. If one of them failed, this phase fails,
    too, and so do all phases that wait for it.
    """
    for task in before:
        if task.error:
            raise task.error
    with span("allreduce"), np.errstate(invalid="ignore"):
        _do_phase(phase, i, devices, *what)
    return devices[i].mark()


def _do_phase(phase, i, devices, flat, program):
    size = program.stage_sizes[i]
    stage = devices[i].buffer("stage", size, flat[i].dtype) if size else None  # lasts until the next collective
    for action in phase.actions:
        do_action(action, i, devices, flat, stage)


def needs_staging(devices, dtype):
    """Whether every message must be staged because a device's code cannot read another's memory.

    This is the case where only some devices are GPUs, between cards that cannot use each other's memory, and for dtypes
    that none of our kernels can add.
    """
    places = {getattr(device, "card", "host") for device in devices}
    if len(places) == 1:
        return False
    return "host" in places or str(dtype) not in ADDERS["gpu"].dtypes or not are_connected(places)


def are_connected(cards):
    """Whether kernels on each of the cards can add arrays that lie on the others."""
    pairs = itertools.combinations(sorted(cards), 2)
    return all(connect(card, other) and ADDERS["gpu"].works(card, other) for card, other in pairs)


def do_action(action, i, devices, flat, stage):
    """Do a `PhaseAction` of device i's program on the devices' flat plain arrays. Runs where device i is current.

    ``stage``: the device's plain staging buffer, or None if the program needs none.
    """
    part, source = slice(action.start, action.stop), action.source
    staged = slice(action.stage, action.stage + action.stop - action.start)
    if action.kind == "apply":  # the array of the message's source may be gone
        source, message = i, stage[staged]
    else:
        message = flat[source][part]
    if action.kind == "fetch":
        copy_between(stage[staged], devices[i], message, devices[source])
    elif action.op == "add":
        _add(flat[i][part], message, devices[i], devices[source])
    else:
        copy_between(flat[i][part], devices[i], message, devices[source])


def _add(target, message, device, source):
    """Add the message to the target; the two may lie on different cards."""
    if getattr(device, "card", None) != getattr(source, "card", None):
        ADDERS["gpu"].add(target, message)
    else:
        array_module(target).add(target, message, out=target)
