"""Plans as data: what is proved of them, what their memory is, and that whatever is left out or done twice is found."""

import itertools
import re
from collections import Counter

import pytest
from conftest import long
from one_device import DEEP, PLAIN

from d2lmgpu.collectives import Transfer
from d2lmgpu.networks import Dense, Flatten, layer_rows, sequential
from d2lmgpu.networks.known import NETWORKS
from d2lmgpu.plans import PLANS, Compute, Part, PlanError, compose, cut, prove
from d2lmgpu.plans.plan import stage_of
from d2lmgpu.plans.proof.check import check_plan
from d2lmgpu.plans.proof.live_ranges import live_ranges
from d2lmgpu.plans.splits.pipelines import one_f_one_b_order
from d2lmgpu.plans.stages import SLACK, blocks

TINY = sequential((1, 1, 4), Flatten(), Dense(3), Dense(2))


def with_steps(plan, number, *steps):
    """The plan with these steps in the place of step ``number``, from 0."""
    return plan._replace(steps=[*plan.steps[:number], *steps, *plan.steps[number + 1 :]])


def with_part(plan, device, stage, **fields):
    """The plan with another part of a stage in a device's layout."""
    own = tuple(part._replace(**fields) if part.stage == stage else part for part in plan.layout[device])
    return plan._replace(layout=(*plan.layout[:device], own, *plan.layout[device + 1 :]))


def mutants(plan):
    """Every plan with one action removed or doubled: (how, the action, plan)."""
    for number, step in enumerate(plan.steps):
        for i, action in enumerate(step):
            yield "removed", action, with_steps(plan, number, [*step[:i], *step[i + 1 :]])
            if isinstance(action, Transfer):
                yield "doubled", action, with_steps(plan, number, [*step, action])
            yield "repeated", action, with_steps(plan, number, step, [action])


def _has_nothing(plan, compute):
    """Of channels: whether the device has no part of the stage, nor, if that is the loss, of the one before."""
    stages, parts = plan.stages, {part.stage: part.params for part in plan.layout[compute.device]}
    s = compute.stage - (compute.stage == len(stages) - 1)
    return stages[s].split is not None and parts[s][0] == parts[s][1]


def check_mutants(plan):
    """Whatever is removed is missed; whatever is done twice is wrong, or named as wasted. How many there are.

    What ZeRO-3 does not gather again stays, if nothing of it is.
    """
    counts = Counter()
    for how, action, mutant in mutants(plan):
        counts[how] += 1
        try:
            proof = prove(mutant)
        except PlanError as error:
            assert re.search(r"^(step \d+|at the end): .*device \d+", str(error)), error
        else:
            stays = how == "removed" and plan.name == "zero3" and isinstance(action, Transfer)
            stays = stays and action.value[0] == "params" and plan.k == 2
            idle = isinstance(action, Compute) and _has_nothing(plan, action)
            assert stays or idle or (how != "removed" and proof.wasted), f"accepted: {how} {action}"
    return counts


OTHER_SIZES = [(1, 1), (1, 2), (2, 1), (2, 3), (4, 1), (4, 2)]


@pytest.mark.parametrize(
    "k, micro_batches",
    [(2, 2), *long((3, 1)), *(pytest.param(*sizes, marks=pytest.mark.nightly) for sizes in OTHER_SIZES)],
)
@pytest.mark.parametrize("name", PLANS)
def test_what_is_removed_or_doubled_is_found(name, k, micro_batches):
    plan = PLANS[name](k, micro_batches, TINY if k <= 2 else PLAIN)
    counts = check_mutants(plan)
    assert counts["removed"] == counts["repeated"] == sum(map(len, plan.steps)) > counts["doubled"]


def test_contributions_without_number():
    """That double with every step: sums do not come round to where they were."""
    plan = PLANS["data"](2, 1, network=sequential((1, 1, 1), Flatten(), Dense(2)))
    both = [Transfer(0, 1, 0, 4, "add", ("grads", 0)), Transfer(1, 0, 0, 4, "add", ("grads", 0))]
    for steps in (2, 8, 9, 65):
        with pytest.raises(PlanError, match=rf"counted {2 ** (steps - 1)} times instead of 1. Step 4 adds what "):
            prove(plan._replace(steps=[*plan.steps[:2], *[both] * steps, plan.steps[-1]]))


