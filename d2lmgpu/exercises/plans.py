"""Exercises for notebook 12, splitting for real: 1F1B as lists of computations, and how many micro-batches it takes."""

import itertools

from ..networks import LENET
from ..plans import PlanError, compose, cut, prove, simulate
from .exercise import Exercise, Wrong, call, expect, read, returned

_FORM = "return one list for each device, with tuples (what, stage, micro_batch), such as ('F', 0, 3)"


def _check_orders(orders, k, m):
    """Check that each device has a list of all forward and backward computations of its own stage."""
    expect(len(orders) == k, f"there are {len(orders)} lists for {k} devices", _FORM)
    for s, order in enumerate(orders):
        for what, stage, micro_batch in order:
            said = f"device {s} has ({what!r}, {stage}, {micro_batch}) in its list"
            expect(stage == s, said, "device s computes only stage s")
        for what, name in (("F", "forward"), ("B", "backward")):
            done = sorted(i for kind, _, i in order if kind == what)
            hint = f"each device computes the {name} of each micro-batch, 0 to {m - 1}, once"
            expect(done == list(range(m)), f"device {s} computes the {name} of micro-batches {done}", hint)


def _proved(orders, m):
    try:
        plan = compose(orders, m, LENET, cut(LENET, len(orders)))
        prove(plan)
    except PlanError as error:
        hint = "device s waits for its neighbours: it begins with k - s forwards, more than the device after it"
        if _differ(orders):
            hint = "all devices take the micro-batches in the same order, both forward and backward"
        if _backward_first(orders):
            hint = "a micro-batch's backward comes after its forward, on every device"
        raise Wrong(str(error), hint) from error
    return plan


def _backward_first(orders):
    """Whether a device does a micro-batch's backward before its forward."""
    return any(("F", s, m) in order[i:] for order in orders for i, (what, s, m) in enumerate(order) if what == "B")


def _differ(orders):
    """Whether devices compute the micro-batches in different orders."""
    return len({tuple((what, m) for what, _, m in sorted(order, key=lambda step: step[0])) for order in orders}) > 1


class one_f_one_b(Exercise):
    """Write one_f_one_b(k, micro_batches): for each of k devices, return the list of its computations, in order, as
    tuples ('F' or 'B', stage, micro_batch). Device s has stage s and begins with k - s forwards (or with all, if there
    are fewer). Then it alternates one backward and one forward, and ends with the remaining backwards.

    it is proved for 1 to 4 devices; device s holds at most k - s micro-batches, and a step takes no longer than
    GPipe's.
    """

    without = ("one_f_one_b_order",)
    cases = ((2, 4), (4, 8), (1, 3), (3, 5), (4, 2), (2, 1))  # LeNet has at most four stages

    def test(self, answer, k, m):
        """Test that the plan can be proved, holds no more micro-batches at a time than 1F1B, and takes no longer."""
        orders = read(returned(call(answer, k, m)), [[(str, int, int)]], _FORM)
        _check_orders(orders, k, m)
        plan = _proved(orders, m)
        for s, order in enumerate(orders):
            # forward, and not yet backward
            held, most = max(itertools.accumulate(1 if what == "F" else -1 for what, *_ in order)), min(k - s, m)
            said = f"device {s} holds {held} micro-batches at a time; {most} are enough"
            expect(held <= most, said, "device s begins with only k - s forwards; then a backward makes room for one")
        found, right = simulate(plan).seconds, 3 * (m + k - 1)
        said = f"right, but it takes as long as {found:g} forwards; {right} are possible"
        hint = "device s begins with k - s forwards, so that its neighbours also have work"
        expect(found <= right, said, hint)


PLACES = "of a device's m + k - 1 time slots, m have work and k - 1 are empty: subtract the empty ones"


class enough_micro_batches(Exercise):
    """Write enough_micro_batches(k, bubble): return the smallest number of micro-batches with which GPipe on k devices
    loses at most the fraction `bubble` of the time (0.1 is a tenth). All stages take the same time.

    more devices need more micro-batches to stay busy.
    """

    cases = ((4, 0.15), (4, 0.25), (8, 0.5), (2, 0.03), (16, 0.32), (1, 0.1), (3, 0.9))
    hint = "solve (k - 1) / (m + k - 1) = bubble for m, and round up"

    def right(self, k, bubble):
        """The smallest m, from 1 on, for which (k-1)/(m+k-1) is at most the bubble."""
        return next(m for m in range(1, 10**6) if k - 1 <= bubble * (m + k - 1) + 1e-9)

    def mistakes(self, found, right, k, bubble):
        yield found < 1, "there is always at least one", "an undivided minibatch counts as one micro-batch"
        yield found % 1 != 0, "this includes a part of a micro-batch", "round up to a whole number"
        yield right - 1, "the bubble is a little too large", "round up, not down"
        yield abs(found - (k - 1) / bubble) <= 1, "this is a number of time slots", PLACES
        yield right + 1, "one less is enough", "a bubble of exactly `bubble` is allowed"
