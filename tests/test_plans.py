"""Plans as data: what is proved of them, what their memory is, and that whatever is left out or done twice is found."""

import itertools
from collections import Counter

import numpy as np
import pytest
from conftest import few, long, traced_memory

from d2lmgpu.collectives import Transfer
from d2lmgpu.networks import AvgPool2d, Conv2d, Dense, Flatten, ReLU, sequential
from d2lmgpu.plans import PLANS, Action, Part, Plan, PlanError, Stage, compose, copies_of, cut, prove
from d2lmgpu.plans.abstract_values import Counts

DEEP = sequential(
    (1, 13, 11),
    *itertools.chain(*((Conv2d(3 + i, 3, padding=1), ReLU()) for i in range(4))),
    *(AvgPool2d(), Conv2d(4, 3), ReLU(), Flatten(), Dense(9), ReLU(), Dense(7), ReLU(), Dense(5)),
)
"""Eight layers with parameters, as many stages at most; sizes that no number of devices divides."""


def changed(plan, device, todo):
    """The plan with another list of actions for a device."""
    return plan._replace(actions=(*plan.actions[:device], tuple(todo), *plan.actions[device + 1 :]))


def mutants(plan):
    """Every plan with one action or transfer removed or doubled, or two neighbours swapped: (how, the action, plan)."""
    for device, todo in enumerate(plan.actions):
        for i, action in enumerate(todo):
            yield "removed", action, changed(plan, device, todo[:i] + todo[i + 1 :])
            yield "doubled", action, changed(plan, device, todo[: i + 1] + todo[i:])
            if i + 1 < len(todo):
                yield "swapped", action, changed(plan, device, (*todo[:i], todo[i + 1], action, *todo[i + 2 :]))
            if action.what == "collective" and device == action.group[0]:
                for how, schedule in other_schedules(action.schedule):
                    lists = [
                        [other._replace(schedule=schedule) if other == action else other for other in others]
                        for others in plan.actions
                    ]
                    yield how, action, plan._replace(actions=tuple(map(tuple, lists)))


def other_schedules(schedule):
    """Every schedule with one transfer removed or doubled."""
    for number, step in enumerate(schedule):
        for i in range(len(step)):
            for how, other in ("removed", step[:i] + step[i + 1 :]), ("doubled", step[: i + 1] + step[i:]):
                yield how, (*schedule[:number], other, *schedule[number + 1 :])


SIZES = [*itertools.product([1, 2, 3, 4], [1, 2]), (2, 3)]


@pytest.mark.parametrize("k, micro_batches", few(SIZES, (2, 2)))
@pytest.mark.parametrize("name", PLANS)
def test_what_is_removed_or_doubled_is_found(name, k, micro_batches):
    counts = Counter()
    plan = PLANS[name](k, micro_batches)
    for how, action, mutant in mutants(plan):
        if how == "swapped":
            continue
        counts[how] += 1
        with pytest.raises(PlanError, match=r"device \d+"):
            prove(mutant)
            pytest.fail(f"accepted: {how} {action}")
    assert counts["removed"] == counts["doubled"] >= sum(map(len, plan.actions))


@pytest.mark.parametrize("name", few(["layers", "gpipe", "1f1b", "zero-bubble"], "1f1b"))
def test_what_is_removed_or_doubled_in_a_product_is_found(name):
    for how, action, mutant in mutants(copies_of(name, 2, 2, 2)):
        if how != "swapped":
            with pytest.raises(PlanError, match=r"device \d+"):
                prove(mutant)
                pytest.fail(f"accepted: {how} {action}")


@pytest.mark.parametrize("k, micro_batches", [(1, 1), (2, 3), (4, 4), (4, 1), (3, 8)])
@pytest.mark.parametrize("name", PLANS)
def test_plans_are_right(name, k, micro_batches):
    plan = PLANS[name](k, micro_batches)
    assert isinstance(plan, Plan) and len(plan.actions) == plan.k == k
    proof = prove(plan)
    assert all(0 < between < peak for between, peak in zip(proof.between, proof.peak, strict=True))
    assert [sum(kinds.values()) for kinds in proof.peak_of] == proof.peak


@pytest.mark.parametrize("name", ["layers", "gpipe", "1f1b", "zero-bubble"])
@pytest.mark.parametrize("k", [5, 8])
def test_as_many_stages_as_layers_with_parameters(name, k):
    prove(PLANS[name](k, 3, network=DEEP))
    with pytest.raises(ValueError, match=f"{k} stages of a network with 4 layers that have parameters"):
        PLANS[name](k, 3)


