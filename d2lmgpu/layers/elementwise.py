"""Layers that treat each number separately: ReLU, dropout, and rounding to half precision.

**Dropout**: in training, each input is dropped with probability p, independently each time (Srivastava et al. 2014).
The others are divided by 1 - p ("inverted" dropout). This keeps the mean, so dropout need do nothing when the trained
network is used.

`Draws`, not the devices, decide which inputs are dropped: k devices drop the same inputs as one. An ordinary generator
has a state, and each call gets its next number. If you then split a minibatch differently over devices, each example
gets different numbers. Here, a number is a function of its position:

    seed, epoch, step, layer  ─►  a key, the state with which SplitMix64 begins
    position of the example in the whole minibatch, element  ─►  which number of the sequence

SplitMix64's state grows by a constant from number to number, so number i can be computed without the numbers before it.
Each number is the state with its bits thoroughly mixed.

Source: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators", and Vigna's splitmix64.c. The idea
of computing a random number from its position is from Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2,
3".

**Half precision**: numbers are rounded to float16, which has 11 significant bits and a largest number of 65504. Rounded
numbers keep their dtype. The product of two float16 numbers is exact in float32, and sums are computed in float32, so
the results are those of tensor cores.
"""

import math
from typing import NamedTuple

import numpy as np

from ..base.arguments import plain
from ..devices import array_module, on_device

STRIDE = 0x9E3779B97F4A7C15
"""The constant by which the state grows: 2**64 divided by the golden ratio."""


class Draws(NamedTuple):
    """The values that decide which random numbers a layer draws in a training step.

    ``seed``: the seed of the run. ``epoch`` and ``step``, the minibatch's number in the epoch, are counted from 0.
    ``first``: the position, in the whole minibatch, of the first example that the layer gets. ``layer``: the layer's
    number among the layers that draw. ``units``: (start, stop, count) if the layer gets only some of each example's
    channels or features: those from ``start`` to ``stop`` if there are ``count`` equal parts.
    """

    seed: int
    epoch: int = 0
    step: int = 0
    first: int = 0
    layer: int = 0
    units: tuple = None

    def after(self, examples):
        """The `Draws` for the part that begins ``examples`` examples later."""
        return self._replace(first=int(self.first) + int(examples))


def random_bits(draws, shape, xp=np):
    """32 random bits for each element of an array of ``shape`` (N, ...): uint32, on NumPy's or CuPy's current device.

    Each number of the sequence gives the bits of two elements.
    """
    if draws.units is not None:  # draw for all units, and take the layer's own
        start, stop, count = plain(draws.units)
        width = shape[1] // (stop - start) if start < stop else 0
        whole = random_bits(draws._replace(units=None), (shape[0], width * count, *shape[2:]), xp)
        return whole[:, width * start : width * stop]
    N, size = shape[0], math.prod(shape[1:])
    pairs = -(-size // 2)
    seed, epoch, step, first, layer, _ = plain(list(draws))
    key = np.random.SeedSequence(seed, spawn_key=(epoch, step, layer))
    begin = first * pairs
    numbers = splitmix64(int(key.generate_state(1, np.uint64)[0]), xp.arange(begin, begin + N * pairs, dtype=np.uint64))
    return numbers.view(np.uint32).reshape(N, 2 * pairs)[:, :size].reshape(shape)


def splitmix64(state, z):
    """The numbers ``z`` (uint64, from 0) of the sequence that starts from ``state``: uint64, which overwrite ``z``."""
    z *= np.uint64(STRIDE)
    z += np.uint64((state + STRIDE) % 2**64)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


@on_device
def relu(x):
    """``x`` of any shape → y = max(x, 0), cache."""
    y = array_module(x).maximum(x, 0)
    return y, y


@on_device
def relu_grad(dy, y):
    """``dy`` → dx: the gradient passes where the output was positive (at 0 the derivative is taken as 0)."""
    return dy * (y > 0)


@on_device
def dropout(x, p, draws=None):
    """``x`` (N, C, H, W) or (N, D) → y = x · mask, cache; mask is 0 with probability ``p``, and otherwise 1 / (1 - p).

    ``draws``: the `Draws` that decide the mask. Without them y is x, as after training.
    """
    if draws is None:
        return x, None
    bits = random_bits(draws, x.shape, array_module(x))
    mask = (bits >= np.uint32(p * 2**32)).astype(np.result_type(x.dtype, np.float32))
    mask *= mask.dtype.type(1 / (1 - p))
    return x * mask, mask


@on_device
def dropout_grad(dy, mask):
    """``dy`` like y → dx = dy · mask, or dy if there is no mask."""
    return dy if mask is None else dy * mask


@on_device
def half(x):
    """``x`` of any shape → y, each number rounded to float16 (infinite beyond its range), and no cache."""
    return rounded_to_half(x), None


@on_device
def half_grad(dy, cache=None):
    """``dy`` → dx: the gradient is rounded to float16, too."""
    return rounded_to_half(dy)


def rounded_to_half(x):
    """A plain array like ``x``, with each number rounded to float16."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).astype(x.dtype)
