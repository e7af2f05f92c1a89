"""Plans drawn at random, and plans changed at random.

Whatever the proof accepts, devices compute as one device does, to rounding: a proof that accepted a wrong plan would be
worse than none. So networks and changes are tried that no person would think of.
"""

import random
from collections import Counter

import numpy as np
import pytest
from at_random import at_random
from conftest import TOLERANCE, assert_close, sampled
from hypothesis import strategies as st
from one_device import first_params, learned_alone
from training_runs import cpus

from d2lmgpu.collectives import ALGORITHMS, Transfer
from d2lmgpu.collectives.network import full_switch
from d2lmgpu.networks import AvgPool2d, Conv2d, Dense, Flatten, MaxPool2d, ReLU, sequential
from d2lmgpu.plans import PLANS, Execution, Part, PlanError, copies_of, execute, prove, simulate
from d2lmgpu.plans.splits.data import COPIED

TIGHT = TOLERANCE[np.dtype(np.float64)]
LAYERS = st.lists(
    st.one_of(
        st.builds(Conv2d, st.integers(1, 4), st.integers(1, 3), st.integers(1, 2), st.integers(0, 1)),
        st.sampled_from([ReLU(), MaxPool2d(), AvgPool2d(), Conv2d(3, 2), Conv2d(5, 1)]),
    ),
    max_size=5,
)
ROWS = st.lists(st.one_of(st.builds(Dense, st.integers(1, 6)), st.just(ReLU())), max_size=4)


@st.composite
def networks(draw):
    """Convolutions and the like while the images are large enough, then dense layers."""
    shape = draw(st.integers(1, 3)), draw(st.integers(1, 7)), draw(st.integers(1, 7))
    recipes = []
    for recipe in draw(LAYERS):
        try:
            sequential(shape, *recipes, recipe, Flatten())
        except ValueError:
            continue
        recipes.append(recipe)
    return sequential(shape, *recipes, Flatten(), *draw(ROWS), Dense(draw(st.integers(1, 4))))


@st.composite
def random_plans(draw):
    """A plan of any kind for a random network, on as many devices as it allows."""
    network, k, micro_batches = draw(networks()), draw(st.integers(1, 6)), draw(st.integers(1, 4))
    name, copies = draw(st.sampled_from([*PLANS])), draw(st.integers(1, 2))
    algorithm = draw(st.sampled_from([algorithm for algorithm in ALGORITHMS if algorithm != "none"]))
    if name in COPIED and name != "channels":
        k = min(k, sum(bool(layer.shapes) for layer in network))
    if copies == 2 and name in COPIED:
        return copies_of(name, 2, min(k, 3), micro_batches, network, algorithm)
    if name == "data":
        return PLANS[name](k, micro_batches, network, algorithm, buckets=copies == 2)
    return PLANS[name](k, micro_batches, network)


@at_random(40, random_plans(), st.integers(1, 30), nights=100)
def test_a_plan_is_proved_and_does_what_one_device_does(plan, n):
    proof = prove(plan, n)
    assert proof.wasted == [] and len(plan.actions) == plan.k
    assert [sum(kinds.values()) for kinds in proof.peak_of] == proof.peak
    assert all(between <= peak for between, peak in zip(proof.between, proof.peak, strict=True))
    rng = np.random.default_rng(n)
    batches = [
        (rng.normal(0.5, 1, (m, *plan.network.input_shape)), rng.integers(0, plan.network.classes, m)) for m in (n, 3)
    ]
    expected = learned_alone(plan.network, batches, "momentum", 0.02)
    execution = Execution(plan, first_params(plan.network), cpus(plan.k), "momentum")
    losses, correct = [], 0
    for X, y in batches:
        losses.append(execution.step(X, y, 0.02))
        correct += execution.correct
    assert losses == pytest.approx(expected.losses, rel=10 * TIGHT, abs=1e-12) and correct == expected.correct
    for param, alone in zip(execution.params(), expected.params, strict=True):
        assert_close(param, alone, 10 * TIGHT)


@at_random(40, random_plans(), st.dictionaries(st.sampled_from([*"FBIW", "update"]), st.integers(0, 9)), st.booleans())
def test_a_step_takes_at_least_what_bounds_it(plan, costs, at_once):
    """The longest device's work, and the path of one micro-batch through all stages and back."""
    network = None if at_once else full_switch(plan.k, 1e6, latency=1e-3)
    result, moved = simulate(plan, network, costs, 12), simulate(plan, costs=costs, batch_size=12)
    work, path = Counter(), Counter()
    for event in result.events:
        work[event.action.device] += event.end - event.start
        if event.action.what in "FBI":
            path[event.action.micro_batch, event.action.stage, event.action.what] = costs.get(event.action.what, 0)
    paths = Counter()
    for (micro_batch, _, _), seconds in path.items():
        paths[micro_batch] += seconds
    bound = max([*work.values(), *paths.values()])
    assert result.seconds >= bound - 1e-9 and result.seconds >= moved.seconds - 1e-9
    assert result.bubble == pytest.approx(1 - sum(work.values()) / (plan.k * result.seconds) if result.seconds else 0)
    assert result.sent == prove(plan, 12).sent


