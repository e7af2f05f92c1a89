"""What does the steps of a run: a plan, on GPUs as CUDA graphs where that can be."""

from dataclasses import replace

from ..devices import DeviceError
from ..devices.trials import tell
from ..networks import CROSS_ENTROPY, find_loss, half_weights, in_half
from ..optimizers import make_optimizer
from ..parallel import measure_loads
from ..parallel.graph_limits import can_be_graph
from ..words import listed
from .accuracy import TestSet
from .graph_step import GraphStep
from .plan_accuracy import SplitTestSet
from .plan_step import PlanStep


def make_runner(X, y, params, everybody, network, settings, note=print, saved_loads=None, stop=None):
    """A `GraphStep` or a `PlanStep`, and the `Settings` with the loads that it has.

    ``everybody``: a `Cluster`; ``stop``: its `SharedStop`, if it is of several processes.

    ``note(text)`` receives messages for the user; for ``saved_loads`` see `find_loads`. Steps that should be graphs but
    cannot be recorded are launched one by one, with a message.
    """
    devices = everybody.mine
    if settings.precision == "tf32" and everybody.size > 1:
        raise ValueError("precision 'tf32' needs CUDA graphs, which several processes do not launch; leave it out")
    in_graphs = everybody.size == 1 and can_use_graphs(X, y, devices, network, settings)
    settings = find_loads(X, y, params, network, everybody, settings, in_graphs, saved_loads, note)
    if in_graphs:
        try:
            return GraphStep(X, y, params, everybody, network, settings, stop), settings
        except (ValueError, DeviceError):  # settings that make no sense
            raise
        except Exception as error:
            if settings.precision == "tf32":
                raise DeviceError(f"precision 'tf32' needs CUDA graphs, and the step cannot be one: {error}") from error
            tell(f"the step cannot be a CUDA graph ({error}); it is launched kernel by kernel")
    return PlanStep(X, y, params, everybody, network, settings, stop), settings


def make_test_set(X, y, runner, devices, network, settings, metrics):
    """The test set for what a ``runner`` trains: a `TestSet`, or a `SplitTestSet` where no device has everything."""
    loss = find_loss(settings.loss)
    if isinstance(runner, PlanStep) and (runner.limited or not runner.are_copies):
        return SplitTestSet(X, y, runner.plan, devices, settings.batch_size, loss, metrics)
    return TestSet(X, y, devices, network, loss, metrics)


def find_loads(X, y, params, network, everybody, settings, in_graphs, saved, note):
    """The settings, where loads are "auto" with measured ones, or those ``saved`` by the same run; say what is idle."""
    devices, loads = everybody.names, settings.loads
    if loads == "auto":
        same = saved and len(saved) == len(devices)  # a run goes on as it was
        if settings.precision == "mixed" and not in_graphs:  # in graphs the kernels round
            params, network = half_weights(params), in_half(network)
        how = settings.batch_size, network, find_loss(settings.loss)
        loads = saved if same else measure_loads(X, y, params, everybody.mine, *how)
        found = listed(f"{device} {load:.2f}" for device, load in zip(devices, loads, strict=True))
        equal = len(set(loads)) == 1
        note("loads: equal parts; no others that were tried make a step shorter" if equal else f"loads: {found}")
    idle = [device for device, load in zip(devices, loads or [1] * len(devices), strict=True) if load == 0]
    if idle:
        note(f"{listed(idle)} " + ("has load 0 and stays idle" if len(idle) == 1 else "have load 0 and stay idle"))
    return replace(settings, loads=loads)


def can_use_graphs(X, y, devices, network, settings):
    """Whether steps are to be CUDA graphs. Raises ValueError where they are not and the precision needs them."""
    wanted = settings.graphs and settings.preprocess is None and make_optimizer(settings).in_graphs
    wanted = wanted and find_loss(settings.loss) is CROSS_ENTROPY
    can = wanted and can_be_graph(X, y, devices, settings.algorithm, network, settings.precision)
    if settings.precision == "tf32" and not can:
        raise ValueError(
            "precision 'tf32' needs CUDA graphs: graphs=True, uint8 images, whole labels, the loss cross_entropy, an "
            "allreduce of ours, no preprocess, a kernel for every layer, GPUs that use each other's memory"
        )
    return can
