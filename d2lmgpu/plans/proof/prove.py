"""Prove that a plan is right, without computing.

The plan is replayed with sets instead of numbers (replay.py). It is right if every value that is used is there and
right, each update finds every micro-batch's contribution exactly once, and each device holds the updated values that
the layout gives it at the end.

The proof also reports the plan's cost: memory (memory.py) and the bytes that are sent.
"""

from dataclasses import dataclass, field

from ...base.arguments import check_list, check_name, check_whole, plain
from ...collectives.columns import sent_by
from ...networks.optimizers import OPTIMIZERS
from .check import check_plan
from .memory import held_in_steps, unit_bytes
from .replay import PlanReplay


@dataclass
class PlanProof:
    """The findings of a proof that a plan is right, in bytes, with an entry for each device.

    ``peak``: the most that the device holds at a time; ``peak_of``: a dict that divides this into `memory.KINDS`.
    ``between``: what it holds between steps. ``sent``: what it sends. ``wasted``: sentences about unnecessary actions,
    at most the first few.
    """

    peak: list
    peak_of: list = field(repr=False)
    between: list
    sent: list
    wasted: list


def prove(plan, batch_size=256, optimizer="sgd", dtype="float32", target_bytes=8):
    """Prove that each device ends with the same values as one device that does everything; return a `PlanProof`.

    Memory and bytes are for a minibatch of ``batch_size`` examples (a number, or a tuple with the size of each
    micro-batch) whose targets take ``target_bytes`` each.

    Raises PlanError, which names step, device and micro-batch, if the plan is wrong; ValueError for anything else.
    """
    replay = replayed(plan)
    batch_size = check_minibatch(plan, batch_size, optimizer, dtype)
    held = held_in_steps(plan, replay.columns, batch_size, OPTIMIZERS[optimizer].states, dtype, target_bytes)
    sent = sent_by([moves for _, moves in replay.columns], plan.k, unit_bytes(plan, batch_size, dtype))
    peak, peak_of, between = ([getattr(each, name) for each in held] for name in ("peak", "peak_of", "between"))
    return PlanProof(peak, peak_of, between, sent, replay.wasted)


def replayed(plan):
    """The `PlanReplay` of a right plan; its ``columns`` are the plan's steps. Raises PlanError for a wrong plan."""
    replay = PlanReplay(plan, check_plan(plan))
    replay.run()
    return replay


def check_minibatch(plan, batch_size, optimizer, dtype):
    """``batch_size`` as an int or a tuple of ints. ValueError unless memory can be counted for these arguments."""
    check_name("optimizer", optimizer, OPTIMIZERS)
    check_name("dtype", dtype, ("float32", "float64"))
    if not isinstance(plain(batch_size), list):
        return check_whole("batch_size", batch_size)
    sizes = check_list("batch_size", batch_size, of="numbers, one for each micro-batch", length=plan.micro_batches)
    return tuple(check_whole("batch_size", size, least=0) for size in sizes)
