"""Plans changed at random: whatever the proof accepts, devices compute as one device does, to rounding.

A proof that accepted a wrong plan would be worse than none. So changes are tried that no person would think of.
"""

import random
from collections import Counter

import numpy as np
import pytest
from conftest import TOLERANCE, assert_close, sampled

import d2lmgpu as d2l
from d2lmgpu.collectives import ALGORITHMS, Transfer
from d2lmgpu.networks import Conv2d, Dense, Flatten, MaxPool2d, ReLU, init_params, sequential
from d2lmgpu.plans import PLANS, Part, PlanError, copies_of, execute, prove

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
    step, how = (
        steps[number],
        rng.choice(["removed", "doubled", "changed", "changed", "moved", "swapped", "cut", "part"]),
    )
    place = rng.randrange(len(step))
    action = step[place]
    if how == "removed":
        del step[place]
    elif how == "doubled":
        steps.insert(rng.randrange(number, len(steps)) + 1, [action])
    elif how == "moved":
        steps.insert(rng.randrange(len(steps) + 1), [step.pop(place)])
    elif how == "swapped":
        other = rng.randrange(len(steps))
        steps[number], steps[other] = steps[other], steps[number]
    elif how == "cut":  # what happened at the same time happens one after the other, in any order
        steps[number : number + 1] = [[one] for one in rng.sample(step, len(step))]
    elif how == "part":
        layout = [list(parts) for parts in plan.layout]
        device = rng.randrange(plan.k)
        if layout[device]:
            one = rng.randrange(len(layout[device]))
            stage, *bounds = layout[device][one]
            which = rng.randrange(2)
            start, stop = bounds[which]
            bounds[which] = rng.choice([(start, stop - 1), (start + 1, stop), (0, 0), (0, plan.stages[stage].params)])
            layout[device][one] = Part(stage, *bounds)
        return how, plan._replace(layout=tuple(map(tuple, layout)))
    elif isinstance(action, Transfer):
        step[place] = other_transfer(action, plan.k, rng)
    else:
        step[place] = other_compute(action, plan.k, plan.micro_batches, rng)
    return how, plan._replace(steps=[step for step in steps if step])


def check_mutations(seed, count, network):
    """``count`` plans, of some with several changes; how many were accepted and refused."""
    rng, numbers, counts, every = random.Random(seed), np.random.default_rng(seed), Counter(), list(plans(network))
    params = init_params(seed=1, init="he", dtype=np.float64, network=network)
    params = [param + numbers.normal(0, 0.1, param.shape) for param in params]
    X, y = numbers.random((EXAMPLES, *network.input_shape)), numbers.integers(0, 3, EXAMPLES)
    loss, grads = d2l.loss_and_grads(X, y, params, network=network)
    expected = [param - LR * grad / EXAMPLES for param, grad in zip(params, grads, strict=True)]
    for _ in range(count):
        plan = rng.choice(every)
        hows = []
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            how, plan = mutated(plan, rng)
            hows.append(how)
        try:
            prove(plan, EXAMPLES)
        except PlanError:
            counts["refused"] += 1
            continue
        counts["accepted"] += 1
        found_loss, found = execute(plan, X, y, params, [d2l.cpu(i) for i in range(plan.k)], LR)
        for one, alone in zip(found, expected, strict=True):
            assert_close(one, alone, TOLERANCE[np.dtype(np.float64)])
        assert found_loss == pytest.approx(float(loss)), hows
    return counts


@pytest.mark.parametrize("network", [NETWORK, IMAGES], ids=["dense", "images"])
def test_what_is_accepted_computes_what_one_device_does(network):
    counts = check_mutations(4, 250, network)
    assert counts["refused"] > counts["accepted"] > 25


@pytest.mark.parametrize("seed", sampled(range(100), 15))
def test_another_sample_for_each_commit(seed):
    check_mutations(seed, 800, (NETWORK, IMAGES)[seed % 2])
