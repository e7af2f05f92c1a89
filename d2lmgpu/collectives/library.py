"""The library that production uses: NCCL, beside the schedules and under the same name `allreduce`.

NCCL chooses among rings and trees by itself, knows the wires of the machine, and
adds on the GPU while data arrive. It needs a card of its own for each device.
"""

import functools
import warnings

from ..devices import DeviceError


def nccl(batch, data):
    """Add to a batch: sum arrays over GPU devices, in place, with NCCL's allReduce on each device's stream.

    Raises DeviceError unless there are two devices or more, all GPUs, each on a
    card of its own, and CuPy has NCCL; ValueError for a dtype that NCCL does not support.
    """
    cards = check_cards([array.device for array in data])
    kind = check_nccl_dtype(data[0].dtype)
    for array, communicator in zip(data, _communicators(cards), strict=True):
        batch.submit(array.device, all_reduce_with, communicator, array.raw, kind, array.device)


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


def all_reduce_with(communicator, raw, kind, device):
    """Runs on the device: each calls from its own thread, so that no group call is needed."""
    add = nccl_library().NCCL_SUM
    communicator.allReduce(raw.data.ptr, raw.data.ptr, raw.size, kind, add, device.stream.ptr)


def nccl_library():
    """CuPy's module. Raises DeviceError if it has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # CuPy's, of what is said below
            from cupy.cuda import nccl as library
    except ImportError as error:
        raise DeviceError(f"allreduce 'nccl': this CuPy has no NCCL ({error}); use 'ring'") from error
    if not getattr(library, "available", True):
        raise DeviceError("allreduce 'nccl': this CuPy has no NCCL (it is in the package nvidia-nccl-cu13); use 'ring'")
    return library


@functools.lru_cache
def _communicators(cards):
    return nccl_library().NcclCommunicator.initAll(list(cards))


LIBRARIES = {"nccl": nccl}
"""Allreduces that are no schedules: functions that add to a `Batch` what sums a list of device arrays in place."""