def test_the_sketchs_numbers_of_held_caches():
    """gpipe, 1f1b and zero-bubble on 4 stages with 8 micro-batches hold 8, 4 and 4 caches at most."""
    for name, expected in ("gpipe", [8, 8, 8, 8]), ("1f1b", [4, 3, 2, 1]), ("zero-bubble", [4, 4, 4, 4]):
        plan = PLANS[name](4, 8)
        caches = [life for life in live_ranges(plan, check_plan(plan)) if life.value[0] == "cache"]
        held = [0, 0, 0, 0]
        for one in caches:
            beside = [other for other in caches if other.device == one.device and other.begin <= one.begin <= other.end]
            held[one.device] = max(held[one.device], len(beside))
        assert held == expected, name


def test_what_is_sent_stays_for_one_computation_more():
    """Two devices, a pipeline: y of micro-batch 0 is there until F of micro-batch 1 is done, not longer."""
    plan = PLANS["gpipe"](2, 3)
    lives = {life[:2]: life for life in live_ranges(plan, check_plan(plan))}
    assert plan.steps[1][0].value == ("y", 0, 0) and Compute("F", 0, 0, 1) in plan.steps[2]
    assert lives[0, ("y", 0, 0)][2:4] == (1, 3)
    assert lives[1, ("y", 0, 0)][2:4] == (2, 3) and lives[1, ("cache", 1, 0)].begin == 3


def test_micro_batches_of_different_sizes():
    """Memory is that of the largest on each device; bytes are those of all."""
    even, uneven = (prove(PLANS["data"](2, 2), batch_size) for batch_size in (12, (1, 5, 0, 6)))
    assert even == prove(PLANS["data"](2, 2), (3, 3, 3, 3))
    assert even.sent == uneven.sent
    largest = [prove(PLANS["data"](2, 2), n) for n in (20, 24)]
    activations = [proof.peak_of[0]["activations"] for proof in largest]
    assert [kinds["activations"] for kinds in uneven.peak_of] == activations
    for wrong, said in ((1, 2), "4"), ((1, 2, 3, -1), "batch_size is -1"), ((1, 2, 3, 0.5), "batch_size is 0.5"):
        with pytest.raises(ValueError, match=said):
            prove(PLANS["data"](2, 2), wrong)


def test_memory_by_hand():
    """Two dense layers on two devices, one micro-batch of 3 examples, in float64."""
    network = sequential((1, 1, 5), Flatten(), Dense(4), Dense(2))
    proof = prove(PLANS["layers"](2, 1, network=network), 3, "adam", "float64")
    first, second = 5 * 4 + 4, 4 * 2 + 2
    assert proof.between == [8 * 3 * first, 8 * 3 * second]
    assert proof.sent == [8 * 3 * 4, 8 * 3 * 4]
    params, grads, state, examples, activations, messages = proof.peak_of[1].values()
    assert (params, grads, state, examples) == (8 * second, 8 * second, 16 * second, 8 * 3)
    assert messages == 8 * 3 * 4  # y of stage 0
    assert activations == 8 * 3 * 4  # dy of stage 0; the second device goes forward and back in one, and has no cache


def test_devices_that_wait_for_each_other():
    order = one_f_one_b_order(2, 3)
    order[0].insert(0, order[0].pop(order[0].index(("B", 0, 1))))
    with pytest.raises(PlanError, match="^a deadlock: device 0, B .*, waits for device 1; device 1, F .* device 0$"):
        compose(order, 3)
    order = one_f_one_b_order(2, 2)
    order[0].remove(("F", 0, 1))
    with pytest.raises(
        PlanError, match="^device 1, F of stage 1, micro-batch 1: no device does stage 0 forward for this"
    ):
        compose(order, 2)


