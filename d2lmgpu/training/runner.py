"""Who does the steps of a run: a replica on each device, and CUDA graphs or eager steps with them."""

from ..devices import DeviceError
from ..devices.trials import tell
from ..parallel import EagerStep, GraphStep, Replica, get_params, measure_loads
from ..parallel.graph_limits import can_be_graph
from ..words import listed


def make_replicas(params, devices, network, history, in_graphs):
    """For each device a `Replica` with a copy of ``params``."""
    precision = "float32" if in_graphs else history.precision  # in graphs the kernels round
    return [
        Replica(get_params(params, device), device, network, history.optimizer, precision=precision)
        for device in devices
    ]


def make_runner(
    X,
    y,
    params,
    devices,
    network,
    history,
    note=print,
    saved_loads=None,
    preprocess=None,
    graphs=True,
    flat=True,
    overlap=False,
    prefetch=True,
):
    """A `GraphStep` or an `EagerStep` on new ``replicas``, for the settings in ``history``, where loads are entered.

    ``note`` is told what a user should know; for ``saved_loads`` see `find_loads`, for the others `train`.
    Steps that should be graphs but cannot be recorded are launched one by one, which is said.
    """
    in_graphs = can_use_graphs(X, y, devices, network, history, preprocess, graphs)
    replicas = make_replicas(params, devices, network, history, in_graphs)
    find_loads(X, y, replicas, history, saved_loads, note)
    if in_graphs:
        try:
            names = "precision", "loads", "drop_last", "batch_statistics"
            choices = {name: getattr(history, name) for name in names}
            return GraphStep(X, y, replicas, history.batch_size, history.allreduce, **choices)
        except (ValueError, DeviceError):  # settings that make no sense
            raise
        except Exception as error:
            if history.precision == "tf32":
                raise DeviceError(f"precision 'tf32' needs CUDA graphs, and the step cannot be one: {error}") from error
            tell(f"the step cannot be a CUDA graph ({error}); it is launched kernel by kernel")
            replicas = make_replicas(params, devices, network, history, in_graphs=False)
    return EagerStep(
        X,
        y,
        replicas,
        history.batch_size,
        history.loads,
        prefetch,
        seed=history.seed,
        preprocess=preprocess,
        drop_last=history.drop_last,
        algorithm=history.allreduce,
        flat=flat,
        overlap=overlap,
        batch_statistics=history.batch_statistics,
    )


def find_loads(X, y, replicas, history, saved, note):
    """If ``history.loads`` are "auto", enter measured ones, or those ``saved`` by the same run; say what is idle."""
    devices = [replica.device for replica in replicas]
    if history.loads == "auto":
        same = saved and len(saved) == len(devices)  # a run goes on as it was
        history.loads = saved if same else measure_loads(X, y, replicas, history.batch_size)
        found = listed(f"{device} {load:.2f}" for device, load in zip(devices, history.loads, strict=True))
        equal = len(set(history.loads)) == 1
        note("loads: equal parts; no others that were tried make a step shorter" if equal else f"loads: {found}")
    idle = [device for device, load in zip(devices, history.loads or [1] * len(devices), strict=True) if load == 0]
    if idle:
        note(f"{listed(idle)} " + ("has load 0 and stays idle" if len(idle) == 1 else "have load 0 and stay idle"))


def can_use_graphs(X, y, devices, network, history, preprocess, wanted):
    """Whether steps are to be CUDA graphs. Raises ValueError where they are not and the precision needs them."""
    choices = history.allreduce, network, history.precision
    can = wanted and preprocess is None and can_be_graph(X, y, devices, *choices)
    if history.precision == "tf32" and not can:
        raise ValueError(
            "precision 'tf32' needs CUDA graphs: graphs=True, uint8 images, an allreduce of ours, no preprocess, "
            "GPUs that use each other's memory"
        )
    return can
