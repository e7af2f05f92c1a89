"""One reader of schedules: do it, on real arrays on real devices.

Each device gets its part of the schedule as one piece of work for its queue
(see program.py), so that all parts run at the same time and meet only where
they must. Devices signal each other through a `_Meeting`. On a GPU "done" means
that the work was given to the stream, so that a signal carries a CUDA event,
for which the other's stream waits. Short arrays of virtual devices are an
exception: see `SHORT`.
"""

import queue
import threading

from ..devices import DeviceArray, array_module, check_devices
from ..devices.device import take_turns
from ..devices.transfer import copy_between, note_transfer, timed
from ..timing import span, spans
from .program import compile_schedule
from .prove import check_form

SHORT = 2**21
"""Bytes up to which one thread carries out the collective of virtual devices for all of them.

It is the host program's thread if all are idle, otherwise that of the last device to get there.

Waking k threads, which then wake each other in every step, takes longer than
copying such arrays on one core (benchmarks/compare_gloo.py shows by how much).
"""


_submission = threading.Lock()
"""Held while a collective's parts go to the devices' queues: two collectives come in the same order on all of them."""


def execute(schedule, arrays):
    """Carry out a schedule, any schedule, in place on ``arrays``: contiguous ones, one on each device.

    The host program does not wait: work that is submitted to the devices
    afterwards, and `to_host`, come after the collective.

    Raises ValueError for arrays that are not alike, contiguous, and one a device,
    and ScheduleError for transfers between devices or of elements that there are not.
    """
    schedule = [list(step) for step in schedule]
    check_arrays(arrays)
    check_form(schedule, len(arrays), arrays[0].size)
    run_program(compile_schedule(schedule, len(arrays), needs_staging(arrays)), arrays)


def run_program(program, arrays):
    """Submit each device's part of a compiled schedule."""
    devices = [array.device for array in arrays]
    flat = [array.raw.reshape(-1) for array in arrays]  # views, since the arrays are contiguous
    itemsize = arrays[0].dtype.itemsize
    records = [note_transfer(devices[t.source], devices[t.destination], t.size * itemsize) for t in program.transfers]
    if arrays[0].nbytes <= SHORT and all(device.kind == "cpu" for device in devices):
        with take_turns(devices) as allowed:
            if allowed:
                _do_all(program, devices, flat, records)
                return
        last = _LastToArrive(len(devices), program, devices, flat, records)
        with _submission:
            for device in devices:
                device.submit(last.arrive)
        return
    meeting = _Meeting(program)
    with _submission:
        tasks = [
            device.submit(_take_part, i, device, devices, flat, program, records, meeting)
            for i, device in enumerate(devices)
        ]
    for device, readers in zip(devices, program.readers, strict=True):
        for reader in readers:  # what overwrites the array next comes after those who still read it
            device.wait(tasks[reader])


def _do_all(program, devices, flat, records):
    """All devices' parts on the calling thread."""
    with spans(devices, "allreduce"):
        for i, action in program.order:
            do_action(action, i, devices[i], devices, flat, program.stage_sizes[i], records[action.number])


class _LastToArrive:
    """A short collective of virtual devices that have other work to do first: the last to arrive does it for all."""

    def __init__(self, missing, *collective):
        self._missing, self._collective = missing, collective
        self._lock, self._done = threading.Lock(), threading.Event()

    def arrive(self):
        """Runs on each device; returns when the collective is done."""
        with self._lock:
            self._missing -= 1
            last = self._missing == 0
        if not last:
            self._done.wait()
            return
        try:
            _do_all(*self._collective)
        finally:
            self._done.set()


def needs_staging(arrays):
    """Whether every message must be staged: where a device cannot read another's memory (GPUs on several cards)."""
    return len({getattr(array.device, "card", None) for array in arrays}) > 1


def check_arrays(arrays):
    """Raise ValueError unless ``arrays`` can be reduced: alike, contiguous, one on each device of one kind."""
    if not arrays:
        raise ValueError("collective: the list of arrays is empty; it should hold one array for each device")
    first = arrays[0]
    for array in arrays:
        if not isinstance(array, DeviceArray):
            raise ValueError(
                f"collective: {type(array).__name__} is not on a device; d2l.put(x, device) copies an array to one"
            )
        if (array.shape, array.dtype) != (first.shape, first.dtype):
            raise ValueError(
                f"collective: {array.dtype} array of shape {array.shape} on {array.device} beside "
                f"{first.dtype} {first.shape} on {first.device}; all should be alike"
            )
        if not array.flags.c_contiguous:
            raise ValueError(f"collective: the array on {array.device} is a strided view; pass contiguous arrays")
        if array.device.kind != first.device.kind:
            raise ValueError(f"collective: {array.device} beside {first.device}; all devices should be of one kind")
    check_devices(array.device for array in arrays)


class _Meeting:
    """How devices wait for each other's signals during one collective: each has a mailbox for those it needs."""

    def __init__(self, program):
        self._program = program
        self._mailboxes = [queue.SimpleQueue() for _ in program.phases]

    def signal(self, device, number, get_mark):
        """Device ``device`` has done its phase ``number``; ``get_mark`` gives a mark of that."""
        listeners = self._program.listeners[device][number]
        if listeners:
            mark = get_mark()
            for listener in listeners:
                self._mailboxes[listener].put((device, number + 1, mark))

    def wait(self, device, received, other, count):
        """Let ``device`` wait until ``other`` has signalled ``count`` times; returns the mark of that.

        ``received`` is the device's dict of what arrived so far.
        """
        while (other, count) not in received:
            sender, number, mark = self._mailboxes[device].get()
            if sender is None:
                raise RuntimeError("another device failed in this collective") from mark
            received[sender, number] = mark
        return received[other, count]

    def fail(self, error):
        """Let nobody wait for a device that will signal no more."""
        for mailbox in self._mailboxes:
            mailbox.put((None, 0, error))


def _take_part(i, device, devices, flat, program, records, meeting):
    """Device i's part of the program. Runs on the device; returns a mark of its end."""
    received = {}
    try:
        with span("allreduce"):
            for number, (waits, actions) in enumerate(program.phases[i]):
                for other, count in waits:
                    device.await_mark(meeting.wait(i, received, other, count))
                for action in actions:
                    do_action(action, i, device, devices, flat, program.stage_sizes[i], records[action.number])
                meeting.signal(i, number, device.mark)
    except BaseException as error:
        meeting.fail(error)
        raise
    return device.mark()


def do_action(action, i, device, devices, flat, stage_size, record):
    """Do an `Action` of device i's program on all devices' flat plain arrays. Runs where ``device`` is current."""
    kind, source, start, stop, op, stage, _ = action
    target = flat[i][start:stop]
    if kind == "direct":
        timed(record, _APPLY[op], target, flat[source][start:stop])
        return
    staged = device.buffer("stage", stage_size, target.dtype)[stage : stage + stop - start]
    if kind == "fetch":
        timed(record, copy_between, staged, device, flat[source][start:stop], devices[source])
    else:
        _APPLY[op](target, staged)


def _add(target, message):
    array_module(target).add(target, message, out=target)


def _copy(target, message):
    target[...] = message


_APPLY = {"add": _add, "copy": _copy}
