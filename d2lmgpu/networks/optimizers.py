"""Optimisers: plain functions of one device's parameters, and of the optimiser's state; and learning rates over time.

An optimiser does one training step in place. Gradients are sums over the examples of the whole batch on all devices;
``batch_size`` is the size of this full batch, not of a shard, and g = grad / batch_size is the mean gradient.

Large minibatches allow proportionally larger rates (Goyal et al. 2017, "Accurate, Large Minibatch SGD"), but not in the
first steps, when the weights still change a lot. So the rate rises in equal steps during the first epochs, the warm-up,
and a schedule follows.
"""

import math
import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..base.arguments import check_array, check_function, check_list, check_name, check_number, is_number, shown
from ..devices import DeviceArray, array_module, on_device, parts_of, put
from ..devices.records import span
from .checks import check_shapes

PIECE = 2**18
"""How many elements a CPU updates at a time."""

_thread = threading.local()


@on_device
def sgd(params, grads, lr, batch_size):
    """Minibatch stochastic gradient descent: param -= lr · g.

    Raises ValueError if the gradients do not match the parameters, the rate is not finite, or the batch size is 0.
    """
    lr, batch_size = _checked(params, lr, batch_size, grads=grads)
    xp = array_module(params[0])
    with span("update"):
        for param, grad, change in _pieces(params, grads):
            param -= xp.multiply(grad, param.dtype.type(lr / batch_size), out=change)


@on_device
def momentum(params, grads, velocities, lr, batch_size, decay=0.9):
    """SGD with momentum (Polyak 1964), as in PyTorch: velocity = decay · velocity + g; param -= lr · velocity.

    ``velocities``: arrays like ``params``, initially zero.
    """
    lr, batch_size = _checked(params, lr, batch_size, grads=grads, velocities=velocities)
    xp = array_module(params[0])
    with span("update"):
        for param, grad, velocity, change in _pieces(params, grads, velocities):
            number = param.dtype.type
            velocity *= number(decay)
            velocity += xp.multiply(grad, number(1 / batch_size), out=change)
            param -= xp.multiply(velocity, number(lr), out=change)


@on_device
def adam(params, grads, means, squares, step, lr, batch_size, beta1=0.9, beta2=0.999, epsilon=1e-8):
    """Adam (Kingma and Ba 2015): running means of g and g², both corrected for their start at zero.

    ``means`` and ``squares``: arrays like ``params``, initially zero. ``step`` counts from 1. param -= lr · m / (√v +
    epsilon), where m = mean / (1 - beta1^step) and v = square / (1 - beta2^step).
    """
    lr, batch_size = _checked(params, lr, batch_size, grads=grads, means=means, squares=squares)
    xp = array_module(params[0])
    with span("update"):
        for param, grad, mean, square, change in _pieces(params, grads, means, squares):
            number = param.dtype.type
            mean *= number(beta1)
            mean += xp.multiply(grad, number((1 - beta1) / batch_size), out=change)
            xp.multiply(grad, number((1 - beta2) ** 0.5 / batch_size), out=change)
            square *= number(beta2)
            square += xp.square(change, out=change)
            xp.multiply(square, number(1 / (1 - beta2**step)), out=change)
            xp.sqrt(change, out=change)
            change += number(epsilon)
            xp.divide(mean, change, out=change)
            change *= number(lr / (1 - beta1**step))
            param -= change


class Optimizer(NamedTuple):
    """A named optimiser: ``update(params, grads, *state, step, lr, batch_size)``.

    Its state consists of ``states`` lists like ``params``, initially zero. ``in_graphs``: whether there is a CUDA
    kernel that does the same.
    """

    name: str
    update: Callable
    states: int
    in_graphs: bool = True


def _without_step(update):
    return lambda params, grads, *rest: update(params, grads, *rest[:-3], *rest[-2:])


SGD, _MOMENTUM = Optimizer("sgd", _without_step(sgd), 0), Optimizer("momentum", _without_step(momentum), 1)
OPTIMIZERS = {optimizer.name: optimizer for optimizer in (SGD, _MOMENTUM, Optimizer("adam", adam, 2))}


def make_optimizer(settings):
    """The `Optimizer` for the settings of a run."""
    return decaying(OPTIMIZERS[settings.optimizer], settings.weight_decay)


class DeviceOptimizer:
    """An `Optimizer` of one device's parameters, with its ``state`` on the device and its ``steps`` so far."""

    def __init__(self, optimizer, params):
        self.optimizer, self.steps = optimizer, 0
        self.flat_state = [_zeros(params) for _ in range(optimizer.states)]
        self.state = [
            [DeviceArray(part, flat.device) for part in parts_of(flat.raw, params)] for flat in self.flat_state
        ]

    def update(self, params, grads, lr, batch_size):
        """Do the next step; runs on the device, with plain arrays."""
        state = [[array.raw for array in arrays] for arrays in self.state]
        self.optimizer.update(params, grads, *state, self.steps + 1, lr, batch_size)
        self.steps += 1


