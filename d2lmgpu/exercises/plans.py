"""Exercises of notebook 12, splitting for real: 1F1B as a list of computations, and how many micro-batches it takes."""

import numpy as np

from ..networks import LENET
from ..plans import PlanError, compose, cut, prove, simulate
from .checking import Exercise, Wrong, expect, kind, list_of, number_of, result_of, with_hidden

PIPELINES = ((2, 4), (4, 8), (1, 3), (3, 5), (4, 2), (2, 1))
"""Devices and micro-batches: first those in which most goes wrong. LeNet has four stages at most."""

FORM = "return a list with a list for each device, of (what, stage, micro_batch), such as ('F', 0, 3)"


def try_one_f_one_b(answer):
    """Proved, no micro-batch more than 1F1B holds, and no longer than it takes."""
    for k, m in with_hidden(PIPELINES, lambda rng: (int(rng.integers(1, 5)), int(rng.integers(1, 12)))):
        case = f"one_f_one_b({k}, {m})"
        orders = _orders(result_of(answer, k, m, case=case), k, m, case)
        plan = _composed(orders, k, m, case)
        for s, order in enumerate(orders):
            held, most = _held(order), min(k - s, m)
            expect(
                held <= most,
                f"{case}: device {s} holds {held} micro-batches at a time; {most} are enough",
                "device s begins with k - s forwards, and no more; then a backward makes room for each next one",
            )
        found, right = simulate(plan).seconds, 3 * (m + k - 1)
        expect(
            found <= right,
            f"{case}: right, but it takes {found:g} times a forward instead of {right}",
            "device s begins with k - s forwards, so that its neighbours have something to do, too",
        )
    return "proved for 1 to 4 devices; it holds no more than k - s micro-batches, and waits no longer than GPipe."


def _orders(result, k, m, case):
    """The answer as lists of (str, int, int), each a forward or backward of the device's own stage."""
    devices = list_of(result, case, FORM)
    expect(len(devices) == k, f"{case}: there are {len(devices)} lists for {k} devices", FORM)
    orders = []
    for s, todo in enumerate(devices):
        order = []
        for computation in list_of(todo, f"{case}: device {s}", FORM):
            what, stage, micro_batch = _computation(computation, f"{case}: device {s}")
            said = f"{case}: device {s} has ({what!r}, {stage}, {micro_batch})"
            expect(stage == s, f"{said} in its list", "device s computes stage s, and no other")
            expect(0 <= micro_batch < m, f"{said} in its list", f"micro-batches are numbered from 0 to {m - 1}")
            order.append((what, stage, micro_batch))
        for what, name in (("F", "forward"), ("B", "backward")):
            done = sorted(i for kind_of, _, i in order if kind_of == what)
            expect(
                done == list(range(m)),
                f"{case}: device {s} does {name} for micro-batches {done}",
                f"each device does {name} once for each of its {m} micro-batches",
            )
        orders.append(order)
    return orders


def _computation(computation, case):
    parts = list_of(computation, f"{case}: a computation", FORM)
    is_form = len(parts) == 3 and type(parts[0]) is str and parts[0] in ("F", "B")
    if not is_form or not all(isinstance(i, int | np.integer) and not isinstance(i, bool) for i in parts[1:]):
        raise Wrong(f"{case}: a computation is {_shown(parts)}", FORM)
    return parts[0], int(parts[1]), int(parts[2])


def _shown(parts):
    return f"({', '.join(repr(part) if type(part) in (int, str) else kind(part) for part in parts[:4])})"[:80]


def _composed(orders, k, m, case):
    try:
        plan = compose(orders, m, LENET, cut(LENET, k))
        prove(plan)
    except PlanError as error:
        text = str(error)
        hint = "a micro-batch's backward comes after its forward, on every device"
        if "deadlock" in text or "waits for ever" in text:
            hint = "device s waits for its neighbours: it begins with k - s forwards, more than the device after it"
            if _differ(orders):
                hint = "all devices go through the micro-batches in the same order, in forward as in backward"
        raise Wrong(f"{case}: {text}", hint) from error
    return plan


def _differ(orders):
    """Whether devices go through the micro-batches in different orders."""
    return len({tuple((what, m) for what, _, m in sorted(order, key=lambda step: step[0])) for order in orders}) > 1


def _held(order):
    """The most micro-batches that have gone forward and not yet back."""
    held = most = 0
    for what, _, _ in order:
        held += 1 if what == "F" else -1
        most = max(most, held)
    return most


BUBBLES = ((4, 0.15), (4, 0.25), (8, 0.5), (2, 0.03), (16, 0.32), (1, 0.1), (3, 0.9))
"""Devices, and the part of the time that may be lost."""


def _draw_bubble(rng):
    k, m = int(rng.integers(2, 65)), int(rng.integers(2, 500))
    return k, (k - 1) / (m + k - 1.5)  # m micro-batches are enough, and m - 1 are not


def try_enough_micro_batches(answer):
    """The least m, at least 1, with (k-1)/(m+k-1) at most the bubble."""
    for k, bubble in with_hidden(BUBBLES, _draw_bubble):
        case = f"enough_micro_batches({k}, {bubble:.4g})"
        found = number_of(result_of(answer, k, bubble, case=case), case)
        right = next(m for m in range(1, 10**6) if k - 1 <= bubble * (m + k - 1) + 1e-9)
        if found == right:
            continue
        said = f"{case}: {found:,} instead of {right:,}"
        exact = (k - 1) * (1 - bubble) / bubble
        mistakes = (
            (found < 1, "there is always one", "a minibatch that is not cut is one micro-batch"),
            (found % 1 != 0, "a part of a micro-batch", "round up to a whole number"),
            (found == right - 1, "the bubble is a little too large", "round up, not down"),
            (abs(found - (k - 1) / bubble) <= 1, "that many places, not micro-batches", PLACES),
            (abs(found - k * (1 - bubble) / bubble) <= 1, "one device too many waits", "k - 1 places are empty, not k"),
            (abs(found - exact * 2) <= 2, "twice as many", "forward and backward have a bubble each, and places each"),
            (found == right + 1, "one less is enough", "where the bubble is just as large as it may be, stop"),
        )
        for made, what, hint in mistakes:
            if made:
                raise Wrong(f"{said}: {what}", hint)
        raise Wrong(said, "solve (k - 1) / (m + k - 1) = bubble for m, and round up")
    return "the more devices, the more micro-batches it takes to keep them busy."


PLACES = "m + k - 1 places are m for work and k - 1 that are empty: take the empty ones off"


EXERCISES = {
    "one_f_one_b": Exercise(
        "Write one_f_one_b(k, micro_batches): for each of k devices the list of what it computes, in order, as tuples "
        "('F' or 'B', stage, micro_batch). Device s has stage s, begins with k - s forwards (or with all, if there "
        "are fewer), and then does one backward and one forward in turn, and the backwards that are left.",
        try_one_f_one_b,
    ),
    "enough_micro_batches": Exercise(
        "Write enough_micro_batches(k, bubble): the smallest number of micro-batches with which GPipe on k devices, "
        "whose stages cost the same, loses at most the part `bubble` of the time (0.1 is a tenth).",
        try_enough_micro_batches,
    ),
}
