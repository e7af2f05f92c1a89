"""Who does the steps of a run: a replica on each device, and CUDA graphs or eager steps with them."""

from ..parallel import EagerStep, GraphStep, Replica, get_params, measure_loads


def make_replicas(params, devices, network, history, in_graphs):
    """For each device a `Replica` with a copy of ``params``."""
    precision = "float32" if in_graphs else history.precision  # in graphs the kernels round
    return [
        Replica(get_params(params, device), device, network, history.optimizer, precision=precision)
        for device in devices
    ]


def find_loads(X, y, replicas, history, saved, bar):
    """If ``history.loads`` are "auto", enter measured ones, or those ``saved`` by the same run; say what is idle."""
    devices = [replica.device for replica in replicas]
    if history.loads == "auto":
        same = saved and len(saved) == len(devices)  # a run goes on as it was
        history.loads = saved if same else measure_loads(X, y, replicas, history.batch_size)
        found = zip(devices, history.loads, strict=True)
        bar.note("loads: " + ", ".join(f"{device} {load:.2f}" for device, load in found))
    for device, load in zip(devices, history.loads or [1] * len(devices), strict=True):
        if load == 0:
            bar.note(f"{device} has load 0 and stays idle")


def can_use_graphs(X, y, devices, network, history, preprocess, wanted):
    """Whether steps are to be CUDA graphs. Raises ValueError where they are not and the precision needs them."""
    can = wanted and preprocess is None and GraphStep.can_do(X, y, devices, history.allreduce, network)
    if history.precision == "tf32" and not can:
        raise ValueError(
            "precision 'tf32' needs CUDA graphs: graphs=True, uint8 images, an allreduce of ours, no batch norm, "
            "no preprocess"
        )
    return can


def make_runner(X, y, replicas, history, in_graphs, preprocess, flat, overlap, prefetch):
    """A `GraphStep` or an `EagerStep` for the settings in ``history``."""
    if in_graphs:
        return GraphStep(
            X,
            y,
            replicas,
            history.batch_size,
            history.allreduce,
            precision=history.precision,
            loads=history.loads,
            drop_last=history.drop_last,
        )
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