def test_a_student_writes_a_plan():
    """Two devices in turn: each has stages of both ends, as in a looped pipeline."""
    order = [
        [("F", 0, m) for m in range(2)] + [("F", 2, m) for m in range(2)]
        + [("B", 2, m) for m in range(2)] + [("B", 0, m) for m in range(2)],
        [("F", 1, m) for m in range(2)] + [("F", 3, m) for m in range(2)]
        + [("B", 3, m) for m in range(2)] + [("B", 1, m) for m in range(2)],
    ]  # fmt: skip
    plan = compose(order, 2)
    assert [[part.stage for part in parts] for parts in plan.layout] == [[0, 2], [1, 3]]
    assert prove(plan).sent[0] > 0
    with pytest.raises(PlanError, match="update of stage 0: .* the contribution of micro-batch 1 is missing"):
        prove(compose([order[0][:-1], order[1]], 2))


def test_stages_are_as_even_as_can_be():
    """Of all ways to cut the network none has less work in its largest stage."""
    work = [products for *_, products in layer_rows(DEEP)]
    for count in (2, 3, 4):
        found = max(sum(work[stage.first : stage.stop]) for stage in cut(DEEP, count))
        ways = itertools.combinations(blocks(DEEP)[1:], count - 1)
        largest = (max(sum(work[a:b]) for a, b in itertools.pairwise([0, *way, len(DEEP)])) for way in ways)
        assert found == min(largest)


def beginning(plan, *actions):
    """The plan with a first step of these."""
    return plan._replace(steps=[list(actions), *plan.steps])


GRADS, BOTH = ("grads", 0), [("F", 0, 0), ("B", 0, 0)]


def updated_between():
    """One device, one stage, which is updated between forward and backward of a micro-batch that counts already."""
    plan = compose([BOTH], 1)
    forward, backward, update = plan.steps
    return plan._replace(steps=[forward, backward, forward, update, backward])


def copied_to_one_with_state():
    """Device 1 gets the new parameters from device 0, but the layout gives it state."""
    plan = PLANS["data"](2, 1)
    copied = [Transfer(0, 1, 0, plan.stages[0].params, "copy", ("params", 0))]
    return plan._replace(steps=[*plan.steps[:-1], [Compute("update", 0, 0)], copied])


def updated_without_a_part():
    plan = PLANS["zero1"](5, 1, network=sequential((1, 1, 1), Flatten(), Dense(2)))
    return plan._replace(steps=[*plan.steps, [Compute("update", 4, 0)]])


