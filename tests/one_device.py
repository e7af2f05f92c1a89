"""What one device does, written out in NumPy: the reference with which steps on several devices are compared.

The networks have about 1,300 parameters or fewer, and sizes that no number of devices divides.
"""

from typing import NamedTuple

import numpy as np

import d2lmgpu as d2l
from d2lmgpu.layers import Draws
from d2lmgpu.networks import (
    AvgPool2d,
    BatchNorm,
    Conv2d,
    Dense,
    Dropout,
    Flatten,
    Layer,
    MaxPool2d,
    ReLU,
    half_weights,
    in_half,
    init_params,
    mixed as loss_scale,
    sequential,
)


def linear(x, weight):
    return x @ weight, (x, weight)


def linear_grad(dy, cache, input_grad=True):
    x, weight = cache
    return dy @ weight.T if input_grad else None, x.T @ dy


def scale(x, factor):
    factor = factor.reshape(-1, *(1,) * (x.ndim - 2))
    return x * factor, (x, factor)


def scale_grad(dy, cache, input_grad=True):
    x, factor = cache
    return dy * factor if input_grad else None, (dy * x).sum(axis=(0, *range(2, x.ndim)))


def Linear(outputs):  # noqa: N802
    """A layer of one's own: weights without a bias."""
    return lambda shape: Layer(linear, linear_grad, ((*shape, outputs),))


def Scale():  # noqa: N802
    """A layer of one's own: parameters that are no weights."""
    return lambda shape: Layer(scale, scale_grad, (shape[:1],), ("ones",))


PLAIN = sequential(
    *((2, 7, 6), Conv2d(5, 2), ReLU(), MaxPool2d(), Conv2d(7, 2), ReLU(), Flatten()),
    *(Dense(9), ReLU(), Dense(4)),
)
SMOOTH = sequential((2, 7, 6), Conv2d(5, 2), AvgPool2d(), Conv2d(7, 2, padding=1), Flatten(), Dense(9), Dense(4))
"""Without a ReLU, which float32's rounding may turn on or off."""
DEEP = sequential(
    *((1, 13, 11), Conv2d(3, 3, padding=1), ReLU(), Conv2d(4, 3, padding=1), ReLU(), Conv2d(5, 3, padding=1), ReLU()),
    *(Conv2d(6, 3, padding=1), ReLU(), AvgPool2d(), Conv2d(4, 3), ReLU(), Flatten()),
    *(Dense(9), ReLU(), Dense(7), ReLU(), Dense(5)),
)
"""Eight layers with parameters, as many stages at most."""
ONE_UNIT = sequential((2, 5, 6), Conv2d(1, 2), ReLU(), Conv2d(2, 2), MaxPool2d(), Flatten(), Dense(1), Dense(3))
"""Where channels are split and a layer has one, device 0 alone has a share, and it is all."""
OWN = sequential((2, 6, 5), Conv2d(3, 2), Scale(), ReLU(), Conv2d(4, 2), Flatten(), Linear(6), Scale(), Linear(3))
DROPPING = sequential(
    *((2, 7, 6), Conv2d(4, 3), ReLU(), Dropout(0.2), AvgPool2d(), Dropout(0.3), Flatten()),
    *(Dense(9), ReLU(), Dropout(0.5), Dense(3)),
)
NORMED = sequential(
    *((2, 6, 5), Conv2d(3, 3), BatchNorm(), ReLU(), Flatten(), Dense(8), BatchNorm(), ReLU(), Dense(4)),
)
POSITIONS = 12, 1
"""Of the values of each batch norm layer of `NORMED`, those of one image."""
NETWORKS = {
    "plain": PLAIN,
    "smooth": SMOOTH,
    "deep": DEEP,
    "one unit": ONE_UNIT,
    "own layers": OWN,
    "dropout": DROPPING,
    "batch norm": NORMED,
}


def own_loss(outputs, y):
    return (np.abs(outputs - y) ** 1.5).sum(dtype=np.float64), (outputs, y)


def own_grad(cache):
    """In float64, which the step rounds."""
    difference = np.subtract(*cache, dtype=np.float64)
    return 1.5 * np.sqrt(np.abs(difference)) * np.sign(difference)


LOSSES = {
    "labels": "cross_entropy",
    "soft labels": "cross_entropy",
    "squared error": "squared_error",
    "own loss": (own_loss, own_grad),
}


def examples(network, n, dtype=np.float64, loss="labels", seed=5):
    """Random images, and what the loss compares with."""
    rng = np.random.default_rng(seed)
    X = rng.normal(0.5, 1, (n, *network.input_shape)).astype(dtype)
    if loss == "labels":
        return X, rng.integers(0, network.classes, n)
    return X, rng.dirichlet(np.ones(network.classes), n).astype(dtype)


