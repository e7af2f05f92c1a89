"""The library that production uses: NCCL, beside the schedules and under the same name `allreduce`.

NCCL chooses among rings and trees by itself, knows the wires of the machine, and
adds on the GPU while data arrive. It needs a card of its own for each device.

It demands what it does not check, and who breaks its rules waits for ever or gets
other sums: it is called by one thread at a time, for the same sums in the same order
in each process, and on each card one sum after the other. So each call here is joint
work of the process's devices, which one thread does as a group, and comes after the
call that was submitted before it, whatever queue that is in; and each card has one
stream for all of them, which waits for the device's, and the device's then for it:

    devices         | B 1 | B 0 | ......... |................| update
    comm streams          | dW 1 ....... |
    cards, for NCCL          | sum of dW 1 | sum of 3 numbers |

Source: NCCL's user guide, "Thread Safety", "Group Calls", "Using Multiple NCCL Communicators Concurrently";
PyTorch's ProcessGroupNCCL, which also has a stream for each communicator.
"""

import contextlib
import functools
import sys
import threading
import warnings
import weakref

from ..devices import DeviceError
from ..devices.batch import nothing
from ..devices.gpu import mark_of


def nccl(batch, data):
    """Add to a batch: sum arrays over GPU devices, in place, with NCCL's allReduce.

    Raises DeviceError unless there are two devices or more, all GPUs, each on a
    card of its own, and CuPy has NCCL; ValueError for a dtype that NCCL does not support.
    """
    devices = [array.device for array in data]
    cards = check_cards(devices)
    kind = check_nccl_dtype(data[0].dtype)
    add_call(batch, devices, all_reduce_with, _communicators(cards), [array.raw for array in data], kind, devices)


_last = threading.local()
"""``call``: of a thread of the program weak references to the call that it added last, a task, and to its batch.

Weak ones since a batch may be given up, and its tasks with it."""


def add_call(batch, devices, function, *args):
    """Add to a batch a call of NCCL for all ``devices``; after those in this batch, and those this thread committed."""
    for device in devices:
        batch.submit(device, nothing)  # then its stream, too, waits for what this device is to wait for
    owner, before = (found() for found in getattr(_last, "call", (lambda: None, lambda: None)))
    if before is not None and (owner in (batch, None) or not owner.holds(before)):  # else it may never be done
        batch.wait(devices[0], before)
    _last.call = weakref.ref(batch), weakref.ref(batch.submit_to_all(devices, function, *args))


def check_cards(devices):
    """The cards of these GPU devices. Raises DeviceError where NCCL cannot sum over them."""
    names = ", ".join(map(str, devices))
    if len(devices) < 2 or any(device.kind != "gpu" for device in devices):
        raise DeviceError(f"allreduce 'nccl' needs two or more GPUs, not [{names}]; 'ring' runs on any devices")
    cards = tuple(device.card for device in devices)
    if len(set(cards)) < len(cards):
        raise DeviceError(f"allreduce 'nccl' needs a card for each device, but [{names}] share cards; use 'ring'")
    return cards


def check_nccl_dtype(dtype):
    """NCCL's number for a dtype. ValueError for one that it does not support, DeviceError where there is no NCCL."""
    library = nccl_library()
    kinds = {"float16": library.NCCL_FLOAT16, "float32": library.NCCL_FLOAT32, "float64": library.NCCL_FLOAT64}
    kinds["int64"] = library.NCCL_INT64
    if str(dtype) not in kinds:
        raise ValueError(f"allreduce 'nccl': {dtype} is not among {', '.join(kinds)}")
    return kinds[str(dtype)]


def all_reduce_with(communicators, arrays, kind, devices):
    """Runs on the devices: gives their streams the sum of their plain arrays. It does not wait for it."""
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
            with contextlib.suppress(Exception):  # it says that a call of the group has failed
                library.groupEnd()
            raise
        library.groupEnd()
        for stream, device in zip(streams, devices, strict=True):
            with device.as_current():
                device.stream.wait_event(mark_of(stream))


@functools.lru_cache
def _stream_of(card):
    """The stream of this card that gets all calls of NCCL."""
    import cupy

    with cupy.cuda.Device(card):
        return cupy.cuda.Stream(non_blocking=True)


def nccl_library():
    """CuPy's module. Raises DeviceError if it has none."""
    library = sys.modules.get("cupy.cuda.nccl")
    if library is None:  # once: filters of warnings are the whole program's, and devices' threads come here, too
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # CuPy's, of what is said below
                from cupy.cuda import nccl as library
        except ImportError as error:
            raise DeviceError(f"allreduce 'nccl': {_missing()} ({error})") from error
    if not getattr(library, "available", True):
        raise DeviceError(f"allreduce 'nccl': {_missing()}")
    return library


def _missing():
    import cupy

    package = f"nvidia-nccl-cu{cupy.cuda.runtime.runtimeGetVersion() // 1000}"
    return f"CuPy finds no NCCL here: pip install {package}, which there is for Linux; or use 'ring'"


@contextlib.contextmanager
def told_by_nccl():
    """CuPy's module, as of `nccl_library`; what NCCL says within the block is a DeviceError."""
    library = nccl_library()
    try:
        yield library
    except library.NcclError as error:
        raise DeviceError(f"allreduce 'nccl': {error}; NCCL_DEBUG=WARN says more, and 'ring' needs no NCCL") from error


@functools.lru_cache
def _communicators(cards):
    with told_by_nccl() as library:
        return library.NcclCommunicator.initAll(list(cards))


LIBRARIES = {"nccl": nccl}
"""Allreduces that are no schedules: functions that add to a `Batch` what sums a list of device arrays in place."""
