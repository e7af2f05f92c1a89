"""Choose how the steps of a run are executed: with a plan, and on GPUs as CUDA graphs where possible."""

from dataclasses import replace

import numpy as np

from ..base.text import listed
from ..collectives import LIBRARIES
from ..collectives.execute import are_connected
from ..devices import DeviceError
from ..devices.probes import warn
from ..kernels.cuda import graphs_span, graphs_work, has_kernels
from ..networks import CROSS_ENTROPY, LENET, compute, find_loss, kernels_work
from ..networks.optimizers import make_optimizer
from ..parallel import measure_loads
from .graph_step import GraphStep
from .plan_step import PlanStep
from .runner import Runner
from .textbook_steps import TextbookSteps

INSTEAD = "its kernels are launched one by one, which took LeNet's step on an H100 1.03 ms instead of 0.09"


def make_runner(X, y, params, group, network, settings, note=print, saved=None) -> Runner:
    """The `Runner` for a run.

    ``group``: a `Cluster`. ``note(text)`` receives messages for the user. ``saved``: the history of a resumed run,
    a dict; its loads are used where the settings say "auto". Steps that should be graphs but cannot be recorded are
    launched kernel by kernel, with a message.
    """
    in_graphs = can_use_graphs(X, y, group, network, settings)
    settings = find_loads(X, y, params, network, group, settings, saved and saved["loads"], note)
    if in_graphs:
        try:
            return GraphStep(X, y, params, group, network, settings)
        except (ValueError, DeviceError):  # settings that make no sense
            raise
        except Exception as error:
            warn(f"the step cannot be a CUDA graph ({error}); {INSTEAD}")
    steps = TextbookSteps if settings.split is None and not settings.overlap else PlanStep
    return steps(X, y, params, group, network, settings)


def find_loads(X, y, params, network, group, settings, saved, note):
    """The settings, with measured (or ``saved``) loads in place of "auto". Also reports which devices stay idle."""
    devices, loads = group.names, settings.loads
    if loads == "auto":
        same = saved and len(saved) == len(devices)  # a resumed run keeps its loads
        trained = settings.batch_size, network, find_loss(settings.loss)
        loads = saved if same else measure_loads(X, y, params, group.mine, *trained)
        found = listed(f"{device} {load:.2f}" for device, load in zip(devices, loads, strict=True))
        equal = len(set(loads)) == 1
        note("loads: equal parts; no others that were tried make a step shorter" if equal else f"loads: {found}")
    idle = [device for device, load in zip(devices, loads or [], strict=False) if load == 0]
    if idle:
        note(f"{listed(idle)} " + ("has load 0 and stays idle" if len(idle) == 1 else "have load 0 and stay idle"))
    return replace(settings, loads=loads)


def can_use_graphs(X, y, group, network, settings):
    """Whether steps are CUDA graphs: of data parallelism in one process; a note says so if only the devices prevent it.

    With a split, overlap, exact sums, or batch statistics of all devices, steps are launched kernel by kernel.
    """
    wanted = settings.graphs and settings.preprocess is None and make_optimizer(settings).in_graphs
    wanted = wanted and settings.split in (None, "data") and settings.micro_batches == 1 and not settings.overlap
    wanted = wanted and settings.sums == "float" and settings.flat
    wanted = wanted and settings.batch_statistics == "local" and find_loss(settings.loss) is CROSS_ENTROPY
    if not wanted or not can_be_graph(X, y, group.mine, network, settings.precision):
        return False
    why = why_not_one_graph(group, settings.algorithm)
    if why and group.rank == 0:
        warn(f"the step cannot be a CUDA graph ({why}); {INSTEAD}")
    return why is None


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
