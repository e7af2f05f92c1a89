"""NCCL, the library used in production, which is called through `allreduce`, as schedules are.

NCCL chooses between rings and trees by itself, knows the wires of the machine, and
adds on the GPU while data arrive. Each device needs a card of its own.

NCCL does not check that its rules are kept, and a program that breaks them hangs or gets wrong sums. Only one thread
may call it at a time, each process must ask for the same sums in the same order, and each card must do one sum after
the other. So here, one thread makes each call as a group for all devices of the process, after the previous call,
whichever queue that was submitted to. Each card has one stream for all calls. It waits for the device's stream, which
then waits for it:

    devices         | B 1 | B 0 | ......... |................| update
    comm streams          | dW 1 ....... |
    cards, for NCCL          | sum of dW 1 | sum of 3 numbers |

Source: NCCL's user guide, "Thread Safety", "Group Calls", "Using Multiple NCCL Communicators Concurrently";
PyTorch's ProcessGroupNCCL, which also has a stream for each communicator.
"""

import contextlib
import functools
import threading
import weakref

from ..base.packages import optional
from ..devices import DeviceError
from ..devices.batch import nothing
from ..devices.gpu import mark_of


class Nccl:
    """NCCL's allreduce over the devices of this process: a `Collective`."""

    schedules = None

    def add_to(self, batch, data):
        """Add to a batch the sum of arrays over GPU devices, in place.

        Raises DeviceError unless there are at least two devices, all GPUs on cards of
        their own, and CuPy has NCCL; ValueError for a dtype that NCCL does not support.
        """
        devices = [array.device for array in data]
        cards = check_cards(devices)
        kind = check_nccl_dtype(data[0].dtype)
        add_call(batch, devices, all_reduce_with, _communicators(cards), [array.raw for array in data], kind, devices)


LIBRARIES = {"nccl": Nccl()}
"""Allreduces that are not schedules."""


_last = threading.local()
"""``call``: for each thread of the program, weak references to the batch of its last call, and to that call (a task).

They are weak because a batch may be dropped, and its tasks with it."""


def add_call(batch, devices, function, *args):
    """Add an NCCL call for all ``devices`` to a batch, after those in it and those that this thread committed."""
    for device in devices:
        batch.submit(device, nothing)  # then its stream, too, waits for whatever this device must wait for
    owner, before = (found() for found in getattr(_last, "call", (lambda: None, lambda: None)))
    if before is not None and (owner in (batch, None) or not owner.holds(before)):  # otherwise it may never be done
        batch.wait(devices[0], before)
    _last.call = weakref.ref(batch), weakref.ref(batch.submit_to_all(devices, function, *args))


def check_cards(devices):
    """The cards of these GPU devices. Raises DeviceError if NCCL cannot sum over them."""
    names = ", ".join(map(str, devices))
    if len(devices) < 2 or any(device.kind != "gpu" for device in devices):
        raise DeviceError(f"allreduce 'nccl' needs at least two GPUs, not [{names}]; 'ring' runs on any devices")
    cards = tuple(device.card for device in devices)
    if len(set(cards)) < len(cards):
        raise DeviceError(f"allreduce 'nccl' needs a card for each device, but [{names}] share cards; use 'ring'")
    return cards


def check_nccl_dtype(dtype):
    """NCCL's number for a dtype. Raises ValueError if NCCL does not support it, DeviceError if there is no NCCL."""
    library = nccl_library()
    kinds = {name: getattr(library, f"NCCL_{name.upper()}") for name in ("float16", "float32", "float64", "int64")}
    if str(dtype) not in kinds:
        raise ValueError(f"allreduce 'nccl': {dtype} is not among {', '.join(kinds)}")
    return kinds[str(dtype)]


def all_reduce_with(communicators, arrays, kind, devices):
    """Submit the sum of the devices' plain arrays to their streams without waiting for it; runs on the devices."""
    streams = [_stream_of(device.card) for device in devices]
    with told_by_nccl() as library:
        for stream, device in zip(streams, devices, strict=True):
            with device.as_current():
                stream.wait_event(device.mark())
        library.groupStart()
        try:
            for communicator, raw, stream in zip(communicators, arrays, streams, strict=True):
                communicator.allReduce(raw.data.ptr, raw.data.ptr, raw.size, kind, library.NCCL_SUM, stream.ptr)
        except BaseException:
            with contextlib.suppress(Exception):  # it only repeats that a call of the group failed
                library.groupEnd()
            raise
        library.groupEnd()
        for stream, device in zip(streams, devices, strict=True):
            with device.as_current():
                device.stream.wait_event(mark_of(stream))


@functools.lru_cache
def _stream_of(card):
    """This card's stream for all NCCL calls."""
    import cupy

    with cupy.cuda.Device(card):
        return cupy.cuda.Stream(non_blocking=True)


def nccl_library():
    """CuPy's NCCL module. Raises DeviceError if there is none."""
    library, why = optional("cupy.cuda.nccl")
    if not getattr(library, "available", library):
        import cupy

        package = f"nvidia-nccl-cu{cupy.cuda.runtime.runtimeGetVersion() // 1000}"
        raise DeviceError(
            f"allreduce 'nccl': CuPy finds no NCCL here: pip install {package}, which there is for Linux; or use "
            f"'ring'{why and f' (cupy.cuda.nccl {why})' or ''}"
        )
    return library


@contextlib.contextmanager
def told_by_nccl():
    """CuPy's NCCL module (see `nccl_library`); within the block, NCCL's errors become a DeviceError."""
    library = nccl_library()
    try:
        yield library
    except library.NcclError as error:
        raise DeviceError(f"allreduce 'nccl': {error}; NCCL_DEBUG=WARN says more, and 'ring' needs no NCCL") from error


@functools.lru_cache
def _communicators(cards):
    with told_by_nccl() as library:
        return library.NcclCommunicator.initAll(list(cards))
