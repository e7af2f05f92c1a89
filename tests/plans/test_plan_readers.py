"""Plans in time, and as pictures."""

import itertools

import pytest
from conftest import few
from one_device import DEEP

from d2lmgpu import collectives
from d2lmgpu.collectives import Transfer
from d2lmgpu.collectives.columns import columns_of
from d2lmgpu.collectives.network import full_switch
from d2lmgpu.collectives.simulate import Clock
from d2lmgpu.networks import Dense, Flatten, sequential
from d2lmgpu.pictures.plans import bars_of, handed_on
from d2lmgpu.plans import PLANS, Compute, draw, prove, simulate

PIPELINES = ("layers", "gpipe", "1f1b", "zero-bubble")
DENSE = sequential((1, 1, 5), Flatten(), *(Dense(5) for _ in range(64)))
"""Stages that are all alike: y has 5 elements for an example."""


@pytest.mark.parametrize("k, micro_batches", itertools.product([1, 2, 5, 8], [1, 3, 8]))
def test_the_bubble_of_equal_stages(k, micro_batches):
    """Of GPipe and 1F1B (k-1)/(m+k-1), exactly, whatever forward and backward cost."""
    bubble = (k - 1) / (micro_batches + k - 1)
    for name in ("gpipe", "1f1b"):
        plan = PLANS[name](k, micro_batches, network=DEEP)
        assert simulate(plan).bubble == bubble
        assert simulate(plan, costs={"F": 3, "B": 3}).seconds == 6 * (micro_batches + k - 1)
    assert simulate(PLANS["layers"](k, micro_batches, network=DEEP)).bubble == (k - 1) / k
    assert simulate(PLANS["data"](k, micro_batches)).bubble == 0


def test_the_bubble_of_zero_bubble():
    """Four stages, eight micro-batches: 11%, as ZB-H1 has it."""
    assert simulate(PLANS["zero-bubble"](4, 8)).bubble == 1 / 9


def test_a_slow_stage_by_hand():
    """Two stages that cost 1 and 3 for F, 2 and 6 for B, two micro-batches: the slow one is never idle in between."""
    costs = [{"F": 1, "B": 2}, {"F": 3, "B": 6, "update": 5}]
    result = simulate(PLANS["1f1b"](2, 2), costs=costs)
    assert result.seconds == max(1 + 2 * 9 + 5, 1 + 2 * 9 + 2)
    assert result.utilisation == [6 / 24, 23 / 24]


def test_messages_take_time():
    """A y of 4·5·3 bytes: 10 seconds on the wire and 2 of latency, twice there and once back, of which none overlap."""
    plan = PLANS["layers"](2, 1, network=DENSE)
    result = simulate(plan, full_switch(2, 6, latency=2), {"F": 1, "B": 1}, batch_size=3)
    assert result.seconds == 1 + 12 + 2 + 12 + 1
    assert result.link_bytes.tolist() == [60, 60, 60, 60]


@pytest.mark.parametrize("name, early", [("data", 0), ("zero1", 0), ("zero2", 2), ("zero3", 1)])
def test_collectives_take_what_their_schedule_does(name, early):
    """Of two stages one collective is on the wire while the last message of that before arrives, a latency ``early``.

    So do zero2's in backward and after updates, and zero3's in backward.
    """
    network = full_switch(3, 1e6, latency=1e-3)
    plan = PLANS[name](3, 1)
    result = simulate(plan, network, costs={"F": 0, "B": 0})
    moved = [[t for t in step if isinstance(t, Transfer) and t.source != t.destination] for step in plan.steps]
    expected = sum(collectives.simulate([step], network).seconds for step in moved if step)
    assert result.seconds == pytest.approx(expected - early * 1e-3)
    assert result.link_bytes[:3].tolist() == prove(plan).sent
    assert result.bubble == 1


def test_memory_over_time():
    """What is held at the end is what is held between steps, with the examples; the most is what is proved."""
    for name in PLANS:
        plan = PLANS[name](3, 2)
        result, proof = simulate(plan, batch_size=30), prove(plan, 30)
        assert result.peak == proof.peak
        for points, peak, between in zip(result.memory, proof.peak, proof.between, strict=True):
            assert between <= points[-1][1] and max(nbytes for _, nbytes in points) <= peak
            assert [time for time, _ in points] == sorted(time for time, _ in points)


@pytest.mark.parametrize("name", few(PLANS, "1f1b"))
def test_pictures(name, tmp_path):
    plan = PLANS[name](3, 2)
    figure = draw(plan)
    figure.savefig(tmp_path / "plan.png")
    top, below = figure.axes
    texts = [text.get_text().split("\n")[0] for text in top.texts]
    result = simulate(plan)
    computed = [f"{e.action.what}{e.action.micro_batch}" for e in result.events if e.action.what in "FBIW"]
    assert sorted(text for text in texts if text) == sorted(computed)
    assert len(below.lines) == len({tuple(line) for line in result.memory})
    assert texts.count("") == len(handed_on(result)) == (8 if name in PIPELINES else 0)
    bars = [patch for patch in top.patches if patch.get_height() < 0.2]
    assert len(bars) == sum(end > start for *_, start, end in bars_of(result))


def test_nothing_begins_before_what_it_waits_for(rng):
    """Random costs: neither before its device is free, nor before what it reads is there."""
    plan = PLANS["1f1b"](3, 4)
    costs = [{what: float(rng.random()) for what in "FB"} for _ in range(3)]
    result = simulate(plan, full_switch(3, 1e9), costs)
    arrived = {(m.action.value, m.action.destination): m.end for m in result.messages}
    for device in range(3):
        own = [event for event in result.events if event.action.device == device]
        assert [event.action for event in own] == [a for a in plan.actions[device] if isinstance(a, Compute)]
        assert all(a.end <= b.start for a, b in zip(own, own[1:], strict=False))
        for _, (what, _, s, m, _), start, _, _ in own:
            needed = {"F": ("y", s - 1, m), "B": ("dy", s, m)}.get(what)
            assert start >= arrived.get((needed, device), 0)


def test_what_is_read_may_be_sent_but_not_overwritten():
    """A device computes with y for five seconds."""
    for source, begin in ((0, 0), (1, 5)):
        clock = Clock(2, full_switch(2, 1e9), lambda value: 4)
        clock.step([], [Compute("F", 0, 1, 0)], [5])
        (((found,), _),), _ = clock.step(columns_of([Transfer(source, 1 - source, 0, 4, "copy", ("y", 0, 0))]))
        assert found == begin


def test_parameters_are_not_brought_before_there_is_need():
    """ZeRO-3's second stage is gathered when the first is computed, though the wire is free before."""
    plan = PLANS["zero3"](2, 1)
    result = simulate(plan, full_switch(2, 1e6), {"F": 10, "B": 10})
    forward = {e.action.stage: e for e in result.events if e.action[:2] == ("F", 0)}
    second = [m for m in result.messages if m.action.value == ("params", 1)]
    assert min(m.start for m in second) == forward[0].end and forward[1].start >= max(m.end for m in second[:2])


def test_an_update_of_a_part_takes_that_part_of_the_time():
    """10 elements on 4 devices: 3, 3, 2 and 2 of them."""
    network = sequential((1, 1, 1), Flatten(), Dense(5))
    events = simulate(PLANS["zero1"](4, 1, network=network), costs={"update": 10}).events
    assert [e.end - e.start for e in events if e.action.what == "update"] == [3, 3, 2, 2]
