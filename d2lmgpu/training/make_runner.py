"""Choose how the steps of a run are executed: with a plan, and on GPUs as CUDA graphs where possible."""

from dataclasses import replace

from ..cluster import gather
from ..devices import DeviceError
from ..devices.trials import tell
from ..layers.exact import GRANULE, sizes_of_granules
from ..networks import CROSS_ENTROPY, find_loss
from ..optimizers import make_optimizer
from ..parallel import measure_loads
from ..parallel.graph_limits import can_be_graph, in_one_graph
from ..words import listed, several
from .graph_step import GraphStep
from .piece_step import PieceStep
from .plan_step import PlanStep
from .runner import Runner
from .textbook_steps import TextbookSteps


def make_runner(X, y, params, everybody, network, settings, note=print, saved=None) -> Runner:
    """The `Runner` for a run.

    ``everybody``: a `Cluster`. ``note(text)`` receives messages for the user. ``saved``: the history of a resumed run,
    a dict; its loads are used where the settings say "auto". Steps that should be graphs but cannot be recorded are
    launched kernel by kernel, with a message.
    """
    n, k = min(settings.batch_size, len(X)), len(everybody)
    granules = len(sizes_of_granules(n))
    if settings.sums == "exact" and granules < k:
        have = f"{n} examples are {several(granules, 'granule')} of at most {GRANULE}"
        note(f"exact sums: {have}, fewer than the {k} devices: some have nothing to do")
    in_graphs = can_use_graphs(X, y, everybody, network, settings)
    settings = find_loads(X, y, params, network, everybody, settings, saved and saved["loads"], note)
    if in_graphs:
        in_one = everybody.size == 1 and in_one_graph(everybody.mine, settings.algorithm)
        runner, error = None, "another process's cannot"
        try:
            runner = (GraphStep if in_one else PieceStep)(X, y, params, everybody, network, settings)
        except (ValueError, DeviceError):  # settings that make no sense
            raise
        except Exception as reason:
            error = reason
        if all_of_them(everybody, runner is not None):
            return runner
        if settings.precision == "tf32":
            raise DeviceError(f"precision 'tf32' needs CUDA graphs, and the step cannot be one: {error}")
        tell(f"the step cannot be a CUDA graph ({error}); it is launched kernel by kernel")
    return (TextbookSteps if is_plain(settings) else PlanStep)(X, y, params, everybody, network, settings)


def is_plain(settings):
    """Whether the textbook's steps do what the settings ask for; otherwise a plan does."""
    return settings.split is None and not settings.overlap


def all_of_them(everybody, here):
    """Whether ``here`` is true in all processes of a `Cluster`; all processes call this."""
    return bool(gather(everybody, [[here]] * len(everybody.mine)).all())


def find_loads(X, y, params, network, everybody, settings, saved, note):
    """The settings, with measured (or ``saved``) loads in place of "auto". Also reports which devices stay idle."""
    devices, loads = everybody.names, settings.loads
    if loads == "auto":
        same = saved and len(saved) == len(devices)  # a resumed run keeps its loads
        how = settings.batch_size, network, find_loss(settings.loss)
        loads = saved if same else measure_loads(X, y, params, everybody.mine, *how)
        found = listed(f"{device} {load:.2f}" for device, load in zip(devices, loads, strict=True))
        equal = len(set(loads)) == 1
        note("loads: equal parts; no others that were tried make a step shorter" if equal else f"loads: {found}")
    idle = [device for device, load in zip(devices, loads or [1] * len(devices), strict=True) if load == 0]
    if idle:
        note(f"{listed(idle)} " + ("has load 0 and stays idle" if len(idle) == 1 else "have load 0 and stay idle"))
    return replace(settings, loads=loads)


def can_use_graphs(X, y, everybody, network, settings):
    """Whether steps should be CUDA graphs. Raises ValueError if they cannot be graphs but the precision needs it."""
    wanted = settings.graphs and settings.preprocess is None and make_optimizer(settings).in_graphs
    wanted = wanted and find_loss(settings.loss) is CROSS_ENTROPY and settings.sums == "float"
    wanted = wanted and settings.batch_statistics == "local" and settings.flat
    can = wanted and can_be_graph(X, y, everybody.mine, network, settings.precision)
    if any(name.startswith("gpu") for name in everybody.names):  # all processes know that
        can = all_of_them(everybody, can)
    if settings.precision == "tf32" and not can:
        raise ValueError(
            "precision 'tf32' needs CUDA graphs: graphs=True, uint8 images, whole labels, the loss cross_entropy, no "
            "preprocess, and a kernel for every layer"
        )
    return can
