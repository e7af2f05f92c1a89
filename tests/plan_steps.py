"""Steps of data parallelism one by one, as `train` does them, and each device's copy afterwards."""

import numpy as np

import d2lmgpu as d2l
from d2lmgpu.parallel.shards import shard_bounds
from d2lmgpu.plans import Execution
from d2lmgpu.plans.execution.step import Minibatch
from d2lmgpu.training import Settings
from d2lmgpu.training.splits import plan_of


def execution_of(params, devices, network, optimizer="sgd", loss="cross_entropy", precision="float32", **settings):
    """The `Execution` of the plan that `train` would make of these settings."""
    plan = plan_of(Settings(precision=precision, **settings), len(devices), network)
    return Execution(plan, params, devices, optimizer, loss, mixed=precision == "mixed")


def step(execution, X, y, lr, loads=None, draws=None):
    """One step; the summed loss. ``loads``: as of `split_batch`."""
    bounds = shard_bounds(len(y), execution.plan.k, loads)
    return execution.step(X, y, lr, draws, tuple(stop - start for start, stop in bounds))


def copies(execution):
    """Of each device NumPy arrays: the parameters, and batch norm's running statistics."""
    return [[d2l.to_host(array) for arrays in store.copy() for array in arrays] for store in execution.stores]


def step_with_images_that_do_not_fit(execution, devices, shapes):
    """A step in which each device gets two images of its own shape: those of another than the network's fail there."""
    placed = {}
    for i, (device, shape) in enumerate(zip(devices, shapes, strict=True)):
        placed[i] = Minibatch([2] * len(devices), None)
        placed[i].X[i] = d2l.put(np.zeros((2, *shape), np.float32), device).raw
        placed[i].y[i] = d2l.put(np.zeros(2, int), device).raw
    return execution.finish(execution.submit_placed(placed, 0.1))
