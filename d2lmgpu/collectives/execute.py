"""One reader of schedules: do it, on real arrays on real devices.

Each device gets its part of the schedule as work for its queue (see phases.py), so
that all parts run at the same time. Short arrays of virtual devices are an
exception: see `SHORT`.
"""

from ..arguments import check_list, shown
from ..devices import Batch, DeviceArray, check_devices
from ..devices.transfer import note_transfer
from ..timing import spans
from .phases import add_phases, do_action, needs_staging, stage_of
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
        add_phases(batch, program, devices, flat, records)


def _do_all(program, devices, flat, records):
    """Runs on one device: all devices' phases."""
    with spans(devices, "allreduce"):
        for i, phase in program.order:
            stage = stage_of(program, i, devices[i], flat[i].dtype)
            for action in phase.actions:
                do_action(action, i, devices, flat, stage, records[action.number])


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