# Changed plans:

NETWORK = sequential((1, 1, 5), Flatten(), Dense(4), ReLU(), Dense(6), Dense(3))
IMAGES = sequential((2, 6, 5), Conv2d(3, 2), ReLU(), MaxPool2d(), Flatten(), Dense(4), Dense(3))
LR, EXAMPLES = 0.5, 11


def plans(network):
    """One of each kind, small."""
    for name in PLANS:
        for k, micro_batches in (1, 2), (2, 2), (3, 1), (3, 3):
            yield PLANS[name](k, micro_batches, network=network)
    yield PLANS["channels"](4, 1, network=network)  # more devices than the last layer has units
    for algorithm in ALGORITHMS:
        if algorithm != "none":
            yield PLANS["data"](3, 1, network=network, algorithm=algorithm)
    for name in ("1f1b", "channels"):
        yield copies_of(name, 2, 2, 1, network=network)


def other_transfer(t, k, rng):
    """The transfer with one field changed."""
    change = rng.choice(["source", "destination", "start", "stop", "op", "value"])
    if change in ("source", "destination"):
        return t._replace(**{change: rng.randrange(k)})
    if change in ("start", "stop"):
        return t._replace(**{change: max(0, getattr(t, change) + rng.choice([-1, 1]))})
    if change == "op":
        return t._replace(op={"add": "copy", "copy": "add"}[t.op])
    kind, stage, *rest = t.value
    kind = rng.choice(["params", "grads", "y", "dy", "x", kind])
    return t._replace(value=(kind, stage, *([0] if rng.random() < 0.3 else rest)))


def other_compute(c, k, micro_batches, rng):
    """The computation with one field changed."""
    change = rng.choice(["device", "stage", "micro_batch", "what", "into"])
    if change == "what":
        return c._replace(what=rng.choice("FBIW"))
    if change == "into":
        return c._replace(into=None if c.into else ("grads", c.stage, rng.randrange(micro_batches)))
    most = {"device": k, "stage": 4, "micro_batch": micro_batches}[change]
    return c._replace(**{change: rng.randrange(most)})


def mutated(plan, rng):
    """How the plan is changed, and the other plan."""
    steps = [list(step) for step in plan.steps]
    number = rng.randrange(len(steps))
    step = steps[number]
    change = rng.choice(["removed", "doubled", "changed", "changed", "moved", "swapped", "cut", "part"])
    place = rng.randrange(len(step))
    action = step[place]
    if change == "removed":
        del step[place]
    elif change == "doubled":
        steps.insert(rng.randrange(number, len(steps)) + 1, [action])
    elif change == "moved":
        steps.insert(rng.randrange(len(steps) + 1), [step.pop(place)])
    elif change == "swapped":
        other = rng.randrange(len(steps))
        steps[number], steps[other] = steps[other], steps[number]
    elif change == "cut":  # what happened at the same time happens one after the other, in any order
        steps[number : number + 1] = [[one] for one in rng.sample(step, len(step))]
    elif change == "part":
        layout = [list(parts) for parts in plan.layout]
        device = rng.randrange(plan.k)
        if layout[device]:
            one = rng.randrange(len(layout[device]))
            stage, *bounds = layout[device][one]
            which = rng.randrange(2)
            start, stop = bounds[which]
            bounds[which] = rng.choice([(start, stop - 1), (start + 1, stop), (0, 0), (0, plan.stages[stage].params)])
            layout[device][one] = Part(stage, *bounds)
        return change, plan._replace(layout=tuple(map(tuple, layout)))
    elif isinstance(action, Transfer):
        step[place] = other_transfer(action, plan.k, rng)
    else:
        step[place] = other_compute(action, plan.k, plan.micro_batches, rng)
    return change, plan._replace(steps=[step for step in steps if step])


def check_mutations(seed, count, network):
    """``count`` plans, of some with several changes; how many were accepted and refused."""
    rng, numbers, counts, every = random.Random(seed), np.random.default_rng(seed), Counter(), list(plans(network))
    X, y = numbers.random((EXAMPLES, *network.input_shape)), numbers.integers(0, 3, EXAMPLES)
    expected = learned_alone(network, [(X, y)], lr=LR)
    for _ in range(count):
        plan = rng.choice(every)
        changes = []
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            change, plan = mutated(plan, rng)
            changes.append(change)
        try:
            prove(plan, EXAMPLES)
        except PlanError:
            counts["refused"] += 1
            continue
        counts["accepted"] += 1
        loss, found = execute(plan, X, y, first_params(network), cpus(plan.k), LR)
        for one, alone in zip(found, expected.params, strict=True):
            assert_close(one, alone, TIGHT)
        assert loss == pytest.approx(expected.losses[0]), changes
    return counts


@pytest.mark.parametrize("network", [NETWORK, IMAGES], ids=["dense", "images"])
def test_what_is_accepted_computes_what_one_device_does(network):
    counts = check_mutations(4, 250, network)
    assert counts["refused"] > counts["accepted"] > 25


@pytest.mark.parametrize("seed", sampled(range(100), 50))
def test_another_sample_for_each_commit(seed):
    check_mutations(seed, 800, (NETWORK, IMAGES)[seed % 2])
