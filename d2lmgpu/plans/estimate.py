"""What computations of a plan cost, where nobody measured it: their multiplications, at so many in a second."""

from ..arguments import check_number, check_whole
from ..networks import layer_rows


def estimate_costs(plan, batch_size=256, speed=1e12):
    """Costs as `simulate` takes them, in seconds, for each stage: forward's products, once more for each gradient.

    ``speed``: multiplications a second of each device. The first layer needs no gradient of its input. Where several
    devices compute a stage for the same examples, each does its part. Raises ValueError for numbers that are none.
    """
    check_whole("batch_size", batch_size)
    check_number("speed", speed, above=0)
    products = [row[-1] for row in layer_rows(plan.network)]
    costs = []
    for s, stage in enumerate(plan.stages):
        together = sum(any(a.what == "F" and a[1:3] == (s, 0) for a in todo) for todo in plan.actions)
        seconds = batch_size / plan.micro_batches / speed / max(1, together)  # for one product of an image
        whole = sum(products[stage.first : stage.stop])
        first = next(filter(None, products), 0) if stage.first == 0 else 0
        F, I, W = (number * seconds for number in (whole, whole - first, whole))  # noqa: E741, N806
        costs.append({"F": F, "B": I + W, "I": I, "W": W, "update": 0})
    return costs
