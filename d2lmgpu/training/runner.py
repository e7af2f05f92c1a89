"""Who does the steps of a run: a replica on each device, and CUDA graphs or eager steps with them."""

from dataclasses import replace

from ..devices import DeviceError
from ..devices.trials import tell
from ..optimizers import make_optimizer
from ..parallel import EagerStep, GraphStep, Replica, get_params, measure_loads
from ..parallel.graph_limits import can_be_graph
from ..words import listed


def make_runner(X, y, params, devices, network, settings, note=print, saved_loads=None):
    """A `GraphStep` or an `EagerStep` on new ``replicas``, and the `Settings` with the loads that it has.

    ``note`` is told what a user should know; for ``saved_loads`` see `find_loads`. Steps that
    should be graphs but cannot be recorded are launched one by one, which is said.
    """
    in_graphs = can_use_graphs(X, y, devices, network, settings)
    replicas = make_replicas(params, devices, network, settings, in_graphs)
    settings = find_loads(X, y, replicas, settings, saved_loads, note)
    if in_graphs:
        try:
            return graph_step(X, y, replicas, settings), settings
        except (ValueError, DeviceError):  # settings that make no sense
            raise
        except Exception as error:
            if settings.precision == "tf32":
                raise DeviceError(f"precision 'tf32' needs CUDA graphs, and the step cannot be one: {error}") from error
            tell(f"the step cannot be a CUDA graph ({error}); it is launched kernel by kernel")
            replicas = make_replicas(params, devices, network, settings, in_graphs=False)
    return eager_step(X, y, replicas, settings), settings


def make_replicas(params, devices, network, settings, in_graphs):
    """For each device a `Replica` with a copy of ``params``."""
    precision = "float32" if in_graphs else settings.precision  # in graphs the kernels round
    optimizer = make_optimizer(settings)
    return [Replica(get_params(params, device), device, network, optimizer, precision=precision) for device in devices]


def graph_step(X, y, replicas, settings):
    """Steps as CUDA graphs."""
    return GraphStep(
        X,
        y,
        replicas,
        settings.batch_size,
        settings.algorithm,
        precision=settings.precision,
        loads=settings.loads,
        drop_last=settings.drop_last,
        batch_statistics=settings.batch_statistics,
    )


def eager_step(X, y, replicas, settings):
    """Steps one by one."""
    return EagerStep(
        X,
        y,
        replicas,
        settings.batch_size,
        settings.loads,
        settings.prefetch,
        seed=settings.seed,
        preprocess=settings.preprocess,
        drop_last=settings.drop_last,
        algorithm=settings.algorithm,
        flat=settings.flat,
        overlap=settings.overlap,
        batch_statistics=settings.batch_statistics,
    )


def find_loads(X, y, replicas, settings, saved, note):
    """The settings, where loads are "auto" with measured ones, or those ``saved`` by the same run; say what is idle."""
    devices, loads = [replica.device for replica in replicas], settings.loads
    if loads == "auto":
        same = saved and len(saved) == len(devices)  # a run goes on as it was
        loads = saved if same else measure_loads(X, y, replicas, settings.batch_size)
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
    can = wanted and can_be_graph(X, y, devices, settings.algorithm, network, settings.precision)
    if settings.precision == "tf32" and not can:
        raise ValueError(
            "precision 'tf32' needs CUDA graphs: graphs=True, uint8 images, an allreduce of ours, no preprocess, "
            "GPUs that use each other's memory"
        )
    return can
