"""Proofs of schedules: right ones pass for every k up to 64, wrong ones are told what is wrong and where."""

import pytest
from at_random import nightly
from schedules import SUMMING

from d2lmgpu.collectives import (
    ALGORITHMS,
    ScheduleError,
    Transfer,
    all_gather,
    hierarchical,
    in_parallel,
    place,
    prove,
    recursive_doubling,
    reduce_scatter,
    ring,
)


@pytest.mark.parametrize("k", [*range(1, 9), 33, *nightly(*range(9, 33), *range(34, 65))])
def test_every_algorithm_is_proved_up_to_64_devices(k):
    for algorithm in SUMMING:
        for n in (2 * k + 1, k - 1, 12 * k) if k <= 17 else (2 * k + 1,):
            proof = prove(ALGORITHMS[algorithm](k, n), k, n)
            assert len(proof.sent) == k and (k == 1 or max(proof.sent) > 0 or n == 0)


@pytest.mark.parametrize("k", [2, 8, 64])
def test_steps_and_bytes_as_the_docstrings_say(k):
    n, lg = 6 * k, k.bit_length() - 1
    proofs = {name: prove(ALGORITHMS[name](k, n), k, n) for name in SUMMING if name != "hierarchical"}
    assert {name: proof.steps for name, proof in proofs.items()} == {
        "naive": 2 * (k - 1),
        "sharded": 2 * (k - 1),
        "tree": 2 * lg,
        "recursive_doubling": lg,
        "halving_doubling": 2 * lg,
        "ring": 2 * (k - 1),
        "bidirectional_ring": 2 * (k - 1),
    }
    for name in ("sharded", "halving_doubling", "ring", "bidirectional_ring"):
        assert proofs[name].ratio == 1 and set(proofs[name].sent) == {2 * (k - 1) * n // k}
    assert proofs["naive"].sent == [(k - 1) * n] + [n] * (k - 1) and proofs["naive"].ratio == k / 2
    assert proofs["tree"].sent[0] == lg * n and set(proofs["recursive_doubling"].sent) == {lg * n}


def test_hierarchical_with_any_groups():
    for groups in [[0, 1, 2, 3, 4]], [[0], [1], [2], [3], [4]], [[3, 0], [1, 4, 2]], [[4, 2, 1, 0], [3]]:
        prove(hierarchical(5, 23, groups), 5, 23)


def reduce_only(k, n):
    """The learner's ``data[i] = data[0].to(...)``: rebinding the list writes nothing to the other devices."""
    return [[Transfer(i, 0, 0, n, "add")] for i in range(1, k)]


def reduce_of_too_few(k, n):
    """``range(1, k - 1)``: the last device is left out."""
    return reduce_only(k, n)[:-1]


def broadcast_with_add(k, n):
    """``data[i] += data[0]`` on the way back."""
    return reduce_only(k, n) + [[Transfer(0, i, 0, n, "add")] for i in range(1, k)]


def copied_after_that(k, n):
    """And device 0 copies what is wrong."""
    return broadcast_with_add(k, n) + [[Transfer(1, 0, 0, n, "copy")]]


def right_for_two_only(k, n):
    """Neighbours exchange what they have, once."""
    return [[Transfer(i, i ^ 1, 0, n, "add") for i in range(k)]]


def reduce_with_copy(k, n):
    """The first half copies where it should add."""
    return [[t._replace(op="copy") for t in step] for step in reduce_scatter(k, n)] + all_gather(k, n)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (reduce_only, "device 1, elements 0 to 10: .* devices 0, 2 and 3 are missing. No step sends"),
        (reduce_of_too_few, "device 0, .* device 3 is missing. No step brings it; .* device 2 in step 2"),
        (broadcast_with_add, "device 1, .*: the share of device 1 is counted 2 times .* Step 4 adds what"),
        (
            copied_after_that,
            "device 0, .*: the share of device 1 is counted 2 times .* It came so from device 1 in step 7",
        ),
        (right_for_two_only, "device 0, .* 2 and 3 are missing. No step brings .* device 1 in step 1"),
        (reduce_with_copy, "missing. Step 3 replaces it by a copy from device 3 .* should it add?"),
    ],
)
def test_mistakes_are_named(wrong, message):
    """The device, the elements, the shares, and the guilty step."""
    with pytest.raises(ScheduleError, match=message):
        prove(wrong(4, 10), 4, 10)


def test_schedules_can_be_placed_and_merged():
    """Two rings on other devices and elements, at the same time, make neither an allreduce of the whole."""
    left, right = place(ring(2, 3), [0, 2]), place(ring(3, 4), [4, 3, 1], start=3)
    both = in_parallel(left, right)
    assert len(both) == 4 and [len(step) for step in both] == [5, 5, 3, 3]
    assert both[0][0] == Transfer(0, 2, 2, 3, "add") and {t.source for t in both[2]} == {1, 3, 4}
    with pytest.raises(ScheduleError):
        prove(both, 5, 7)
    prove(in_parallel(place(recursive_doubling(2, 5), [0, 1]), place(ring(2, 5), [0, 1], start=5)), 2, 10)