@pytest.mark.parametrize("name", few(PLANS))
def test_many_devices_and_micro_batches(name):
    network = sequential((1, 4, 4), Flatten(), *(Dense(5) for _ in range(64)))
    micro_batches = 64 if name in ("data", "layers", "gpipe", "1f1b", "zero-bubble") else 2  # others have all stages
    assert len(prove(PLANS[name](64, micro_batches, network=network), 4096).peak) == 64


@pytest.mark.parametrize("name", long("zero2", "zero3", "channels", "channel-pairs"))
def test_many_micro_batches_of_all_stages(name):
    proof = prove(PLANS[name](64, 64), 4096)
    assert len(proof.peak) == 64 and sum(proof.between) >= 4 * 129_068


class _Schedule(tuple):
    """Counts how often it is read."""

    reads = 0

    def __iter__(self):
        self.reads += 1
        return super().__iter__()


@pytest.mark.parametrize("name", ["data", "channels", "channel-pairs", "zero3"])
def test_a_schedule_is_read_once_however_many_devices_have_it(name):
    """Of k devices it has some k² transfers."""
    reads = []
    for k in (3, 6):
        plan, schedules = PLANS[name](k, 1, network=sequential((1, 4, 4), Flatten(), Dense(12), Dense(12))), {}
        lists = [
            [a._replace(schedule=schedules.setdefault(id(a.schedule), _Schedule(a.schedule))) for a in todo]
            for todo in plan.actions
        ]
        prove(plan._replace(actions=tuple(map(tuple, lists))))
        reads.append([schedule.reads for schedule in schedules.values()])
    assert reads[0] == reads[1]


@pytest.mark.long
def test_memory_that_a_proof_takes():
    """A byte for each device, piece and micro-batch, twice, and then some."""
    plan = PLANS["data"](48, 1, network=sequential((1, 4, 4), Flatten(), Dense(12)))
    held, _ = traced_memory(lambda: prove(plan), 1)
    assert held < 8 * 48**3


def test_contributions_without_number():
    """That double with every step: counts do not come round to where they were."""
    plan = PLANS["data"](2, 1, network=sequential((1, 1, 1), Flatten(), Dense(2)))
    both = Transfer(0, 1, 0, 4, "add"), Transfer(1, 0, 0, 4, "add")
    for steps in (2, 8, 9, 65):
        lists = [
            [a._replace(schedule=(both,) * steps) if a.what == "collective" else a for a in todo]
            for todo in plan.actions
        ]
        with pytest.raises(PlanError, match=r"micro-batch 0 is counted \d+ times|step 9 sends device 1 what it has"):
            prove(plan._replace(actions=tuple(map(tuple, lists))))


def test_counts_of_contributions():
    both = Counts.of_one(4, 3).plus(Counts.of_one(1, 3))
    assert both.columns == [1, 4] and both.over([0, 1, 4]).tolist() == [[0, 1, 1]] * 3
    assert both.fault(5) == (0, 0)
    rest = Counts([0, 2, 3], np.array([[1, 1, 1], [1, 2, 1], [1, 1, 1]]))
    assert both.plus(rest).fault(5) == (2, 2)
    assert both.plus(rest).rows(slice(2, 3)).fault(5) is None
    assert both.plus(Counts.of_one(1, 3)).plus(rest).fault(5) == (1, 2)


def test_a_part_of_the_gradients_that_is_not_freed():
    """It changes no result, only the memory that zero2 is there to save."""
    plan = PLANS["zero2"](2, 1)
    todo = [a for a in plan.actions[1] if not (a.what == "free" and a.part and a.stage == 2)]
    assert len(todo) == len(plan.actions[1]) - 1
    with pytest.raises(PlanError, match="update of stage 2.*: gradients that are not its own, by the layout, are not"):
        prove(changed(plan, 1, todo))


def test_the_sketchs_numbers_of_held_caches():
    """gpipe, 1f1b and zero-bubble on 4 stages with 8 micro-batches hold 8, 4 and 4 caches at most."""
    for name, most in ("gpipe", 8), ("1f1b", 4), ("zero-bubble", 4):
        for device, todo in enumerate(PLANS[name](4, 8).actions):
            held, peak = 0, 0
            for action in todo:
                held += (action.what == "F") - (action.what == "free" and action.value == "cache")
                peak = max(peak, held)
            expected = {"gpipe": most, "1f1b": most - device, "zero-bubble": most}[name]
            assert peak == expected, (name, device)


