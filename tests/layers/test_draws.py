"""Random numbers by their place: SplitMix64 as published, uniform bits, and others wherever a place differs."""

import itertools

import numpy as np
import pytest

from d2lmgpu.layers import Draws
from d2lmgpu.layers.elementwise import random_bits, splitmix64


@pytest.mark.parametrize(
    "seed, expected",
    [
        (1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]),
        (0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC, 0x1B39896A51A8749B]),
        (2**64 - 1, [0xE4D971771B652C20, 0xE99FF867DBF682C9]),
    ],
)
def test_published_answers(seed, expected):
    """Of splitmix64.c; those of seed 1234567 are on Rosetta Code, too."""
    assert splitmix64(seed, np.arange(len(expected), dtype=np.uint64)).tolist() == expected
    assert splitmix64(seed, np.uint64([len(expected) - 1])).tolist() == expected[-1:]  # without those before


@pytest.mark.parametrize("size", [(7,), (2, 3, 5), (1,), (4, 1, 2)])
def test_an_examples_bits_are_its_own_in_any_company(size):
    whole = random_bits(Draws(3, 1, 4), (13, *size))
    assert whole.shape == (13, *size) and whole.dtype == np.uint32
    for start, stop in [(0, 4), (4, 4), (4, 5), (5, 13)]:
        part = random_bits(Draws(3, 1, 4).after(start), (stop - start, *size))
        np.testing.assert_array_equal(part, whole[start:stop])


def test_other_places_other_bits():
    """Of 2,000 pairs of words from anywhere, half of the bits agree: within 6 standard deviations."""
    places = [Draws(*numbers) for numbers in itertools.product((0, 1, 2**64 - 1), (0, 1), (0, 1), (0,), (0, 1))]
    places += [Draws(0, 0, 0, 0, 7), Draws(0, 300, 0), Draws(0, 0, 300), Draws(0, 0, 0, 100)]
    words = [random_bits(place, (100, 20)).ravel() for place in places]
    for one, other in itertools.combinations(words, 2):
        assert abs(np.bitwise_count(one ^ other).mean() - 16) < 6 * (32 / 4 / one.size) ** 0.5
    one = words[0].reshape(100, 20)
    for other in (np.roll(one, 1, axis=0), np.roll(one, 1, axis=1)):  # neighbours, too
        assert abs(np.bitwise_count(one ^ other).mean() - 16) < 6 * (32 / 4 / one.size) ** 0.5
