"""The two kinds of device, how to get one, and how a request such as ``--devices 2`` becomes devices.

``cpu(i)`` is a *virtual* device: a queue of work on NumPy arrays that belong to it, with one core's worth of BLAS.
``gpu(i)`` is a CUDA device: the same queue, but its functions launch CuPy work on a stream of their own. Both obey the
same rules, so a program that is correct on two ``cpu`` devices should be correct on two GPUs; docs/gpu.md lists the
GPUs on which that has been tested.
"""

import copyreg
import re

from ..base.arguments import MAX_DEVICES, as_whole, check_list, check_name, check_whole, is_number, plain, shown
from .cpu import CPU
from .device import Device, different_devices
from .discovery import find_gpus
from .errors import DeviceError
from .gpu import GPU
from .peers import connect
from .task import wait_and_raise

ENVIRONMENTS = ("auto", "cpu", "gpu", "multi-gpu")

_devices = {}


def _device(kind, index, *args):
    """The device of this kind and index, the same for all calls."""
    number = as_whole(index)
    if number is None or not 0 <= number < MAX_DEVICES:
        raise DeviceError(f"a device's index is a whole number from 0 to {MAX_DEVICES - 1:,}, not {shown(index)}")
    if (kind, number) not in _devices:
        made = kind(number, *args).set_up()
        if kind is GPU:
            _connect_with_others(made)
        _devices.setdefault((kind, number), made)
    return _devices[kind, number]


def cpu(i: int = 0) -> Device:
    """Virtual device number ``i`` on the CPU. There may be more of them than cores."""
    return _device(CPU, i)


def gpu(i: int = 0) -> Device:
    """GPU number ``i``; on a machine with fewer cards, it is on card ``i`` modulo their number.

    Raises DeviceError, with the reason, if there is no GPU, or if this one cannot exchange data with those in use.
    """
    cards, reason = find_gpus()
    if cards == 0:
        raise DeviceError(f"gpu({shown(i)}): {reason}. Use cpu({shown(i)}), or try_gpu({shown(i)}) to fall back to it.")
    return _device(GPU, i, (as_whole(i) or 0) % cards)


def _connect_with_others(gpu):
    """Connect a new device's card with those in use; the first device's card becomes the calling thread's."""
    others = [device for device in list(_devices.values()) if device.kind == "gpu"]
    for other in others:
        connect(gpu.card, other.card)
    if not others:
        gpu.make_current()  # for what the program itself asks of CUDA


# `pickle` and `copy` return the device itself.
copyreg.pickle(CPU, lambda device: (cpu, (device.index,)))
copyreg.pickle(GPU, lambda device: (gpu, (device.index,)))


def try_gpu(i: int = 0) -> Device:
    """``gpu(i)`` on a machine with a GPU, otherwise ``cpu(i)``.

    On a given machine it always returns the same kind of device, so ``[try_gpu(i) for i in range(k)]`` never mixes GPUs
    and CPUs.
    """
    return gpu(i) if can_use_gpu() else cpu(i)


def try_all_gpus() -> list[Device]:
    """A device for each GPU of the machine, or ``[cpu(0)]`` where there is none."""
    return [try_gpu(i) for i in range(max(1, num_gpus()))]


def num_gpus() -> int:
    """The number of usable GPUs; 0 if there are none, or if CuPy is missing. The name is the textbook's."""
    return find_gpus()[0]


def can_use_gpu() -> bool:
    """Whether there is a usable GPU, like MATLAB's ``canUseGPU``."""
    return num_gpus() > 0


def choose_devices(environment="auto", devices=None) -> tuple[str, list[Device]]:
    """The environment and the devices for a request, as a pair (environment, list of devices).

    ``environment``: "auto" takes GPUs if there are any and CPU devices otherwise; "cpu"; "gpu"; "multi-gpu" takes all
    GPUs unless ``devices`` gives a number. ``devices``: how many (default 1), a list of indices such as [0, 2], or a
    list of names such as ["gpu:0", "cpu:0"]; or any of these as a string, as on the command line. With names,
    ``environment`` must be "auto". If the names are of both kinds, the environment returned is "gpu+cpu".

    Raises ValueError for a request that makes no sense and DeviceError for one that this machine cannot satisfy.
    """
    devices = parse_devices(devices) if isinstance(devices, str) else plain(devices)
    if isinstance(devices, list) and any(isinstance(name, str) for name in devices):
        return _named(environment, devices)
    environment, indices = choose_indices(environment, devices)
    make = cpu if environment == "cpu" else gpu
    return environment, [make(i) for i in indices]


