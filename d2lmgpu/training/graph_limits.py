"""Which training steps can be CUDA graphs, and which precisions devices support."""

import numpy as np

from ..base.arguments import check_name
from ..collectives import LIBRARIES
from ..collectives.execute import are_connected
from ..devices import DeviceError
from ..kernels.cuda import TENSOR_CORES, graphs_span, graphs_work, has_kernels
from ..networks import LENET, compute, kernels_work
from ..parallel.computation import PRECISIONS


def check_precision(precision, devices):
    """Raise ValueError for an unknown precision, and DeviceError if ``devices`` do not support it."""
    check_name("precision", precision, PRECISIONS)
    for device in devices if precision == "mixed" else ():
        if device.kind == "gpu" and device.compute_capability < TENSOR_CORES:
            raise DeviceError(
                f"precision {precision!r} needs compute capability {TENSOR_CORES / 10}; {device} has "
                f"{device.compute_capability / 10}"
            )


def can_be_graph(X, y, devices, network=LENET, precision="float32"):
    """Whether training steps with these data, devices and network can be CUDA graphs.

    This needs GPUs without a memory limit, uint8 images, labels below 256, and a kernel for every layer. The kernels
    and graphs must work on these GPUs, which is tested once.
    """
    return (
        compute.USE_CUDA_KERNELS
        and all(device.kind == "gpu" and not device.is_limited for device in devices)
        and X.dtype == np.uint8
        and are_bytes(y)
        and has_kernels(network)
        and all(device.submit(_all_works, precision).result() for device in devices)
    )


def why_not_one_graph(group, algorithm="ring"):
    """In words, why a whole step on the GPUs of this `Cluster` cannot be one graph; None if it can be.

    Messages, library calls and copies through the host cannot be recorded. Whether a graph can span the cards is
    tested once.
    """
    cards = {device.card for device in group.mine}
    if group.size > 1:
        return "its devices belong to several processes"
    if algorithm in LIBRARIES:
        return f"allreduce {algorithm!r} cannot be recorded; 'ring' can"
    if not are_connected(cards):
        return "its cards cannot use each other's memory"
    return None if graphs_span(cards) else "no graph spans its cards"


def are_bytes(y):
    """Whether labels are whole numbers that fit into a byte, whatever their type."""
    return y.dtype.kind in "iu" and y.ndim == 1 and 0 <= y.min(initial=0) and y.max(initial=0) < 256


def _all_works(precision):
    """Whether the device's kernels, also with this precision, and graphs work; runs on the device."""
    return kernels_work("gpu") and kernels_work("gpu", precision) and graphs_work()
