"""Random numbers that depend only on where they are used, so that it does not matter which device draws them.

A generator with a state gives its next number to the next call: if you split a minibatch over other devices, each
example gets other numbers. Here a number is a function of its position:

    seed, epoch, step, layer  ─►  a key, the state in which SplitMix64 begins
    position of the example in the whole minibatch, element  ─►  which number of its sequence

SplitMix64's state grows by a constant from number to number, so number i can be computed without those before it. The
number is the state, thoroughly mixed.

Source: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators", and Vigna's splitmix64.c. The idea
of computing a random number from its position: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
"""

import math
from typing import NamedTuple

import numpy as np

STRIDE = 0x9E3779B97F4A7C15
"""The constant by which the state grows: 2**64 divided by the golden ratio."""


class Draws(NamedTuple):
    """What decides which random numbers a layer draws in a training step.

    ``seed``: the run's; ``epoch`` and ``step`` (the minibatch's number in the epoch): from 0. ``first``: the position,
    in the whole minibatch, of the first example that the layer gets. ``layer``: its number among the layers that draw.
    ``units``: (start, stop, count) if the layer gets only a part of each example's channels or features: those from
    ``start`` to ``stop`` of ``count`` equal parts.
    """

    seed: int
    epoch: int = 0
    step: int = 0
    first: int = 0
    layer: int = 0
    units: tuple = None

    def after(self, examples):
        """The `Draws` for the part that begins ``examples`` examples later."""
        return self._replace(first=self.first + examples)


def random_bits(draws, shape, xp=np):
    """32 random bits for each element of an array of ``shape`` (N, ...): uint32, on NumPy's or CuPy's current device.

    Number i of the sequence has the bits of two elements.
    """
    if draws.units is not None:  # draw for all units, and take its own
        start, stop, count = draws.units
        width = shape[1] // (stop - start) if start < stop else 0
        whole = random_bits(draws._replace(units=None), (shape[0], width * count, *shape[2:]), xp)
        return whole[:, width * start : width * stop]
    N, size = shape[0], math.prod(shape[1:])
    pairs = -(-size // 2)
    key = np.random.SeedSequence(draws.seed, spawn_key=(draws.epoch, draws.step, draws.layer))
    begin = draws.first * pairs
    numbers = splitmix64(int(key.generate_state(1, np.uint64)[0]), xp.arange(begin, begin + N * pairs, dtype=np.uint64))
    return numbers.view(np.uint32).reshape(N, 2 * pairs)[:, :size].reshape(shape)


def splitmix64(state, i):
    """Numbers ``i`` (uint64, from 0; overwritten) of the sequence that starts from ``state``: uint64 like ``i``."""
    z = i
    z *= np.uint64(STRIDE)
    z += np.uint64((state + STRIDE) % 2**64)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z