WRONG = {
    "network is None": lambda plan: plan._replace(network=None),
    "do not make up": lambda plan: plan._replace(stages=plan.stages[:1]),
    "has other parameters": lambda plan: plan._replace(stages=(plan.stages[0]._replace(params=3), plan.stages[1])),
    "no Part": lambda plan: plan._replace(layout=([Part(2, (0, 1), (0, 1))], [])),
    "should be within 0": lambda plan: with_part(plan, 1, 1, params=(0, 10**9)),
    "lists a stage twice": lambda plan: plan._replace(layout=(plan.layout[0] * 2, plan.layout[1])),
    "element 0 of the parameters of stage 1 is held by no": lambda plan: plan._replace(layout=(plan.layout[0], ())),
    "at the end: device 1, elements 7 to .* not updated": lambda plan: with_part(plan, 1, 1, state=(0, 7)),
    "at the end: device 1 holds state of stage 0, and has not": lambda _: copied_to_one_with_state(),
    "device 1, elements 0 to 17 of .* not upd": lambda _: gradients_for_nothing(copied=False),
    "update .*: the layout gives this device nothing of this stage": lambda _: updated_without_a_part(),
    "step 5: device 0, B .*: params .* are updated already": lambda _: updated_between(),
    "B of .*: the gradients contain this micro-batch's contribution": lambda _: compose([[*BOTH, *BOTH]], 1),
    "step 2: device 1, F of .* 0: y of .* 0 is not there": lambda plan: with_steps(plan, 1),
    "step 1: device 1, B .* 0: cache .* is not there": lambda plan: beginning(plan, Compute("B", 1, 1, 0)),
    "steps: .* should be a list": lambda plan: plan._replace(steps=7),
    "choose from F, B": lambda plan: beginning(plan, Compute("G", 0, 0, 0)),
    "step 1: \\('F', 0, 0\\) should be a Transfer": lambda plan: beginning(plan, ("F", 0, 0)),
    "there are the devices 0 … 1": lambda plan: beginning(plan, Compute("F", 2, 0, 0)),
    "the micro-batches 0 … 1": lambda plan: beginning(plan, Compute("update", 0, 0, 1)),
    "but B and W add to": lambda plan: beginning(plan, Compute("B", 0, 0, 0, ("grads", 1, 0))),
    "computes two things at the same time": lambda plan: beginning(plan, *plan.steps[0], Compute("F", 0, 0, 1)),
    "there is no such value": lambda plan: beginning(plan, Transfer(0, 1, 0, 1, "copy", ("z", 0, 0))),
    "from a device to itself": lambda plan: beginning(plan, Transfer(0, 0, 0, 1, "add", GRADS)),
    "not within the elements 0 … 20": lambda plan: beginning(plan, Transfer(0, 1, 0, 21, "copy", ("y", 0, 0))),
    "with whole numbers": lambda plan: beginning(plan, Transfer(0, 1, 0, 1.0, "add", GRADS)),
    "whole numbers, at most": lambda plan: beginning(plan, Transfer(0, 1, 0, 2**65, "add", GRADS)),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_wrong_with_a_plan_is_said(said):
    with pytest.raises(ValueError, match=said):
        prove(WRONG[said](PLANS["gpipe"](2, 2)))


@pytest.mark.parametrize("network", [*NETWORKS.values(), DEEP], ids=[*NETWORKS, "eight layers"])
def test_zeros_stages_are_few_and_need_as_little_memory_as_one_for_each_layer(network):
    layers = [stage_of(network, *each).params for each in itertools.pairwise([*blocks(network), len(network)])]
    most = (1 + SLACK) * max(layers)
    for name in ("zero2", "zero3"):
        plan = PLANS[name](3, 1, network=network)
        params = [stage.params for stage in plan.stages]
        assert sum(params) == sum(layers) and max(params) <= most
        assert all(one + next_one > most for one, next_one in itertools.pairwise(params)), "two could be one"
        gradients = max(held["gradients"] for held in prove(plan, 9).peak_of)
        assert gradients <= 4 * (sum(layers) / 3 + len(params) + most)  # parts are even up to an element for each stage


SMALL = sequential((1, 1, 2), Flatten(), Dense(3), Dense(2))


def gathered_at_the_end():
    plan = PLANS["zero3"](2, 1, network=SMALL)
    return plan._replace(steps=[*plan.steps, plan.steps[0]])


def gradients_for_nothing(copied=True):
    """Device 1 computes them, too, and gets the new parameters from device 0, or keeps old ones."""
    plan = compose([BOTH], 1, SMALL)
    n, (forward, backward, update) = plan.stages[0].params, plan.steps
    both = [[*step, step[0]._replace(device=1)] for step in (forward, backward)]
    copy = [[Transfer(0, 1, 0, n, "copy", ("params", 0))]] * copied
    return plan._replace(steps=[*both, update, *copy], layout=(*plan.layout, (Part(0, (0, n), (0, 0)),)))


@pytest.mark.parametrize(
    "make, said",
    [
        (
            lambda: compose([[*BOTH, ("F", 0, 0)]], 1, SMALL),
            "step 5: cache of stage 0, micro-batch 0, of device 0: no",
        ),
        (gathered_at_the_end, "step 15: params of stage 0 of device 0: nobody uses it"),
        (gradients_for_nothing, "step 2: grads of stage 0 of device 1: nobody uses it"),
    ],
)
def test_what_is_wasted_is_named(make, said):
    assert any(line.startswith(said) for line in prove(make()).wasted)
