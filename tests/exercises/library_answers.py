"""What the library has for the exercises: its functions that do an exercise's work, and what an answer may use of it.

In `REFUSED`, exercises have answers that leave its work to the library, and in `ACCEPTED` are answers that use the
library for a part of it.
"""

import importlib

import numpy as np

import d2lmgpu as d2l
from d2lmgpu.collectives import (
    ALGORITHMS,
    Transfer,
    all_gather,
    chunk_bounds,
    execute,
    reduce_scatter,
)
from d2lmgpu.exercises import student_file
from d2lmgpu.networks.mixed import LossScale, are_finite
from d2lmgpu.networks.optimizers import learning_rates
from d2lmgpu.parallel.shards import put_parts, shard_bounds
from d2lmgpu.plans.splits.pipelines import one_f_one_b_order


def max_pool_grad(dy, x):
    return d2l.max_pool2d_grad(dy, d2l.max_pool2d(x)[1])


def log_softmax(logits):
    rows = [[[row, label] for label in range(len(row))] for row in logits]
    return np.array([[-d2l.softmax_cross_entropy(row[None], np.array([i]))[0] for row, i in each] for each in rows])


def split_batch(X, y, devices):
    bounds = chunk_bounds(len(X), len(devices))
    return put_parts(X, bounds, devices), put_parts(y, bounds, devices)


def learning_rate(step, lr, k, warmup_steps):
    if not warmup_steps:
        return k * lr
    return [*learning_rates(k * lr, 0, warmup_steps, 2, warmup=1), k * lr][min(step, warmup_steps)]


def evaluate(device_params, X, y, devices, batch_size):
    return d2l.evaluate(device_params, X, y, devices)


def evaluate_predictions(device_params, X, y, devices, batch_size):
    return (d2l.predict(device_params, X, devices).argmax(axis=1) == y).mean()


def next_scale(scale, good_steps, grads, interval):
    state = LossScale(True)
    state.scale, state.good_steps = scale, 2000 - interval + good_steps
    use = state.adapt(are_finite(grads))
    return use, state.scale, state.good_steps and state.good_steps - 2000 + interval


_SUMS = {
    "the function": d2l.allreduce,
    "a schedule from the table": lambda data: execute(ALGORITHMS["sharded"](len(data), data[0].size), data),
    "an own schedule": lambda data: d2l.allreduce(data, lambda k, n: reduce_scatter(k, n) + all_gather(k, n)),
}

REFUSED = {
    "sum_on": {"the stand-in": student_file.sum_on},
    "max_pool_grad": {"the layer": max_pool_grad},
    "log_softmax": {"the loss": log_softmax, "the stand-in": student_file.STAND_INS["log_softmax"]},
    "split_batch": {"the function": d2l.split_batch, "its parts": split_batch},
    "allreduce": _SUMS,
    "train_batch": {"the function": d2l.train_batch},
    "ring": {
        "from the table": ALGORITHMS["ring"],
        "looked up": lambda k, n: getattr(importlib.import_module("d2lmgpu.collectives"), "ri" + "ng")(k, n),
        "its halves": lambda k, n: reduce_scatter(k, n) + all_gather(k, n),
    },
    "learning_rate": {"the schedule": learning_rate},
    "evaluate": {"the function": evaluate, "predictions": evaluate_predictions},
    "next_scale": {"mixed precision's": next_scale},
    "sum_into_all": _SUMS,
    "cut": {"chunks": chunk_bounds, "shards": shard_bounds},
    "one_f_one_b": {"the order": one_f_one_b_order},
}


def leaky_relu(x, slope):
    positive, of_positive = d2l.relu(x)
    negative, of_negative = d2l.relu(-x)
    return (
        positive - slope * negative,
        lambda dy: d2l.relu_grad(dy, of_positive) + slope * d2l.relu_grad(dy, of_negative),
    )


def dense_by_inputs(x, weight, bias, devices):
    parts = zip(np.array_split(x, len(devices), axis=1), np.array_split(weight, len(devices)), devices, strict=True)
    biases = [bias] + [np.zeros_like(bias)] * (len(devices) - 1)
    each = [[d2l.put(a, device) for a in (*own, b)] for (*own, device), b in zip(parts, biases, strict=True)]
    products = [d2l.put(d2l.dense(*arrays)[0], devices[0]) for arrays in each]
    return sum(products[1:], products[0])


def split_batch_in_chunks(X, y, devices):
    bounds = chunk_bounds(len(X), len(devices))
    return tuple([d2l.put(a[i:j], device) for (i, j), device in zip(bounds, devices, strict=True)] for a in (X, y))


def _own_ring(k, n):
    bounds, steps = chunk_bounds(n, k), range(2 * (k - 1))
    op = ["add"] * (k - 1) + ["copy"] * (k - 1)
    return [[Transfer(i, (i + 1) % k, *bounds[(i - step) % k], op[step]) for i in range(k)] for step in steps]


def allreduce(data):
    execute(_own_ring(len(data), data[0].size), data)


def my_examples(batch_size, counts, rank):
    first = sum(counts[:rank])
    mine = shard_bounds(batch_size, sum(counts))[first : first + counts[rank]]
    return mine[0][0], mine[-1][1]


ACCEPTED = {
    "leaky_relu": leaky_relu,
    "dense_by_inputs": dense_by_inputs,
    "split_batch": split_batch_in_chunks,
    "ring": _own_ring,
    **dict.fromkeys(
        ("allreduce", "sum_into_all", "sum_by_chunks", "sum_from_neighbours", "sum_round_the_ring"), allreduce
    ),
    "my_examples": my_examples,
}
