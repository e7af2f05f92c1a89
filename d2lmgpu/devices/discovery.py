"""What this machine has: its cores and GPUs, and a table of them. CuPy is imported only when GPUs are asked for."""

import contextlib
import os
import platform
import socket
import subprocess
import sys
from dataclasses import asdict, dataclass

from ..base.packages import in_a_clone, optional
from ..base.text import message_of
from .workers import THREADS, check_not_forked, use_devices


def count_cores():
    """How many CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find_gpus():
    """The number of GPUs that CuPy can use, and the reason if there is none.

    CuPy can be installed and imported without a GPU or a driver, so the devices must be counted. Raises DeviceError in
    a fork of a process that used devices: falling back to CPUs there without a word would be misleading.
    """
    check_not_forked()
    if not THREADS:
        return 0, "a GPU needs a thread, and this program has none (in a browser, or with D2LMGPU_THREADS=0)"
    cupy, why = optional("cupy")
    if cupy is None:
        return 0, f"CuPy {why} ({in_a_clone('gpu')}; for CUDA 12 [gpu-cuda12])"
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # of CUDA, or of a folder called cupy, or of a library that CuPy loads only now
        return 0, f"CuPy finds no GPU ({message_of(error)})"
    if count == 0:
        return 0, "CuPy finds no GPU"
    use_devices()
    return count, None


MIN_OF_UUID = 8
"""How many of a card's 16 UUID bytes tell it from all others; CuPy gives fewer than 16 if one of them is zero."""


def identities_of_cards():
    """For each GPU that CuPy can use, a string that identifies the card in any process on any machine.

    It contains the UUID, which slices of a card (MIG) have as well, and the place on the bus. CuPy gives the UUID only
    up to its first zero byte; if that comes early, the host's name tells the cards of two machines apart.
    """
    found = []
    for card in range(find_gpus()[0]):
        runtime = sys.modules["cupy"].cuda.runtime
        uuid = runtime.getDeviceProperties(card)["uuid"][:16]  # which CuPy takes for a string that ends with a zero
        host = [socket.gethostname()] if len(uuid) < MIN_OF_UUID else []
        found.append(" ".join([uuid.hex(), runtime.deviceGetPCIBusId(card), *host]))
    return found


@dataclass
class DeviceRow:
    """A row of the device table. Memory is in bytes; None: unknown.

    Of GPUs only: ``busy``, the current use by all programs together, in per cent of the time; ``compute_capability``.
    """

    name: str
    kind: str
    description: str
    memory_free: int | None
    memory_total: int | None
    busy: float = None
    compute_capability: str = None

    as_dict = asdict


def device_table() -> list[DeviceRow]:
    """A `DeviceRow` for each GPU and for each CPU core this process may use."""
    name, memory = processor_name(), _memory()
    cpus = [DeviceRow(f"cpu({i})", "cpu", name, *memory) for i in range(count_cores())]
    gpus = range(find_gpus()[0])
    used = _gpus_in_use() if gpus else {}
    return [_gpu_row(i, used) for i in gpus] + cpus


def _memory():
    """The machine's free and total memory in bytes; None for each without psutil, as in a browser."""
    psutil, _ = optional("psutil")
    with contextlib.suppress(Exception):  # it may be missing, and so may what it reads, such as /proc
        memory = psutil.virtual_memory()
        return memory.available, memory.total
    return None, None


def _gpu_row(index, used):
    """A GPU's row, found without creating a CUDA context, which takes half a gigabyte on a card that others may use."""
    import cupy

    name, runtime = f"gpu({index})", cupy.cuda.runtime
    try:
        properties, place = runtime.getDeviceProperties(index), runtime.deviceGetPCIBusId(index)
    except runtime.CUDARuntimeError as error:
        return DeviceRow(name, "gpu", f"cannot be used: {error}", None, None)
    capability = ".".join(str(properties[key]) for key in ("major", "minor"))
    description, total = properties["name"].decode(), properties["totalGlobalMem"]
    is_slice = " MIG " in description  # of which nvidia-smi knows only the whole card
    free, busy = (None, None) if is_slice else used.get(_short(place), (None, None))
    return DeviceRow(name, "gpu", description, free, total, busy, capability)


def _gpus_in_use():
    """What ``nvidia-smi`` reports, by place on the bus: free bytes and the use in per cent, or None for each."""
    query = ["--query-gpu=pci.bus_id,memory.free,utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(["nvidia-smi", *query], capture_output=True, text=True, check=True, timeout=10).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    rows = [line.split(",") for line in lines.splitlines() if line.count(",") == 2]
    return {_short(place): (_number(free, 2**20), _number(busy)) for place, free, busy in rows}


def _short(place):
    """A place on the bus without leading zeros, since CUDA and nvidia-smi write different numbers of them."""
    return place.strip().lower().lstrip("0")


def _number(text, unit=1):
    try:
        return int(float(text) * unit)
    except ValueError:
        return None


def processor_name():
    """The CPU's name: from /proc/cpuinfo on Linux, otherwise the name that Python knows."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
