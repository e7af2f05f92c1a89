"""One reader of plans: prove that a plan is right, without computing.

It is replayed with sets for numbers (plan_replay.py). A plan is right if whatever is used is there and right, each
update finds every micro-batch's contribution once, and at the end each device holds what the layout says, updated.

With the proof comes what the plan takes: memory (memory.py), and bytes that are sent.
"""

from dataclasses import dataclass, field

from ..arguments import check_list, check_name, check_whole
from ..optimizers import OPTIMIZERS
from .check import check_plan
from .memory import held_in_steps, unit_bytes
from .moves import Wrong, sent_by
from .objective import CLASSES
from .plan import PlanError
from .plan_replay import PlanReplay
from .sizes import whole_granules


@dataclass
class PlanProof:
    """What a proof found out about a right plan: in bytes, with an entry for each device.

    ``peak``: the most that it holds at a time; ``peak_of``: what that consists of, a dict of `memory.KINDS`.
    ``between``: what it holds between steps. ``sent``: what it sends. ``wasted``: sentences about what nobody needs,
    the first few.
    """

    peak: list
    peak_of: list = field(repr=False)
    between: list
    sent: list
    wasted: list


def prove_plan(plan, batch_size=256, optimizer="sgd", dtype="float32", objective=CLASSES, kernels=True, exact=False):
    """Prove that each device ends with what one device has that does everything; a `PlanProof`.

    Memory and bytes are those of a minibatch of ``batch_size`` examples, a number or a tuple with that of each
    micro-batch; with targets and a loss as the `Objective` says. Without ``kernels`` layers compute as they are
    written, and all that forward keeps is a device's memory (see ways.py). ``exact``: sums are, micro-batches are whole
    granules, and gradients int64.

    Raises PlanError, which names step, device and micro-batch, if the plan is wrong; ValueError for what is no plan.
    """
    replay = replayed(plan)
    check_minibatch(plan, batch_size, optimizer, dtype)
    batch_size = whole_granules(batch_size, plan.micro_batches) if exact else batch_size
    how = batch_size, OPTIMIZERS[optimizer].states, dtype, objective, kernels, exact
    held = held_in_steps(plan, replay.columns, *how)
    peaks = [each.peak for each in held], [each.peak_of for each in held], [each.between for each in held]
    sent = sent_by([moves for _, moves in replay.columns], plan.k, unit_bytes(plan, batch_size, dtype, exact))
    return PlanProof(*peaks, sent, replay.wasted)


def replayed(plan):
    """The `PlanReplay` of a right plan, whose steps are its ``columns``. Raises PlanError for a plan that is wrong."""
    columns = check_plan(plan)
    try:
        replay = PlanReplay(plan, columns)
        replay.run()
    except Wrong as wrong:
        raise PlanError(str(wrong)) from None
    return replay


def check_minibatch(plan, batch_size, optimizer, dtype):
    """Raise ValueError unless memory can be counted for these."""
    if isinstance(batch_size, tuple):
        check_list("batch_size", batch_size, of="numbers, one for each micro-batch", length=plan.micro_batches)
        for size in batch_size:
            check_whole("batch_size", size, least=0)
    else:
        check_whole("batch_size", batch_size)
    check_name("optimizer", optimizer, OPTIMIZERS)
    check_name("dtype", dtype, ("float32", "float64"))
