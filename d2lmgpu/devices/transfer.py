"""Transfers: the only way for data to leave a device.

A copy between two devices of the same kind takes its turn among the work of both, and the host program does not wait
for it:

    source        ... work A |event a|              |waits for b| work B ...
                                    \\               /
    destination   ... work C |waits for a| copy |event b| work D ...

So the copy sees the result of A, and B can safely overwrite the source. Between a CPU and a GPU the data go through the
host program, which waits for them.

Each message has a fixed cost, however short it is. So several arrays can be consecutive parts of one flat buffer, and
be sent together: LeNet's eight gradients are one message of 516 kB instead of eight messages, six of them tiny.
"""

import copyreg
import itertools

import numpy as np

from ..base.arguments import as_array, shown
from ..base.foreign import check_on_host
from .array import DeviceArray, array_module, copy_to_host, read_back
from .batch import Batch
from .errors import HOST, DeviceError
from .peers import copy_async
from .records import note_transfer


def put(x, device) -> DeviceArray:
    """A copy of ``x`` in the memory of ``device``.

    ``x`` is an array on any device, or anything that NumPy can convert to an array. A copy from a device of the same
    kind may still be under way when `put` returns; work submitted to either device afterwards comes after it.

    Call it in the host program, not in work that runs on a device.

    Raises DeviceError if ``device`` is not a device, ValueError unless the array holds numbers or booleans.
    """
    if not hasattr(device, "submit"):
        raise DeviceError(f"put: copies go to a device such as cpu(0), not to {shown(device)}")
    if isinstance(x, DeviceArray):
        note_transfer(x.device, device, x.nbytes)
        return _between(x, device) if x.device.kind == device.kind else _from_host(copy_to_host(x), device)
    x = as_array("put: x", x, kinds="biufc")
    check_on_host("put: x", x)  # CuPy's, too
    note_transfer(HOST, device, x.nbytes)
    return _from_host(x, device)


def to_host(x) -> np.ndarray:
    """A copy of ``x`` as a NumPy array, after all work submitted to its device so far.

    Raises the first error not yet raised by work that was submitted to the device after ``x`` was made, such as a part
    of a collective: because of it, ``x`` may be wrong. Raises ValueError if NumPy cannot make an array of ``x``.
    """
    if not isinstance(x, DeviceArray):
        check_on_host("to_host: x", x)
        return np.array(as_array("to_host: x", x, kinds="biufcSU"))
    return read_back(x)


# A pickle holds a host copy of a device array, and the device on which it is put again: two transfers.
copyreg.pickle(DeviceArray, lambda x: (put, (to_host(x), x.device)))


def result_to_host(raw, device):
    """Like `to_host`, for a plain array of a finished task that no later work changes: this waits for no later work.

    On a GPU it does wait, because a task there is finished when its kernels are launched, before they have run.
    """
    note_transfer(device, HOST, raw.nbytes)
    return raw.copy() if device.kind == "cpu" else copy_to_host(DeviceArray(raw, device))


def _from_host(x, device):
    if device.kind == "cpu":  # fresh memory, so the copy need not wait for the device's queue
        return DeviceArray(np.array(x, order="C"), device)

    import cupy

    return DeviceArray(device.submit(cupy.array, np.asarray(x, order="C")).result(), device)


def _between(x, device):
    source, raw = x.device, x.raw
    if not raw.flags.c_contiguous:  # only contiguous memory can be copied
        raw = source.submit(array_module(raw).ascontiguousarray, raw).result()
    target = device.empty(raw.shape, raw.dtype)
    batch = Batch()
    if device.kind == "cpu":
        batch.submit_to_all({device, source}, _receive, target, device, raw, source)
    else:
        batch.wait(device, batch.record(source))
        batch.wait(source, batch.submit(device, _receive, target, device, raw, source))
    batch.commit()
    return DeviceArray(target, device)


def _receive(target, device, raw, source):
    """Runs on the destination. Returns a mark of the copy's end, by which other devices can wait for the task."""
    copy_between(target, device, raw, source)
    return device.mark()


def copy_between(target, device, raw, source):
    """Copy contiguous plain arrays of the same size and dtype from ``source`` to ``device``, of whatever kinds.

    Runs on ``device``.
    """
    if device.kind == source.kind == "cpu":
        np.copyto(target, raw)
    elif device.kind == "cpu":  # on the source's stream, so after all that was launched there
        with source.as_current():
            raw.get(out=target)
    elif source.kind == "cpu":
        target.set(raw)
        device.stream.synchronize()  # otherwise the source could be overwritten during the copy
    else:
        copy_async(target, raw, device.stream)


def zeros_in_one_buffer(arrays):
    """A list of zeros in the shapes of the plain ``arrays`` (of one dtype): consecutive views of one buffer."""
    return parts_of(array_module(arrays[0]).zeros(sum(array.size for array in arrays), arrays[0].dtype), arrays)


def parts_of(buffer, arrays):
    """Consecutive views of the plain flat ``buffer``, in the shapes of ``arrays``."""
    ends = itertools.accumulate(array.size for array in arrays)
    return [buffer[end - array.size : end].reshape(array.shape) for end, array in zip(ends, arrays, strict=True)]