def first_params(network, dtype=np.float64):
    """Random, biases too."""
    rng = np.random.default_rng(3)
    params = init_params(2, init="he", dtype=dtype, network=network)
    return [param + rng.normal(0, 0.05, param.shape).astype(dtype) for param in params]


class Learned(NamedTuple):
    """After some steps: their losses, how many labels had the largest output, parameters, and running statistics.

    The statistics are a list for each group of images that have their own.
    """

    losses: list
    correct: int
    params: list
    statistics: list


def learned_alone(
    network, batches, optimizer="sgd", lr=0.1, weight_decay=0.0, loss="labels", mixed=False, parts=None, draws=None
):
    """`Learned` by one device, which does the steps of ``batches``, pairs (X, y), one after the other.

    ``parts(n)``: for each running statistics the parts (start, stop) of n examples of which each is normalised by
    itself; by default all examples are one part. ``draws``: a function of the step's number.
    """
    params, losses, correct = first_params(network, batches[0][0].dtype), [], 0
    state = [[np.zeros_like(param) for param in params] for _ in range(2)]
    parts = parts or (lambda n: [[(0, n)]])
    running = [d2l.networks.init_statistics(network, np.float64) for _ in parts(1)]
    for number, (X, y) in enumerate(batches):
        found = [np.zeros_like(param) for param in params]
        losses.append(0.0)
        for statistics, bounds in zip(running, parts(len(y)), strict=True):
            moments = []
            for start, stop in bounds:
                if start < stop:
                    own = draws(number).after(start) if draws else None
                    value, right, grads, seen = _of_part(
                        network, X[start:stop], y[start:stop], params, loss, mixed, own
                    )
                    losses[-1] += value
                    correct += right
                    moments.append((stop - start, seen))
                    for total, grad in zip(found, grads, strict=True):
                        total += grad
            _track(statistics, moments)
        means = [grad / len(y) + weight_decay * param for grad, param in zip(found, params, strict=True)]
        update_by_formula(optimizer, params, means, state, number + 1, lr)
    return Learned(losses, correct, params, running)


def _of_part(network, X, y, params, loss, mixed, draws):
    """The loss, the number of right answers, gradients, and the images' mean and variance in each batch norm layer."""
    factor = loss_scale.FIRST_SCALE if mixed else 1.0
    if mixed:
        network, params = in_half(network), half_weights(params)
    statistics = d2l.networks.init_statistics(network, np.float64)
    value, grads = d2l.loss_and_grads(
        *(X, y, params, network), scale=factor, draws=draws, loss=LOSSES[loss], statistics=statistics or None
    )
    seen = [10 * array - (9 if i % 2 else 0) for i, array in enumerate(statistics)]  # begun at 0 and 1, a tenth of it
    right = 0
    if loss == "labels" and draws is None:
        right = int((d2l.networks.logits_as_written(X, params, network).argmax(axis=1) == y).sum())
    return float(value), right, [grad / factor for grad in grads], seen


def _track(statistics, moments):
    """Move running statistics to those of all parts' images together, which are put together from each part's."""
    for i in range(0, len(statistics) if moments else 0, 2):
        counts = [POSITIONS[i // 2] * n for n, _ in moments]
        means, variances = ([seen[i + j] for _, seen in moments] for j in (0, 1))
        count = sum(counts)
        mean = sum(n * own for n, own in zip(counts, means, strict=True)) / count
        squares = sum(
            max(n - 1, 1) * variance + n * (own - mean) ** 2
            for n, own, variance in zip(counts, means, variances, strict=True)
        )
        for running, value in ((statistics[i], mean), (statistics[i + 1], squares / max(count - 1, 1))):
            running += 0.1 * (value - running)


def update_by_formula(optimizer, params, grads, state, step, lr):
    """By the formulas of Polyak, and of Kingma and Ba."""
    for param, grad, first, second in zip(params, grads, *state, strict=True):
        if optimizer == "sgd":
            param -= lr * grad
        elif optimizer == "momentum":
            first[...] = 0.9 * first + grad
            param -= lr * first
        elif optimizer == "adam":
            first[...] = 0.9 * first + 0.1 * grad
            second[...] = 0.999 * second + 0.001 * grad**2
            param -= lr * first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        else:
            raise NotImplementedError(f"write the formula of {optimizer} here, from its paper")


def without_gradient(network):
    """The numbers of parameters whose gradient is but rounding: batch norm takes away what a bias before it adds."""
    found, number = set(), 0
    for layer, after in zip(network, [*network[1:], None], strict=True):
        number += len(layer.shapes)
        if len(layer.shapes) == 2 and after is not None and after.channels and not layer.channels:
            found.add(number - 1)
    return found


def draws_of(seed):
    """Those of each step of the first epoch."""
    return lambda number: Draws(seed, 0, number)
