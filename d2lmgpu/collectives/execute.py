"""One reader of schedules: do it, on real arrays on real devices."""

from ..devices import DeviceArray, array_module, check_devices, put


def execute(schedule, arrays):
    """Carry out a schedule in place on ``arrays``, one on each device.

    Each step is issued in two halves: first all its messages are sent, then the
    devices add or copy what they received. A device's queue starts the second
    half only when all reads *from* it are done (`put` sees to that), so within a
    step all reads come before all writes.

    The host program does not wait: work that is submitted to the devices
    afterwards, and `to_host`, come after the collective.
    """
    flat = [DeviceArray(array.raw.reshape(-1), array.device) for array in arrays]  # views: they are contiguous
    for step in schedule:
        transfers = [transfer for transfer in step if transfer.size]  # an empty chunk need not be sent
        messages = [put(flat[t.source][t.start : t.stop], flat[t.destination].device) for t in transfers]
        for t, message in zip(transfers, messages, strict=True):
            target = flat[t.destination][t.start : t.stop]
            target.device.run(_APPLY[t.op], target, message)


def check_arrays(arrays):
    """Raise ValueError unless ``arrays`` can be reduced: alike, contiguous, one on each device."""
    if not arrays:
        raise ValueError("allreduce: the list of arrays is empty; it should hold one array for each device")
    for array in arrays:
        if not isinstance(array, DeviceArray):
            raise ValueError(
                f"allreduce: {type(array).__name__} is not on a device; d2l.put(x, device) copies an array to one"
            )
        if (array.shape, array.dtype) != (arrays[0].shape, arrays[0].dtype):
            raise ValueError(
                f"allreduce: {array.dtype} array of shape {array.shape} on {array.device} beside "
                f"{arrays[0].dtype} {arrays[0].shape} on {arrays[0].device}; all should be alike"
            )
        if not array.flags.c_contiguous:
            raise ValueError(f"allreduce: the array on {array.device} is a strided view; pass contiguous arrays")
    check_devices(array.device for array in arrays)


def _add(target, message):
    array_module(target).add(target, message, out=target)


def _copy(target, message):
    target[...] = message


_APPLY = {"add": _add, "copy": _copy}