def test_memory_by_hand():
    """Two dense layers on two devices, one micro-batch of 3 examples, in float64."""
    network = sequential((1, 1, 5), Flatten(), Dense(4), Dense(2))
    proof = prove(PLANS["layers"](2, 1, network=network), 3, "adam", "float64")
    first, second = 5 * 4 + 4, 4 * 2 + 2
    assert proof.between == [8 * 3 * first, 8 * 3 * second]
    assert proof.sent == [8 * 3 * 4, 8 * 3 * 4]
    params, grads, state, examples, activations, messages = proof.peak_of[1].values()
    assert (params, grads, state, examples) == (8 * second, 8 * second, 16 * second, 8 * 3)
    assert messages == 8 * 3 * 4  # y of stage 0, which the cache holds, too
    assert activations == 8 * 3 * (2 + 4) + 8  # probabilities, dy of stage 0; the cache's stand-in for the weight


def changed_text(name, k, m, device, change):
    plan = PLANS[name](k, m)
    todo = list(plan.actions[device])
    change(todo)
    with pytest.raises(PlanError) as error:
        prove(changed(plan, device, todo))
    return str(error.value)


def test_a_wrong_plan_is_told_in_a_sentence():
    text = changed_text("1f1b", 2, 2, 0, lambda todo: todo.pop(1))
    assert text == (
        "device 1, action 0 (receive of y of stage 0, micro-batch 0, from device 0) waits for ever: "
        "device 0 never does its part"
    )
    text = changed_text("gpipe", 3, 2, 1, lambda todo: todo.insert(0, Action("B", 1, 1)))
    assert text == "device 1, action 0 (B of stage 1, micro-batch 1): cache of stage 1, micro-batch 1, is not there"
    text = changed_text("data", 3, 1, 2, lambda todo: todo.pop(3))
    assert "the contribution of micro-batch 0 is lacking" in text or "device 2 never does its part" in text
    text = changed_text("1f1b", 2, 2, 1, lambda todo: todo.append(Action("send", 0, 1, "dy", 0)))
    assert text.startswith("device 1, action") and "dy of stage 0, micro-batch 1, is not there" in text


def test_devices_that_wait_for_each_other():
    """Free just after the send waits for the receiver: with it 1F1B deadlocks."""
    plan = PLANS["1f1b"](2, 3)
    lists = []
    for todo in plan.actions:
        frees = {a.key: a for a in todo if a.what == "free" and any(b.what == "send" and b.key == a.key for b in todo)}
        rest = [a for a in todo if a not in frees.values()]
        lists.append(
            tuple(itertools.chain(*([a, frees[a.key]] if a.what == "send" and a.key in frees else [a] for a in rest)))
        )
    with pytest.raises(
        PlanError, match="^a deadlock: device 0, action .* waits for device 1; device 1, action .* waits"
    ):
        prove(plan._replace(actions=tuple(lists)))


def test_an_update_before_the_last_backward():
    order = [[("F", 0, 0), ("B", 0, 0)], [("F", 0, 1), ("B", 0, 1)]]
    plan = compose(order, 2)
    todo = list(plan.actions[1])
    todo.insert(0, Action("update", 0))
    with pytest.raises(PlanError, match="device 1, action 0 .*gradients that it needs are not there"):
        prove(changed(plan, 1, todo))


def test_forward_and_backward_see_the_same_parameters():
    """One device, two stages; stage 1 is updated between forward and backward of a micro-batch that does not count."""
    plan = compose([[("F", 0, 0), ("B", 0, 0)]], 1)
    forward, backward, free_cache, update, free_grads = plan.actions[0]
    todo = [forward, backward, update, backward, free_cache, free_grads]
    with pytest.raises(PlanError, match="action 3 .*its parameters have changed since the forward of this micro-batch"):
        prove(changed(plan, 0, todo))


def test_an_allreduce_that_is_none():
    plan = PLANS["data"](2, 1)
    assert [action.what for action in plan.actions[1]] == ["F", "B", "free", "collective", "update", "free"]
    lists = [
        [a._replace(schedule=((Transfer(0, 1, 0, 129_068, "add"),),)) if a.what == "collective" else a for a in todo]
        for todo in plan.actions
    ]
    with pytest.raises(PlanError, match="device 0, action 4 .*update.*the contribution of micro-batch 1 is lacking"):
        prove(plan._replace(actions=tuple(map(tuple, lists))))