def choose_indices(environment="auto", devices=None):
    """Like `choose_devices`, but makes no devices and takes no names; returns (environment, list of indices)."""
    if isinstance(environment, str) and environment == "parallel":
        said = "environment 'parallel' is for commands in processes that mpiexec starts (train, predict); here choose"
        raise DeviceError(f"{said} auto, cpu, gpu or multi-gpu, and in a program train on d2l.cluster()")
    check_name("environment", environment, ENVIRONMENTS)
    cards, reason = (0, None) if environment == "cpu" else find_gpus()
    if environment in ("gpu", "multi-gpu") and cards == 0:
        raise DeviceError(f"environment {environment!r} needs a GPU: {reason}; --environment cpu works anywhere")
    if devices is None:
        devices = cards if environment == "multi-gpu" else 1
    if environment == "auto":
        environment = "gpu" if cards else "cpu"
    return environment, list(_indices(devices))


def parse_devices(text):
    """``"2"`` (how many), ``"0,2"`` (which) or ``"gpu:0,cpu:0"`` in the form that `choose_devices` takes."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if any(":" in part for part in parts):
        return parts
    try:
        first, *others = map(int, parts)
    except ValueError:
        advice = "give how many, such as 2, or which, such as 0,2, or of both kinds, such as gpu:0,cpu:0"
        raise ValueError(f"devices {shown(text)}: {advice}") from None
    return [first, *others] if "," in text else first


def _named(environment, names):
    """The pair (environment, list of devices) for a list of names; the environment is "cpu", "gpu" or "gpu+cpu"."""
    if environment != "auto":
        raise ValueError(f"devices {shown(names)} have their kinds in their names; leave out environment {environment}")
    found = []
    for name in names:
        named = re.fullmatch(r"([cg]pu)(?::([0-9]{1,4})|\(([0-9]{1,4})\))", str(name))  # the second as devices print it
        if named is None:
            raise ValueError(f"devices: {shown(name)} should be a name such as cpu:0 or gpu:1")
        kind, *index = named.groups("")
        found.append({"cpu": cpu, "gpu": gpu}[kind](int("".join(index))))
    return kinds_of(found), different_devices(found)


def kinds_of(devices):
    """The environment of devices: "cpu", "gpu" or "gpu+cpu"."""
    return "+".join(sorted({device.kind for device in devices}, reverse=True))


def check_devices(devices, least=1):
    """``devices`` as a checked list; a number, names or indices go to `choose_devices`; one device becomes a list.

    A string is read as on the command line. Raises ValueError if the list has fewer than ``least`` (0 or 1), has a
    device twice, or contains anything but devices, and whatever `choose_devices` raises.
    """
    if are_asked_for(devices):
        return choose_devices(devices=devices)[1]
    return different_devices(devices, least)


def are_asked_for(devices):
    """Whether ``devices`` asks `choose_devices` for some: a number, indices or names, and no devices themselves."""
    devices = plain(devices)
    if isinstance(devices, list) and devices:
        return all(type(device) in (int, str) for device in devices)
    return is_number(devices) or isinstance(devices, str)


def synchronize(devices=None):
    """Wait until every device has done all its work; raise the first error not yet raised, and forget the others.

    ``devices``: by default all devices that the program has used. Raises the errors of `check_devices`, too.
    """
    wait_and_raise(check_devices(list(_devices.values()) if devices is None else devices, least=0))


def _indices(devices):
    if is_number(devices):
        return range(check_whole("devices: the number of them", devices, most=MAX_DEVICES))
    indices = plain(check_list("devices", devices, of="indices from 0, such as [0, 2]"))
    if not indices or any(type(i) is not int or i < 0 for i in indices):
        raise ValueError(f"devices: {shown(devices)} should be a list of indices from 0, such as [0, 2]")
    if len(set(indices)) < len(indices):
        raise ValueError(f"devices: {shown(indices)} names a device twice; each device holds one shard")
    return indices
