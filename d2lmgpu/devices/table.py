"""The table of the devices that this machine has."""

import os
import platform
import subprocess
from dataclasses import asdict, dataclass

from .discovery import count_cores, find_gpus

GLANCE = 0.1
"""Seconds over which it is looked how busy the cores are."""


@dataclass
class DeviceRow:
    """A line of the device table. Memory in bytes; ``card`` and ``compute_capability`` for GPUs only.

    ``busy``: how much of the time the device works just now, for whomever, in
    per cent; None if nobody knows.
    """

    name: str
    kind: str
    description: str
    memory_free: int
    memory_total: int
    busy: float = None
    compute_capability: str = None
    card: int = None

    as_dict = asdict


def device_table():
    """A `DeviceRow` for each GPU and for each CPU core this process may use."""
    import psutil

    memory = psutil.virtual_memory()
    busy = psutil.cpu_percent(GLANCE, percpu=True)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(count_cores())
    name = processor_name()
    cpus = [
        DeviceRow(f"cpu({i})", "cpu", name, memory.available, memory.total, busy[core] if core < len(busy) else None)
        for i, core in enumerate(cores)
    ]
    return [_gpu_row(i) for i in range(find_gpus()[0])] + cpus


def _gpu_row(index):
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(index)
    card = cupy.cuda.Device(index)
    free, total = card.mem_info
    capability = ".".join(str(properties[key]) for key in ("major", "minor"))
    name = properties["name"].decode()
    return DeviceRow(f"gpu({index})", "gpu", name, free, total, _gpu_busy(card.pci_bus_id), capability, index)


def _gpu_busy(bus):
    """What NVIDIA's tool says of the GPU at this place of the PCI bus."""
    command = ["nvidia-smi", f"--id={bus}", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        return float(subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def processor_name():
    """The CPU's name, from the kernel where it tells (Linux), else what Python knows."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