def test_parts_that_do_not_make_up_the_whole():
    plan = PLANS["layers"](2, 1)
    layout = (plan.layout[0], (plan.layout[1][0]._replace(state=(0, 7)),))
    with pytest.raises(PlanError, match="element 7 of the parameters of stage 1 is updated by no device"):
        prove(plan._replace(layout=layout))
    with pytest.raises(PlanError, match="element 0 of the parameters of stage 1 is held by no device"):
        prove(plan._replace(layout=(plan.layout[0], ())))
    with pytest.raises(PlanError, match="lists a stage twice"):
        prove(plan._replace(layout=(plan.layout[0] * 2, plan.layout[1])))


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
    with pytest.raises(PlanError, match="device 1, B of stage 1, micro-batch 1: no device does stage 0 backward"):
        compose([order[0][:-1], order[1]], 2)


def test_stages_are_as_even_as_can_be():
    costs = [0] * len(DEEP)
    for i, layer in enumerate(DEEP):
        if layer.shapes:
            costs[i] = 1
    stages = cut(DEEP, 4, costs)
    assert [sum(costs[stage.first : stage.stop]) for stage in stages] == [2, 2, 2, 2]
    costs[0] = 4
    assert [sum(costs[stage.first : stage.stop]) for stage in cut(DEEP, 3, costs)] == [4, 3, 4]
    assert sum(stage.params for stage in stages) == sum(np.prod(shape) for layer in DEEP for shape in layer.shapes)


WRONG = {
    "plan is": lambda plan: None,
    "do not make up": lambda plan: plan._replace(stages=plan.stages[:1]),
    "has other parameters": lambda plan: plan._replace(stages=(plan.stages[0]._replace(params=3), plan.stages[1])),
    "at least one Stage": lambda plan: plan._replace(stages=()),
    "micro_batches is 0": lambda plan: plan._replace(micro_batches=0),
    "no Part": lambda plan: plan._replace(layout=([Part(2, (0, 1), (0, 1), (0, 1))], [])),
    "not within": lambda plan: plan._replace(layout=([Part(1, (0, 10**9), (0, 1), (0, 1))], [])),
    "choose from F, B": lambda plan: changed(plan, 0, [Action("G", 0, 0)]),
    "action 0: \\('F', 0, 0\\) is none": lambda plan: changed(plan, 0, [("F", 0, 0)]),
    "the stages 0 … 1": lambda plan: changed(plan, 0, [Action("F", 2, 0)]),
    "the micro-batches 0 … 1": lambda plan: changed(plan, 0, [Action("F", 0, 2)]),
    "not of a micro-batch": lambda plan: changed(plan, 0, [Action("update", 0, 1)]),
    "there are the values": lambda plan: changed(plan, 0, [Action("free", 0, None, "z")]),
    "the peer should be": lambda plan: changed(plan, 0, [Action("send", 0, 0, "y", 0)]),
    "y and dy are sent": lambda plan: changed(plan, 0, [Action("send", 0, 0, "cache", 1)]),
    "different devices": lambda plan: changed(plan, 0, [Action("collective", 0, None, "grads", group=(1, 1))]),
    "are of params and grads, and of y and": lambda plan: changed(
        plan, 0, [Action("collective", 0, 0, "cache", group=(0, 1))]
    ),
    "no device has a part": lambda plan: changed(plan, 0, [Action("collective", 0, 0, "y", group=(0, 1))]),
    "not within the elements": lambda plan: changed(
        plan, 0, [Action("collective", 0, None, "grads", None, (0, 1), (((Transfer(0, 1, 0, 10**9, "add"),),)))]
    ),
    "is for free of params": lambda plan: changed(plan, 0, [Action("free", 0, 0, "y", part=(0, 1))]),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_no_plan(said):
    with pytest.raises(ValueError, match=said):
        prove(WRONG[said](PLANS["gpipe"](2, 2)))


@pytest.mark.parametrize("arguments", [{"batch_size": 0}, {"optimizer": "x"}, {"dtype": "int8"}])
def test_what_is_no_minibatch(arguments):
    with pytest.raises(ValueError, match=next(iter(arguments))):
        prove(PLANS["data"](1, 1), **arguments)


def test_compose_takes_computations_only():
    with pytest.raises(ValueError, match="device 1: .* is no computation"):
        compose([[("F", 0, 0)], [("update", 0, 0)]], 1)
    with pytest.raises(ValueError, match="stages"):
        compose([[("F", 9, 0)]], 1)


def test_sizes_of_stages_are_plain_data():
    plan = PLANS["gpipe"](2, 1)
    assert isinstance(plan.stages[0], Stage) and plan == PLANS["gpipe"](2, 1)
    assert plan._replace(name="mine").name == "mine"
