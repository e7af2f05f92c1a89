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
    assert prove(all_gather(k, n), k, n, "all_gather").ratio is None


def test_hierarchical_with_any_groups():
    for groups in [[0, 1, 2, 3, 4]], [[0], [1], [2], [3], [4]], [[3, 0], [1, 4, 2]], [[4, 2, 1, 0], [3]]:
        prove(hierarchical(5, 23, groups), 5, 23)


@pytest.mark.parametrize("groups", [[[0, 1], [1, 2]], [[0, 1]], [[0, 1, 2], []], [[0, 1, 2, 3]]])
def test_groups_that_are_none(groups):
    with pytest.raises(ValueError, match="once"):
        hierarchical(3, 10, groups)


def reduce_only(k, n):
    """The learner's ``data[i] = data[0].to(...)``: rebinding the list writes nothing to the other devices."""
    return [[Transfer(i, 0, 0, n, "add")] for i in range(1, k)]


def reduce_of_too_few(k, n):
    """``range(1, k - 1)``: the last device is left out."""
    return reduce_only(k, n)[:-1]


def broadcast_with_add(k, n):
    """``data[i] += data[0]`` on the way back."""
    return reduce_only(k, n) + [[Transfer(0, i, 0, n, "add")] for i in range(1, k)]


def right_for_two_only(k, n):
    """Neighbours exchange what they have, once."""
    return [[Transfer(i, i ^ 1, 0, n, "add") for i in range(k)]]


def unchunked_ring(k, n):
    """Everybody passes on the whole running sum, k - 1 times."""
    return [[Transfer(i, (i + 1) % k, 0, n, "add") for i in range(k)]] * (k - 1)


def with_op(schedule, op):
    return [[t._replace(op=op) for t in step] for step in schedule]


def reduce_with_copy(k, n):
    """The first half copies where it should add."""
    return with_op(reduce_scatter(k, n), "copy") + all_gather(k, n)


def ring_that_stops_early(k, n):
    """``range(k - 2)`` instead of ``range(k - 1)`` in the second half."""
    return ring(k, n)[:-1]


def chunks_that_miss_the_rest(k, n):
    """n // k elements for every chunk: the last n mod k belong to none."""
    return ring(k, n // k * k)


def gather_with_add(k, n):
    return with_op(all_gather(k, n), "add")


def gather_after_a_stray_message(k, n):
    return [[Transfer(0, 3, 8, 10, "add")], *all_gather(k, n)]


def scatter_that_stops_early(k, n):
    return reduce_scatter(k, n)[:-1]


@pytest.mark.parametrize(
    "goal, wrong, message",
    [
        ("allreduce", reduce_only, "device 1, elements 0 to 10: .* devices 0, 2 and 3 are missing. No step sends"),
        ("allreduce", reduce_of_too_few, "device 0, .* device 3 is missing. No step brings it; .* device 2 in step 2"),
        ("allreduce", broadcast_with_add, "device 1, .*: the share of device 1 is counted 2 times .* Step 4 adds what"),
        ("allreduce", right_for_two_only, "device 0, .* 2 and 3 are missing. No step brings .* device 1 in step 1"),
        ("allreduce", unchunked_ring, "counted 3 times instead of 1. Step 2 adds what device 3 sends"),
        ("allreduce", reduce_with_copy, "missing. Step 3 replaces it by a copy from device 3 .* should it add?"),
        ("allreduce", ring_that_stops_early, "device 3, elements 0 to 3: .* device 0 is missing. .* last .* in step 2"),
        ("allreduce", chunks_that_miss_the_rest, "device 0, elements 8 to 10: .* 1, 2 and 3 are missing. No step send"),
        ("all_gather", gather_with_add, "device 1, elements 0 to 3: the share of device 1 is in it, too. .* 1 copy?"),
        (
            "all_gather",
            gather_after_a_stray_message,
            "device 0, elements 8 to 10: .* in it, too. .* 3 in step 2",
        ),
        ("reduce_scatter", scatter_that_stops_early, "device 0, elements 0 to 3: .* 1, 2 and 3 are missing. No step"),
    ],
)
def test_mistakes_are_named(goal, wrong, message):
    """The device, the elements, the shares, and the guilty step."""
    with pytest.raises(ScheduleError, match=message):
        prove(wrong(4, 10), 4, 10, goal)


def test_a_mistake_that_two_devices_do_not_reveal():
    prove(right_for_two_only(2, 10), 2, 10)
    prove(unchunked_ring(2, 10), 2, 10)


def test_schedules_can_be_placed_and_merged():
    """Two rings on other devices and elements, at the same time, make neither an allreduce of the whole."""
    left, right = place(ring(2, 3), [0, 2]), place(ring(3, 4), [4, 3, 1], start=3)
    both = in_parallel(left, right)
    assert len(both) == 4 and [len(step) for step in both] == [5, 5, 3, 3]
    assert both[0][0] == Transfer(0, 2, 2, 3, "add") and {t.source for t in both[2]} == {1, 3, 4}
    with pytest.raises(ScheduleError):
        prove(both, 5, 7)
    prove(in_parallel(place(recursive_doubling(2, 5), [0, 1]), place(ring(2, 5), [0, 1], start=5)), 2, 10)


def test_other_goals_are_proved():
    for k in (1, 2, 3, 5, 8):
        for n in (0, 1, k - 1, 3 * k + 1, k * k + 2):
            prove(all_gather(k, n), k, n, goal="all_gather")
            prove(reduce_scatter(k, n), k, n, goal="reduce_scatter")
            prove(ring(k, n), k, n, "reduce_scatter")
    with pytest.raises(ValueError, match="goal 'gather' is unknown; choose from allreduce, reduce_scatter, all_gather"):
        prove([], 4, 10, goal="gather")
