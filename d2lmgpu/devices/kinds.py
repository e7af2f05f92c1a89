"""The two kinds of device, and how to get one.

``cpu(i)`` is a *virtual* device: a queue of work on NumPy arrays that belong to
it, with one core's worth of BLAS. ``gpu(i)`` is a CUDA device: the same queue,
but its functions launch CuPy work on a stream of their own. Both obey the same
rules, so that a program that is right on two ``cpu`` devices should be right on
two GPUs; docs/gpu.md says on which that has been tried.
"""

from ..arguments import shown
from .cpu import CPU
from .discovery import find_gpus
from .errors import DeviceError
from .gpu import GPU
from .peers import connect

MOST_DEVICES = 2**12
"""Of a kind. Each has parameters and arrays of its own: far fewer are too many for any machine's memory."""

_devices = {}


def _device(kind, index, *args):
    if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < MOST_DEVICES:
        raise DeviceError(f"a device's index is a whole number from 0 to {MOST_DEVICES - 1:,}, not {shown(index)}")
    device = _devices.get((kind, index)) or _devices.setdefault((kind, index), kind(index, *args))
    return device.set_up()


def cpu(i=0):
    """Virtual device number ``i`` on the CPU. There may be more of them than cores."""
    return _device(CPU, i)


def gpu(i=0):
    """GPU number ``i``; on a machine with fewer cards, devices share them in turn.

    Raises DeviceError where there is no GPU, or none that can exchange data with those in use, saying why.
    """
    cards, reason = find_gpus()
    if cards == 0:
        i = shown(i)
        raise DeviceError(f"gpu({i}): {reason}. Use cpu({i}), or try_gpu({i}) to fall back to it.")
    device = _device(GPU, i, i % cards if isinstance(i, int) else 0)
    try:
        for other in [device for kind, device in list(_devices.items()) if kind[0] is GPU and device.is_set_up]:
            connect(device.card, other.card)
    except DeviceError:
        _devices.pop((GPU, i), None)  # the others can still be used
        raise
    return device


def try_gpu(i=0):
    """``gpu(i)`` on a machine with a GPU, otherwise ``cpu(i)``.

    One machine always answers with one kind, so that a list made with
    ``[try_gpu(i) for i in range(k)]`` never mixes GPUs and CPUs.
    """
    return gpu(i) if find_gpus()[0] else cpu(i)


def try_all_gpus():
    """A device for each GPU of the machine, or ``[cpu(0)]`` where there is none."""
    return [try_gpu(i) for i in range(max(1, find_gpus()[0]))]
