"""Arrays of other libraries, and Python's buffers: taken wherever NumPy's are, unless they are in a GPU's memory."""

import array
import contextlib
import sys

import numpy as np

from .text import shown

PROTOCOLS = ("__array__", "__array_interface__", "__dlpack__")
"""The attributes through which NumPy reads another library's array."""

ON_THE_HOST = (1, 3, 11)
"""DLPack's numbers for the host's memory, pinned or not: kDLCPU, kDLCUDAHost, kDLROCMHost."""


def is_foreign(value):
    """Whether ``value`` is an array of a library other than NumPy, CuPy and this one, or one of Python's buffers."""
    kind = type(value)  # look at the type: attributes of a table may be columns
    cupy = getattr(sys.modules.get("cupy"), "ndarray", np.ndarray)
    if issubclass(kind, (np.ndarray, np.generic, cupy)) or hasattr(kind, "raw"):
        return False
    return issubclass(kind, (array.array, memoryview)) or any(hasattr(kind, name) for name in PROTOCOLS)


def as_numpy(name, value):
    """Another library's array, or a buffer, as a NumPy array, sharing memory if possible; other values as they are.

    Raises ValueError for an array that NumPy cannot read, or that is in a GPU's memory.
    """
    if not is_foreign(value):
        return value
    check_on_host(name, value)
    try:
        only_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        return np.from_dlpack(value) if only_dlpack else np.asarray(value)
    except Exception as error:  # whatever the other library raises
        why = " ".join(str(error).split())[:200]
        raise ValueError(f"{name} is {shown(value)}, which NumPy cannot convert; convert it first ({why})") from None


def check_on_host(name, value):
    """Raise ValueError if an array is in a GPU's memory: copies to the host must be explicit."""
    on_gpu = False
    with contextlib.suppress(Exception):  # PyTorch raises errors for tensors that NumPy cannot read either
        on_gpu = hasattr(value, "__cuda_array_interface__") or value.__dlpack_device__()[0] not in ON_THE_HOST
    if on_gpu:
        advice = "give a copy on the host, such as x.cpu() of PyTorch or x.get() of CuPy"
        raise ValueError(f"{name} is {shown(value)} in a GPU's memory; {advice}")
