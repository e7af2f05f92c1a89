"""Plans: a whole training step of several devices as data, which can be proved right, simulated and carried out.

In the order in which to read them:

    plan.py       what a plan is: stages, micro-batches, and lists of transfers and computations
    splits/       the known plans, in `PLANS`; `compose` makes your own from lists of computations
    stages.py     how a network is cut into stages, and how a stage is split among devices
    proof/        `prove` replays a plan without computing: is it right, how much memory and traffic does it need?
    simulate.py   `simulate`: how long does a step take, and which devices wait?
    execution/    `execute` and `Execution` carry out a plan with real arrays on real devices
"""

from ..base.packages import looked_up
from .execution.execute import Execution as Execution, execute as execute
from .plan import (
    Compute as Compute,
    Part as Part,
    Plan as Plan,
    PlanError as PlanError,
    Stage as Stage,
)
from .proof.prove import PlanProof as PlanProof, prove as prove
from .simulate import PlanSimulation as PlanSimulation, estimate_costs as estimate_costs, simulate as simulate
from .splits import (
    PLANS as PLANS,
    channels as channels,
    data as data,
    gpipe as gpipe,
    layers as layers,
    one_f_one_b as one_f_one_b,
    zero1 as zero1,
    zero2 as zero2,
    zero3 as zero3,
    zero_bubble as zero_bubble,
)
from .splits.compose import compose as compose
from .splits.data import copies_of as copies_of
from .stages import cut as cut

__getattr__, __dir__ = looked_up(
    __name__, {"..pictures.plans": "draw write_html", "..pictures.splits": "draw_splits", "..pictures.films": "play"}
)