def _zeros(params):
    """A flat device array with a zero for each element of the parameters."""
    return put(np.zeros(sum(param.size for param in params), params[0].dtype), params[0].device)


def init_optimizer(name, device_params, weight_decay=0.0):
    """An optimiser for `train_batch`, by its name in `OPTIMIZERS`: a list with a `DeviceOptimizer` for each device.

    ``device_params``: a list of parameters on each device, as from `get_params`. The optimiser's state starts at zero.
    ``weight_decay``: see `decaying`.

    Raises ValueError for an unknown name, a weight decay below 0, or ``device_params`` that are not such a list.
    """
    check_name("optimizer", name, OPTIMIZERS)
    weight_decay = check_number("weight_decay", weight_decay, least=0)
    device_params = check_list("device_params", device_params, of="lists of arrays, one for each device")
    for params in device_params:
        for param in check_list("device_params", params, of="arrays on a device, as from get_params"):
            if not isinstance(param, DeviceArray):
                raise ValueError(f"device_params: {shown(param)} is not on a device; get_params copies arrays to one")
    return [DeviceOptimizer(decaying(OPTIMIZERS[name], weight_decay), params) for params in device_params]


def decaying(optimizer, weight_decay):
    """The `Optimizer` with g + weight_decay · param instead of g, as in PyTorch.

    It minimises the loss + weight_decay/2 · ‖params‖². If ``weight_decay`` is 0, ``optimizer`` itself is returned.
    """
    if not weight_decay:
        return optimizer

    def update(params, grads, *rest):
        batch_size = rest[-1]
        with span("update"):
            for param, grad, product in _pieces(params, grads):
                xp = array_module(param)
                grad += xp.multiply(param, param.dtype.type(weight_decay * batch_size), out=product)
        optimizer.update(params, grads, *rest)

    return optimizer._replace(update=update, in_graphs=False)


def _pieces(*lists):
    """For each position in ``lists``, the arrays there and one more of the same size, for intermediate results.

    On a CPU, the arrays come in pieces that stay in the cache, and the extra one uses the same memory each time.
    """
    for arrays in zip(*lists, strict=True):
        first = arrays[0]
        if array_module(first) is not np or not all(array.flags.c_contiguous for array in arrays):
            yield *arrays, array_module(first).empty_like(first)
            continue
        memory = getattr(_thread, "memory", None)
        if memory is None or memory.dtype != first.dtype or memory.size < PIECE:
            memory = _thread.memory = np.empty(PIECE, first.dtype)
        flat = [array.reshape(-1) for array in arrays]
        for start in range(0, first.size, PIECE):
            pieces = [array[start : start + PIECE] for array in flat]
            yield *pieces, memory[: len(pieces[0])]


def _checked(params, lr, batch_size, **lists):
    """The numbers as Python's. ValueError unless they are valid, and these are ``lists`` of arrays like ``params``."""
    if not isinstance(params, (list, tuple)) or not params:
        raise ValueError(f"params: {shown(params)} should be a list of arrays")
    for i, param in enumerate(params):
        check_array(f"params: number {i}", param, kinds="f")
    for name, arrays in lists.items():
        check_shapes(name, arrays, [param.shape for param in params], "params")
    return check_number("lr", lr), check_number("batch_size", batch_size, above=0)


SCHEDULES = {
    "constant": lambda progress: 1.0,
    "cosine": lambda progress: (1 + math.cos(math.pi * progress)) / 2,  # Loshchilov and Hutter 2017, without restarts
    "step": lambda progress: 1.0 if progress < 0.5 else 0.1,
}
"""The factor of the rate as a function of progress, which goes from 0 to 1 in the epochs after the warm-up.

"step" divides the rate by ten halfway through.
"""


def learning_rates(lr, epoch, steps, num_epochs, warmup=0, schedule="constant"):
    """The learning rate of each of the ``steps`` of an ``epoch`` (from 0) of ``num_epochs``: an array (steps,).

    ``warmup``: the epochs, not necessarily whole, over which the rate rises linearly to ``lr``. ``schedule``: a name in
    `SCHEDULES`, or a function like those there.

    Raises ValueError for an unknown schedule or one that does not return a number, and for a warm-up that is negative
    or takes up all epochs.
    """
    if callable(schedule):
        check_function("schedule", schedule, "progress")
    else:
        check_name("schedule", schedule, SCHEDULES, also=", or give a function")
    factor = SCHEDULES.get(schedule, schedule)
    if not is_number(warmup) or not 0 <= warmup < num_epochs:
        raise ValueError(f"warmup is {shown(warmup)} epochs of {num_epochs}; it should be at least 0 and less than all")
    rates = np.empty(steps)
    for step in range(steps):
        done = epoch + step / steps  # epochs so far
        if done < warmup:
            rates[step] = lr * (done + 1 / steps) / warmup if done + 1 / steps < warmup else lr
        else:
            part = factor((done - warmup) / (num_epochs - warmup))
            part = check_number("schedule: what the function returned", part)
            rates[step] = lr * part
    return rates
