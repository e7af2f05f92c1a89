"""Schedules for tests: strategies that draw them, and what they do by their definition."""

from hypothesis import strategies as st

from d2lmgpu.collectives import ALGORITHMS, Transfer, hierarchical

SUMMING = sorted(set(ALGORITHMS) - {"none"})


@st.composite
def any_groups(draw, k):
    """Every device in one of some groups, in any order, of any sizes."""
    order = draw(st.permutations(range(k)))
    cuts = sorted(draw(st.sets(st.integers(1, k - 1)))) if k > 1 else []
    return [order[start:stop] for start, stop in zip([0, *cuts], [*cuts, k], strict=True)]


@st.composite
def allreduces(draw, devices=8, elements=3000):
    """An allreduce that there is, as (algorithm, k, n, schedule)."""
    k, algorithm = draw(st.integers(1, devices)), draw(st.sampled_from([*SUMMING, "hierarchical", "hierarchical"]))
    n = draw(st.one_of(st.integers(0, 2 * k), st.integers(0, elements)))
    if algorithm == "hierarchical":
        return algorithm, k, n, hierarchical(k, n, draw(any_groups(k)))
    return algorithm, k, n, ALGORITHMS[algorithm](k, n)


@st.composite
def transfers(draw, k, n):
    """One between two of k devices, of some of n elements."""
    source = draw(st.integers(0, k - 1))
    destination = draw(st.integers(0, k - 2))
    start, stop = sorted(draw(st.tuples(st.integers(0, n), st.integers(0, n))))
    return Transfer(source, destination + (destination >= source), start, stop, draw(st.sampled_from(["add", "copy"])))


def any_steps(k, n):
    """Steps in which many may overwrite what many read."""
    return st.lists(st.lists(transfers(k, n), max_size=3 * k), max_size=6)


@st.composite
def any_schedules(draw):
    """Any steps, as (k, n, schedule)."""
    k, n = draw(st.sampled_from([2, 3, 5, 8])), draw(st.integers(1, 23))
    return k, n, draw(any_steps(k, n))


@st.composite
def mutants(draw):
    """An allreduce, changed in one place, as (k, n, schedule)."""
    _, k, n, schedule = draw(allreduces(devices=6, elements=12).filter(lambda drawn: any(drawn[3])))
    steps = [list(step) for step in schedule]
    at = draw(st.sampled_from([i for i, step in enumerate(steps) if step]))
    i = draw(st.integers(0, len(steps[at]) - 1))
    change = draw(st.sampled_from(["drop", "repeat", "swap", "another", *Transfer._fields[:5]]))
    if change == "drop":
        del steps[at][i]
    elif change == "repeat":
        steps[draw(st.integers(0, len(steps) - 1))].append(steps[at][i])
    elif change == "swap":
        other = draw(st.integers(0, len(steps) - 1))
        steps[at], steps[other] = steps[other], steps[at]
    elif change == "another":
        steps[at][i] = draw(transfers(k, n))
    elif change == "op":
        steps[at][i] = steps[at][i]._replace(op={"add": "copy", "copy": "add"}[steps[at][i].op])
    else:
        moved = getattr(steps[at][i], change) + draw(st.sampled_from([-1, 1]))
        steps[at][i] = steps[at][i]._replace(**{change: moved})
    return k, n, steps


def by_definition(schedule, values):
    """What is held after a schedule: each message is what its source held when the step began.

    What goes to one place, goes there in the order of the list.
    """
    held = values.copy()
    for step in schedule:
        before = held.copy()
        for t in step:
            message, target = before[t.source, t.start : t.stop], held[t.destination, t.start : t.stop]
            target[...] = message + target if t.op == "add" else message
    return held
