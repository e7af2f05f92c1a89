"""Choose how the steps of a run are executed: with a plan, and on GPUs as CUDA graphs where possible."""

from dataclasses import replace

from ..base.text import listed
from ..devices import DeviceError
from ..devices.probes import warn
from ..networks import CROSS_ENTROPY, find_loss
from ..networks.optimizers import make_optimizer
from ..parallel import measure_loads
from .graph_limits import can_be_graph, why_not_one_graph
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
    idle = [device for device, load in zip(devices, loads or [1] * len(devices), strict=True) if load == 0]
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
